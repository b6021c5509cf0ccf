"""A wider transformer goes on from where a narrower one stood."""

from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel

from engine.tiny.transformer import TRANSFORMER_CONFIG
from engine.tiny.widening import widen_state, width_of

NARROW = TRANSFORMER_CONFIG | {"num_attention_heads": 4, "num_layers": 2}
WIDE = TRANSFORMER_CONFIG | {"num_attention_heads": 5, "num_layers": 2}


def trained(config: dict[str, Any]) -> tuple[WanTransformer3DModel, dict[str, Any]]:
    """A model after one step of an optimizer, and its state as the trainer keeps it."""
    torch.manual_seed(5)
    model = WanTransformer3DModel(**config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    predict(model).square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    state = {
        "model": weights,
        "average": {"count": 1, "weights": weights},
        "optimizers": [optimizer.state_dict()],
        "step": 1,
    }
    return model, state


def predict(model: WanTransformer3DModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    return model(
        hidden_states=torch.randn(1, 48, 2, 4, 4, generator=generator),
        timestep=torch.tensor([600]),
        encoder_hidden_states=torch.randn(1, 9, 192, generator=generator),
        return_dict=False,
    )[0]


@pytest.fixture(scope="module")
def widened() -> tuple[WanTransformer3DModel, WanTransformer3DModel, dict[str, Any]]:
    narrow, state = trained(NARROW)
    wide = WanTransformer3DModel(**WIDE)
    names = [[name for name, _ in wide.named_parameters()]]
    return narrow, wide, widen_state(state, wide, names)


def test_the_wider_model_predicts_nearly_the_same(
    widened: tuple[WanTransformer3DModel, WanTransformer3DModel, dict[str, Any]],
) -> None:
    narrow, wide, state = widened
    wide.load_state_dict(state["model"])
    with torch.no_grad():
        before, after = predict(narrow), predict(wide)
    # Norms count the new channels as well, so it is not quite the same.
    assert torch.corrcoef(torch.stack((before.flatten(), after.flatten())))[0, 1] > 0.9


def test_weights_average_and_moments_have_the_wider_shapes(
    widened: tuple[WanTransformer3DModel, WanTransformer3DModel, dict[str, Any]],
) -> None:
    _, wide, state = widened
    assert width_of(state["model"]) == 320
    for name, value in state["model"].items():
        assert torch.equal(value, state["average"]["weights"][name])
    optimizer = torch.optim.AdamW(wide.parameters(), lr=1e-6)
    optimizer.load_state_dict(state["optimizers"][0])
    wide.load_state_dict(state["model"])
    predict(wide).square().mean().backward()
    optimizer.step()


def test_modulation_keeps_its_six_parts(
    widened: tuple[WanTransformer3DModel, WanTransformer3DModel, dict[str, Any]],
) -> None:
    narrow, _, state = widened
    name = "condition_embedder.time_proj.bias"
    parts = state["model"][name].view(6, 320)
    assert torch.equal(parts[:, :256].flatten(), narrow.state_dict()[name])
    assert not parts[:, 256:].any()
