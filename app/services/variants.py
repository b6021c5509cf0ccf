"""What a variant is made of: prompt, slots, seed, settings and the key of its pixels; pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from app.errors import InvalidInput
from app.models import ParameterKind
from app.services import expansion
from app.services.expansion import Combination, SourceRow
from app.services.prompts import RenderedPrompt, parse_prompt
from app.services.specs import BatchSpec
from engine import registry
from engine.types import ENGINE_VERSION, GenerationRequest, PromptSlot, RenderSettings

# One encoder for all: building one takes longer than a short text.
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))

# The rows of an upload from a number on, counted from 0.
ReadRows = Callable[[int], Iterable[SourceRow]]

# A preview shows composition, not finish.
PREVIEW_STEPS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantDraft:
    """One variant before it is a row; `values` are by parameter name."""

    ordinal: int
    values: dict[str, str]
    passthrough: dict[str, str]
    row_id: str | None
    prompt: str
    negative_prompt: str
    slots: tuple[PromptSlot, ...]
    seed: int
    settings: RenderSettings
    variant_key: str

    def to_request(self) -> GenerationRequest:
        """What the planner reads; the ordinal is the request's id."""
        return GenerationRequest(
            request_id=str(self.ordinal),
            prompt=self.prompt,
            negative_prompt=self.negative_prompt,
            slots=self.slots,
            seed=self.seed,
            settings=self.settings,
        )


class VariantFactory:
    """Makes the variants of one batch from its combinations."""

    def __init__(self, spec: BatchSpec, *, text: str, negative_text: str, weights: str) -> None:
        """`weights` is the fingerprint of the model's checkpoint."""
        self._spec = spec
        self._prompt = parse_prompt(text)
        self._negative_prompt = parse_prompt(negative_text) if negative_text.strip() else None
        self._weights = weights
        self._settings = spec.settings.to_render_settings()
        self._kinds = {item.name: item.kind for item in spec.parameters}
        # An enum's value is looked up slowly, and every slot of every variant needs one.
        self._kind_words = {name: kind.value for name, kind in self._kinds.items()}
        self._shaping = [
            item.name
            for item in spec.parameters
            if item.kind in (ParameterKind.SIZE, ParameterKind.DURATION)
        ]
        self._settings_by_shape: dict[tuple[str, ...], RenderSettings] = {}

    def draft(self, combination: Combination, *, ordinal: int, take: int) -> VariantDraft:
        """The variant with this ordinal; InvalidInput names it when its values do not fit."""
        try:
            return self._draft(combination, ordinal=ordinal, take=take)
        except InvalidInput as error:
            row = f" (row {combination.row_id})" if combination.row_id else ""
            raise InvalidInput(
                f"Variant {ordinal + 1}{row}: {error.message}", field=error.field
            ) from error

    def _draft(self, combination: Combination, *, ordinal: int, take: int) -> VariantDraft:
        values = dict(combination.values)
        rendered = self._prompt.render(values)
        negative = self._negative_prompt
        negative_prompt = negative.render(values).text if negative else ""
        settings = self._settings_for(values)
        seed = self._seed(combination, take)
        # What is rendered again goes by the row that it came from.
        row = self._spec.origin or combination
        return VariantDraft(
            ordinal=ordinal,
            values=values,
            passthrough=dict(row.passthrough),
            row_id=row.row_id,
            prompt=rendered.text,
            negative_prompt=negative_prompt,
            slots=self._slots(rendered),
            seed=seed,
            settings=settings,
            variant_key=variant_key(
                prompt=rendered.text,
                negative_prompt=negative_prompt,
                seed=seed,
                settings=settings,
                weights=self._weights,
            ),
        )

    def _slots(self, rendered: RenderedPrompt) -> tuple[PromptSlot, ...]:
        return tuple(
            PromptSlot(name=name, kind=self._kind_words[name], value=value, span=(start, end))
            for name, value, start, end in rendered.spans
        )

    def _seed(self, combination: Combination, take: int) -> int:
        column = self._spec.seed_column
        written = combination.passthrough.get(column, "").strip() if column else ""
        if not written:
            return self._spec.seed + take
        if not written.isdecimal() or int(written) + take > registry.MAX_SEED:
            raise InvalidInput(
                f"The seed {written!r} is not a whole number from 0 to {registry.MAX_SEED}.",
                field=column,
            )
        return int(written) + take

    def _settings_for(self, values: Mapping[str, str]) -> RenderSettings:
        if not self._shaping:
            return self._settings
        shape = tuple(values[name] for name in self._shaping)
        if shape not in self._settings_by_shape:
            settings = self._settings
            for name, value in zip(self._shaping, shape, strict=True):
                settings = _reshape(settings, name=name, kind=self._kinds[name], value=value)
            self._settings_by_shape[shape] = settings
        return self._settings_by_shape[shape]


