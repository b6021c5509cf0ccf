"""The Dockerfile, the compose file and CI say what the code says."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from app.config import VARIABLES, Config
from app.paths import ROOT
from app.stack.commands import WorkerRole

# Read by boto3 itself, not by our code.
AWS_VARIABLES = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"}
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name for name, service in SERVICES.items() if "build" in service}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_compose_runs_every_part() -> None:
    assert set(SERVICES) == {
        *("postgres", "redis", "migrate", "web"),
        *("scheduler", "render-cpu", "render-gpu"),
    }


def test_every_queue_has_a_worker_without_a_gpu() -> None:
    served = {
        service["command"][service["command"].index("--role") + 1]
        for service in SERVICES.values()
        if "--role" in service.get("command", []) and "profiles" not in service
    }
    assert served == {role.value for role in WorkerRole}


def test_only_the_gpu_worker_hides_behind_a_profile() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"render-gpu"}
    devices = SERVICES["render-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_variable_is_one_that_the_configuration_reads(name: str) -> None:
    assert set(SERVICES[name]["environment"]) <= set(VARIABLES) | AWS_VARIABLES


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_environment_makes_a_valid_configuration(name: str) -> None:
    environment = {key: filled(value) for key, value in SERVICES[name]["environment"].items()}
    config = Config.from_environment(environment)
    passwords = {
        re.search(r"//\w+(?::(\w+))?@", url).group(1)  # type: ignore[union-attr]
        for url in (config.database_url, config.database_app_url, config.database_system_url)
    }
    assert len(passwords) == 3, "each database role has its own password"


def test_only_migrate_holds_the_password_of_the_owner() -> None:
    holders = {name for name in OURS if "POSTGRES_PASSWORD" in str(SERVICES[name]["environment"])}
    assert holders == {"migrate"}


def test_no_secret_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET_KEY))([^}]*)\}", text)
    assert {name for name, _ in secrets} == {
        *("POSTGRES_PASSWORD", "ADLOOM_APP_PASSWORD", "ADLOOM_SYSTEM_PASSWORD"),
        *("REDIS_PASSWORD", "ADLOOM_SECRET_KEY"),
    }
    assert all(rest.startswith(":?") for _, rest in secrets)


def test_every_setting_of_the_compose_file_stands_in_the_example() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"\$\{(\w+)", text)) - {"ADLOOM_PUBLISH", "ADLOOM_LOG_LEVEL"}
    example = set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert used == example


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_lasting_service_has_a_health_check_and_comes_back(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("role", list(WorkerRole))
def test_health_checks_ask_for_the_name_that_the_worker_takes(role: WorkerRole) -> None:
    checked = [
        (service["command"], service["healthcheck"]["test"][1])
        for service in SERVICES.values()
        if role.value in service.get("command", [])
    ]
    for command, test in checked:
        name = command[command.index("--name") + 1]
        assert f"--destination {role.value}-{name}@$$HOSTNAME" in test


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nothing_runs_as_root(name: str) -> None:
    assert SERVICES[name]["user"] not in ("root", "0", 0)


def test_the_image_runs_as_an_ordinary_user() -> None:
    final_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)", final_stage, re.MULTILINE)
    assert users == ["adloom"]
    assert "ARG TORCH_INDEX_URL" in DOCKERFILE


def test_the_image_holds_every_folder_that_runs() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(\w+) ", DOCKERFILE, re.MULTILINE))
    assert copied == {"app", "bench", "engine", "workers", "migrations", "templates", "examples"}
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} <= set(allowed)


def test_redis_keeps_what_it_holds() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_services_wait_for_what_they_need() -> None:
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in OURS - {"migrate"}:
        conditions = SERVICES[name]["depends_on"]
        assert conditions["migrate"]["condition"] == "service_completed_successfully"
        assert conditions["redis"]["condition"] == "service_healthy"


def test_ci_runs_what_everybody_runs_and_insists_on_a_browser() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (\w+)", script, re.MULTILINE) == ["lint", "test"]
    assert "export ADLOOM_REQUIRE_BROWSER=1" in script


def test_the_constraints_pin_every_requirement() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    dependencies = project.partition("[project.optional-dependencies]")[0]
    wanted = re.findall(r'^  "([A-Za-z0-9-]+)', dependencies, re.MULTILINE)
    pins = re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert set(wanted) <= set(pins)
    assert "+" not in "".join(pins), "a local build of torch would not install elsewhere"


def filled(value: str) -> str:
    """The value as Docker Compose fills it in, with `NAME-…` for a variable that must be set."""
    required = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda m: m[1].replace("_", "") + "x" * 32, value)
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", required)
