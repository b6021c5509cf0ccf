"""What the engine reads from its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import BUNDLED_MODEL_DIR, EngineConfig, HubConfig, train_dir
from engine.errors import ConfigError


def test_an_empty_environment_gives_the_defaults() -> None:
    config = EngineConfig.from_environment({})
    assert config == EngineConfig()
    assert config.model_dir == BUNDLED_MODEL_DIR


def test_empty_variables_count_as_unset() -> None:
    names = (
        "ADLOOM_DEVICE",
        "ADLOOM_DTYPE",
        "ADLOOM_MODEL_DIR",
        "ADLOOM_TORCH_THREADS",
        "ADLOOM_BATCH_SIZE",
        "ADLOOM_CACHE_MB",
    )
    assert EngineConfig.from_environment(dict.fromkeys(names, "")) == EngineConfig()


def test_every_variable_is_read() -> None:
    config = EngineConfig.from_environment(
        {
            "ADLOOM_DEVICE": "cuda:1",
            "ADLOOM_DTYPE": "float16",
            "ADLOOM_MODEL_DIR": "/models",
            "ADLOOM_TORCH_THREADS": "3",
            "ADLOOM_BATCH_SIZE": "16",
            "ADLOOM_CACHE_MB": "0",
        }
    )
    expected = EngineConfig(
        device="cuda:1",
        dtype="float16",
        model_dir=Path("/models"),
        torch_threads=3,
        batch_size=16,
        cache_bytes=0,
    )
    assert config == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ADLOOM_DTYPE", "int8"),
        ("ADLOOM_TORCH_THREADS", "0"),
        ("ADLOOM_TORCH_THREADS", "-2"),
        ("ADLOOM_TORCH_THREADS", "two"),
        ("ADLOOM_BATCH_SIZE", "0"),
        ("ADLOOM_CACHE_MB", "-1"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        EngineConfig.from_environment({variable: value})
    assert value in str(caught.value)


def test_the_train_folder_is_read_and_an_empty_one_counts_as_unset() -> None:
    assert train_dir({"ADLOOM_TRAIN_DIR": "/runs/tiny"}) == Path("/runs/tiny")
    assert train_dir({"ADLOOM_TRAIN_DIR": ""}) is None
    assert train_dir({}) is None


def test_the_hub_is_the_public_one_unless_a_mirror_is_named() -> None:
    assert HubConfig.from_environment({"HF_TOKEN": " "}).token is None
    assert HubConfig.from_environment({}).endpoint == "https://huggingface.co"
    named = HubConfig.from_environment({"HF_ENDPOINT": "http://mirror/", "HF_TOKEN": "hf_secret"})
    assert (named.endpoint, named.token) == ("http://mirror", "hf_secret")
    assert "hf_secret" not in repr(named)