def variant_count(spec: BatchSpec) -> int:
    """How many variants the batch has; InvalidInput says which values do not fit together."""
    return spec.takes * _combination_count(spec)


def row_of(spec: BatchSpec, ordinal: int) -> int:
    """The row of the upload, counted from 0, that the variant is made from."""
    combination = spec.first_combination + ordinal % _combination_count(spec)
    return expansion.row_of(spec.mode, spec.typed_values, combination)


def iterate_drafts(
    spec: BatchSpec,
    factory: VariantFactory,
    *,
    read_rows: ReadRows | None = None,
    start: int = 0,
) -> Iterator[VariantDraft]:
    """All variants of a batch from an ordinal on; the takes are the outermost axis.

    `read_rows` reads the upload's rows from a number on, 0 for all; None for typed values.
    """
    count = _combination_count(spec)
    first_take, first = divmod(start, count)
    for take in range(first_take, spec.takes):
        begin = first if take == first_take else 0
        start = spec.first_combination + begin
        first_row = expansion.row_of(spec.mode, spec.typed_values, start)
        combinations = expansion.expand(
            spec.mode,
            spec.typed_values,
            rows=read_rows(first_row) if read_rows else None,
            row_count=spec.row_count,
            sample_size=spec.sample_size,
            sample_seed=spec.sample_seed,
            start=start,
            first_row=first_row,
        )
        for combination in islice(combinations, count - begin):
            ordinal = take * count + combination.ordinal - spec.first_combination
            yield factory.draft(combination, ordinal=ordinal, take=take)


def _combination_count(spec: BatchSpec) -> int:
    total = expansion.count(
        spec.mode,
        spec.typed_values,
        row_count=spec.row_count,
        sample_size=spec.sample_size,
    )
    left = max(0, total - spec.first_combination)
    return left if spec.combination_limit is None else min(left, spec.combination_limit)


def variant_key(
    *, prompt: str, negative_prompt: str, seed: int, settings: RenderSettings, weights: str
) -> str:
    """SHA-256 over everything that decides the pixels of a variant: equal keys, equal promise."""
    text = _ENCODER.encode([prompt, negative_prompt, seed])
    return hashlib.sha256(f"{_shared_part(settings, weights)}{text}".encode()).hexdigest()


@lru_cache(maxsize=64)
def _shared_part(settings: RenderSettings, weights: str) -> str:
    """What the keys of a whole batch have in common."""
    return _ENCODER.encode([ENGINE_VERSION, weights, settings.to_dict()])


def preview_settings(settings: RenderSettings) -> RenderSettings:
    """The same render with few steps."""
    steps = min(settings.num_inference_steps, PREVIEW_STEPS)
    return replace(settings.finished, num_inference_steps=steps)


def preview_key(key: str, settings: RenderSettings) -> str:
    """The key of a preview: never that of the final render, unless both are the same."""
    if preview_settings(settings) == settings:
        return key
    return hashlib.sha256(f"preview:{PREVIEW_STEPS}:{key}".encode()).hexdigest()


def _reshape(
    settings: RenderSettings, *, name: str, kind: ParameterKind, value: str
) -> RenderSettings:
    model = registry.get_model(settings.model_id)
    if kind is ParameterKind.SIZE:
        size = model.find_size(value.strip())
        if size is None:
            offered = ", ".join(f"{item.label} ({item})" for item in model.sizes)
            raise InvalidInput(
                f"{name}: {value!r} is no size of {model.label}; choose {offered}.", field=name
            )
        return replace(settings, width=size.width, height=size.height)
    return replace(settings, num_frames=_frames(settings, name=name, value=value))


def _frames(settings: RenderSettings, *, name: str, value: str) -> int:
    """The allowed number of frames nearest to a length in seconds ("1.4" or "1.4 s")."""
    model = registry.get_model(settings.model_id)
    if settings.task.is_image:
        return 1
    stride = model.frame_stride
    shortest, longest = model.min_frames / settings.fps, model.max_frames / settings.fps
    number = value.strip().removesuffix("s").rstrip()
    try:
        seconds = float(number)
    except ValueError:
        seconds = math.nan
    # Half a frame of room: lengths are shown rounded, and what is shown must be accepted.
    room = 0.5 / settings.fps
    if not shortest - room <= seconds <= longest + room:
        raise InvalidInput(
            f"{name}: {value!r} is no length that {model.label} can render; choose "
            f"{shortest:.2f} to {longest:.2f} seconds.",
            field=name,
        )
    blocks = round((seconds * settings.fps - 1) / stride)
    frames = blocks * stride + 1
    return min(max(frames, model.min_frames), model.max_frames)
