"""The engine's vocabulary: requests, results, and what stands in them; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from engine.errors import EngineError, InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Changes when pixels of any profile may change; part of every key that promises equal output.
ENGINE_VERSION = "1"


class GenerationTask(StrEnum):
    T2I = "t2i"
    I2I = "i2i"
    T2V = "t2v"
    I2V = "i2v"
    R2V = "r2v"

    @property
    def is_image(self) -> bool:
        """True when the output is a still picture, rendered as one frame."""
        return self in (GenerationTask.T2I, GenerationTask.I2I)


class QualityProfile(StrEnum):
    EXACT = "exact"  # bit-equal to plain diffusers
    FAITHFUL = "faithful"  # close to the variant's own exact render
    CONSISTENT = "consistent"  # shares the control's trajectory up to the fork
    FAST = "fast"
    DRAFT = "draft"


class StemConditioning(StrEnum):
    """Candidates for what variants are conditioned on where they still share their steps."""

    WORDS_REMOVED = "words_removed"  # the prompt without the words that differ
    MEAN_EMBEDDING = "mean_embedding"  # the mean of the variants' embeddings
    CONTROL = "control"  # the first variant's prompt


class StepCacheMethod(StrEnum):
    FIRST_BLOCK = "first_block"  # skip a forward while its first block's output hardly changes
    MAG = "mag"  # skip by the model's measured change from step to step
    EXTRAPOLATION = "extrapolation"  # draw a line through the last two predictions


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCachePolicy:
    """What one run may skip between its steps: approximate, so never in `exact`.

    Without a method and without held guidance it skips nothing, whatever a profile may.

    `method` is a step cache of diffusers with its own `threshold`; MagCache also needs
    `mag_ratios`, measured on the model, and skips at most `max_skip_steps` in a row.
    Extrapolation computes the first `full_steps` (a fraction of the run), then one step of
    `interval`, and the last one. From the
    fraction `hold_guidance_from` of the steps on, the difference between the conditional and
    the unconditional prediction is held, and only the conditional one is computed.
    """

    method: StepCacheMethod | None = None
    threshold: float = 0.05
    max_skip_steps: int = 3
    mag_ratios: tuple[float, ...] = ()
    interval: int = 3
    full_steps: float = 0.2
    hold_guidance_from: float | None = None

    @property
    def skips_steps(self) -> bool:
        return self.method is not None or self.hold_guidance_from is not None

    def __post_init__(self) -> None:
        if self.method is StepCacheMethod.MAG and not self.mag_ratios:
            raise InvalidRequest("mag_ratios", "MagCache needs the model's measured mag_ratios.")
        if self.interval < 1 or not 0 <= self.full_steps <= 1:
            raise InvalidRequest(
                "interval", "A step cache has an interval of 1 or more and full_steps of 0 to 1."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSlot:
    """Where a parameter's value stands in a prompt.

    `kind` is the parameter's kind ("geography", "audience", "backdrop", "text", "choice",
    "asset"); `span` is (start, end) in characters, so `prompt[start:end] == value`. From
    `fork_step` on the denoising is conditioned on the value; None leaves that to the planner.
    """

    name: str
    kind: str
    value: str
    span: tuple[int, int]
    fork_step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        data = {"name": self.name, "kind": self.kind, "value": self.value, "span": list(self.span)}
        return data if self.fork_step is None else data | {"fork_step": self.fork_step}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PromptSlot:
        """Read what `to_dict` wrote."""
        start, end = data["span"]
        return cls(
            name=data["name"],
            kind=data["kind"],
            value=data["value"],
            span=(start, end),
            fork_step=data.get("fork_step"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderSettings:
    """What a batch fixes for all its variants; width and height in pixels, fps per second.

    With a `draft_step` they are those of a draft: the same run, stopped after this step of
    `num_inference_steps`. It shows what the model predicts there, and can be gone on from.
    """

    model_id: str
    task: GenerationTask
    width: int
    height: int
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float
    profile: QualityProfile = QualityProfile.EXACT
    draft_step: int | None = None

    @property
    def last_step(self) -> int:
        """The step after which the run ends."""
        return self.num_inference_steps if self.draft_step is None else self.draft_step

    @property
    def finished(self) -> RenderSettings:
        """Those of the render that a draft can be gone on to; of other renders their own."""
        return self if self.draft_step is None else replace(self, draft_step=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; keys of finished renders know nothing of drafts."""
        data = asdict(self)
        if self.draft_step is None:
            del data["draft_step"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RenderSettings:
        """Read what `to_dict` wrote; InvalidRequest names a missing or unreadable field."""
        names = {item.name for item in fields(cls)}
        if unknown := sorted(set(data) - names):
            raise InvalidRequest(unknown[0], f"There is no render setting {unknown[0]!r}.")
        if missing := sorted(names - set(data) - {"profile", "draft_step"}):
            raise InvalidRequest(missing[0], f"The render setting {missing[0]!r} is missing.")
        known = dict(data)
        enums: dict[str, type[StrEnum]] = {"task": GenerationTask, "profile": QualityProfile}
        for name, kind in enums.items():
            if name not in known:
                continue
            try:
                known[name] = kind(known[name])
            except ValueError:
                choices = ", ".join(kind)
                raise InvalidRequest(
                    name, f"{name} is {known[name]!r}; choose one of {choices}."
                ) from None
        return cls(**known)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lora:
    """A LoRA file (safetensors) and how strongly it is applied; 1.0 is as it was trained."""

    path: Path
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One picture or clip to render. `references` are image files, in the order the task reads.

    What a model reads besides them stands in its `TaskInputs`: a clip's `last_frame`, a `mask`
    whose white parts are painted anew, and for pictures from pictures the `strength` of the
    change (0 to 1). All `num_inference_steps` are run at any strength; it says where in a longer
    schedule they begin.
    """

    request_id: str
    prompt: str
    seed: int
    settings: RenderSettings
    negative_prompt: str = ""
    slots: tuple[PromptSlot, ...] = ()
    references: tuple[Path, ...] = ()
    last_frame: Path | None = None
    mask: Path | None = None
    strength: float | None = None
    loras: tuple[Lora, ...] = ()

    def slot_values(self) -> dict[str, str]:
        """Values by slot name; a name that stands twice (once in capitals, say) has both."""
        values: dict[str, str] = {}
        for slot in self.slots:
            known = values.get(slot.name)
            values[slot.name] = slot.value if known is None else f"{known}\x1f{slot.value}"
        return values


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSeconds:
    """Wall-clock seconds of one generation by stage."""

    text: float = 0.0
    denoise: float = 0.0
    decode: float = 0.0

    @property
    def total(self) -> float:
        return self.text + self.denoise + self.decode


@dataclass(frozen=True, kw_only=True, slots=True)
class Audio:
    """Sound: `samples` float32 of -1 to 1, shape (N, channels), `rate` of them a second."""

    samples: NDArray[np.float32]
    rate: int


class SavedState(Protocol):
    """Where a later run can go on from: `engine.suspending.StateFile`."""

    @property
    def last_step(self) -> int: ...

    def save(self, path: Path) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationResult:
    """A finished render: `frames` is uint8 RGB of shape (F, H, W, 3), `audio` where there is any.

    `forwards_computed` and `seconds` are what this render took: its own part and its share of
    what was computed for several renders at once. `work_units` prices the forwards and the decode
    as `engine.plan` does, however the worker batched; `guard_units` of them went into checks by
    exact renders. A draft comes with its `state`, unless its step cache keeps it to itself.
    """

    request_id: str
    frames: NDArray[np.uint8]
    fps: int
    seconds: StageSeconds
    forwards_computed: float
    audio: Audio | None = None
    work_units: float = 0.0
    guard_units: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    state: SavedState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationFailure:
    """A request that gave no picture; the other requests go on."""

    request_id: str
    code: str
    message: str
    is_retryable: bool

    @classmethod
    def from_error(cls, request_id: str, error: EngineError) -> GenerationFailure:
        return cls(
            request_id=request_id,
            code=error.code,
            message=str(error),
            is_retryable=error.is_retryable,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """`step` of `num_steps` denoising steps are done."""

    request_id: str
    step: int
    num_steps: int
