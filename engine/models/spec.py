"""What a row of the registry says of a model: its tasks, sizes, inputs, cost and licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from engine.costs import CostModel, JointCostModel
from engine.types import GenerationTask


class Guidance(StrEnum):
    """How a model follows `guidance_scale`."""

    CLASSIFIER_FREE = "classifier_free"  # a second forward, without or with a negative prompt
    EMBEDDED = "embedded"  # the model reads the scale; it was distilled to need one forward
    NONE = "none"  # distilled to need no guidance at all


@dataclass(frozen=True, kw_only=True)
class Size:
    """An output size in pixels that a model was trained for, with its aspect as label."""

    width: int
    height: int
    label: str

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, kw_only=True)
class SizeRule:
    """Sizes beside the listed ones: sides that are multiples of `multiple`, within limits."""

    multiple: int
    min_side: int
    max_side: int
    max_pixels: int

    def holds_for(self, width: int, height: int) -> bool:
        return (
            all(
                side % self.multiple == 0 and self.min_side <= side <= self.max_side
                for side in (width, height)
            )
            and width * height <= self.max_pixels
        )

    def __str__(self) -> str:
        return (
            f"any multiples of {self.multiple} from {self.min_side} to {self.max_side}"
            f" with {self.max_pixels:,} pixels at most"
        )


@dataclass(frozen=True, kw_only=True)
class TaskInputs:
    """What a task reads besides the prompt; the strength is used where a request has none."""

    min_references: int = 0
    max_references: int = 0
    takes_last_frame: bool = False
    needs_mask: bool = False
    default_strength: float | None = None
    takes_batches: bool = True


NO_INPUTS = TaskInputs()
ONE_REFERENCE = TaskInputs(min_references=1, max_references=1)
DEFAULT_INPUTS: Mapping[GenerationTask, TaskInputs] = MappingProxyType(
    {
        GenerationTask.T2I: NO_INPUTS,
        GenerationTask.T2V: NO_INPUTS,
        GenerationTask.I2I: ONE_REFERENCE,
        GenerationTask.I2V: ONE_REFERENCE,
        GenerationTask.R2V: ONE_REFERENCE,
    }
)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What a diffusion model can do and needs.

    `weights` is the checkpoint's folder below `EngineConfig.model_dir`; `hub_id` and `licence_url`
    say where it comes from and on which terms; `borrowed_parts` name the repositories of parts that
    the published checkpoint leaves out. `runner` is our class that drives the family;
    `pipelines` names the diffusers class per task, both "module:Class". The first size is the
    default one. Frames are 4k+1 where `frame_stride` is 4.

    `tokenizer` is the folder of the tokenizer that decides how long a prompt may be, of whose
    `max_sequence_length` tokens the pipeline itself takes `reserved_tokens`. `extra_forwards` come
    on top in every step. A model that `reads_fps` renders other pixels at another frame rate.
    `can_skip_steps` says that its forwards can be extrapolated between steps.
    `low_noise_guidance` is the part of the guidance that the second of two experts gets.
    `vocabulary` lists what a model with few words knows: words by value by attribute, the first
    of them to be shown to people; it is empty for one that takes any words.
    """

    model_id: str
    label: str
    weights: str
    runner: str
    pipelines: Mapping[GenerationTask, str]
    sizes: tuple[Size, ...]
    frame_stride: int
    min_frames: int
    default_frames: int
    max_frames: int
    fps: int
    default_steps: int
    default_guidance: float
    max_sequence_length: int
    cost: CostModel | JointCostModel
    licence: str
    hub_id: str | None = None
    borrowed_parts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    licence_url: str | None = None
    is_commercial: bool = True
    size_rule: SizeRule | None = None
    inputs: Mapping[GenerationTask, TaskInputs] = field(
        default_factory=lambda: MappingProxyType({})
    )
    guidance: Guidance = Guidance.CLASSIFIER_FREE
    low_noise_guidance: float = 1.0
    extra_forwards: int = 0
    tokenizer: str = "tokenizer"
    reserved_tokens: int = 0
    reads_fps: bool = False
    has_audio: bool = False
    can_skip_steps: bool = True
    vocabulary: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @property
    def tasks(self) -> tuple[GenerationTask, ...]:
        return tuple(self.pipelines)

    @property
    def pipeline_classes(self) -> frozenset[str]:
        """Class names that a checkpoint of this model may carry in its model_index.json."""
        return frozenset(name.partition(":")[2] for name in self.pipelines.values())

    @property
    def max_prompt_tokens(self) -> int:
        """Tokens that are left for a prompt."""
        return self.max_sequence_length - self.reserved_tokens

    def inputs_of(self, task: GenerationTask) -> TaskInputs:
        """What a task reads besides the prompt."""
        return self.inputs.get(task, DEFAULT_INPUTS[task])

    def find_size(self, name: str) -> Size | None:
        """The size with this label ("16:9") or these pixels ("224x128")."""
        listed = next((size for size in self.sizes if name in (size.label, str(size))), None)
        if listed is not None or self.size_rule is None:
            return listed
        width, _, height = name.partition("x")
        if not (width.isdecimal() and height.isdecimal()):
            return None
        if not self.size_rule.holds_for(int(width), int(height)):
            return None
        return Size(width=int(width), height=int(height), label=name)

    def describe_sizes(self) -> str:
        """The sizes in words: "224x128 (16:9), ...", and the rule for others."""
        listed = ", ".join(f"{size} ({size.label})" for size in self.sizes)
        return listed if self.size_rule is None else f"{listed}, or {self.size_rule}"
