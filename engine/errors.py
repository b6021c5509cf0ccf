"""The engine's errors: what can go wrong with a request, a checkpoint, a device or a file.

EngineError
├── ConfigError           an environment variable has a value the engine cannot use
├── InvalidRequest        a field of a request or setting is wrong
│   ├── UnknownModel
│   └── UnsupportedTask   the model cannot do this generation task
├── CheckpointError       the weights folder is missing, incomplete or of another kind
├── HubError              a checkpoint could not be fetched from the hub
├── NonFiniteOutput       the model computed NaN or infinity
├── OutOfMemory           the device's memory did not suffice
├── GenerationCancelled   somebody asked to stop
├── GenerationSuspended   the run was stopped between two steps, to go on elsewhere
└── MediaError            a picture or video could not be read or written
    └── DiskFull

Each class carries a stable `code` and says whether the same request may succeed later.
`str(error)` is a whole message for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""

    code = "engine_error"
    is_retryable = False


class ConfigError(EngineError):
    """An environment variable has a value the engine cannot use."""

    code = "invalid_config"

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(f"{variable}: {message}")
        self.variable = variable


class InvalidRequest(EngineError):
    """A field of a request is wrong; `field` names it as in `GenerationRequest`."""

    code = "invalid_request"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownModel(InvalidRequest):
    """No model of this id is registered."""

    code = "unknown_model"

    def __init__(self, model_id: str, known: Iterable[str]) -> None:
        super().__init__("model_id", f"There is no model {model_id!r}; there is: {_list(known)}.")


class UnsupportedTask(InvalidRequest):
    """The model cannot do this generation task."""

    code = "unsupported_task"

    def __init__(
        self, model_id: str, task: str, *, can: Iterable[str], able: Iterable[str]
    ) -> None:
        able_list = list(able)
        others = (
            f"{task} is done by: {_list(able_list)}" if able_list else f"no model does {task} yet"
        )
        super().__init__("task", f"{model_id} does not do {task}, only {_list(can)}; {others}.")


class CheckpointError(EngineError):
    """The weights at `path` are missing, incomplete or of another kind."""

    code = "checkpoint_error"

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class HubError(EngineError):
    """A checkpoint could not be fetched from the hub; what has come so far is kept."""

    code = "hub_error"


class NonFiniteOutput(EngineError):
    """The model computed NaN or infinity, so there is no picture to deliver."""

    code = "non_finite_output"

    def __init__(self, path: Path, *, stage: str, dtype: str) -> None:
        super().__init__(
            f"{path}: the {stage} stage computed NaN or infinity in {dtype}. The weights are"
            " damaged, or this precision is too small for them: check the files, or set"
            " ADLOOM_DTYPE=float32."
        )
        self.path = path


class OutOfMemory(EngineError):
    """The device's memory did not suffice."""

    code = "out_of_memory"
    is_retryable = True

    def __init__(self, device: str, detail: str) -> None:
        super().__init__(
            f"{device} ran out of memory ({detail}). Choose a smaller size or fewer frames,"
            " or free memory on this machine and try again."
        )


class GenerationCancelled(EngineError):
    """Somebody asked to stop this request."""

    code = "cancelled"

    def __init__(self, request_id: str, step: int) -> None:
        super().__init__(f"Request {request_id} was cancelled after step {step}.")
        self.step = step


class GenerationSuspended(EngineError):
    """The run was stopped between two steps; what it left open can be continued."""

    code = "suspended"
    is_retryable = True

    def __init__(self) -> None:
        super().__init__("The run was stopped between two steps, to go on later.")


class MediaError(EngineError):
    """A picture or video at `path` could not be read or written."""

    code = "media_error"

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class DiskFull(MediaError):
    """There was no space left for a file; nothing half-written remains."""

    code = "disk_full"
    is_retryable = True

    def __init__(self, path: Path) -> None:
        super().__init__(path, f"no space left in {path.parent}. Free some space and try again.")


def _list(words: Iterable[str]) -> str:
    return ", ".join(str(word) for word in words) or "none"
