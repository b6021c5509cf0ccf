"""A family of requests from one prompt with named gaps, for the command line; no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from engine.errors import InvalidRequest
from engine.types import GenerationRequest, PromptSlot, RenderSettings

_GAP = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterValues:
    """A parameter's kind and the values that stand in its gap."""

    kind: str
    values: tuple[str, ...]


def read_values(texts: Sequence[str]) -> dict[str, ParameterValues]:
    """Read "name=one|two" or "name:kind=one|two"; the name is the kind where there is none."""
    found: dict[str, ParameterValues] = {}
    for text in texts:
        head, equals, tail = text.partition("=")
        name, _, kind = head.strip().partition(":")
        values = tuple(dict.fromkeys(each.strip() for each in tail.split("|") if each.strip()))
        if not equals or not name or not values:
            raise InvalidRequest("values", f'{text!r} is not like "backdrop=a beach|a forest".')
        found[name] = ParameterValues(kind=kind or name, values=values)
    return found


def read_seeds(text: str) -> tuple[int, ...]:
    """Read "1,2,3"."""
    seeds = [each.strip() for each in text.split(",") if each.strip()]
    if not seeds or not all(each.isdecimal() for each in seeds):
        raise InvalidRequest("seeds", f'{text!r} is not like "1,2,3".')
    return tuple(dict.fromkeys(int(each) for each in seeds))


def make_family(
    template: str,
    parameters: Mapping[str, ParameterValues],
    *,
    settings: RenderSettings,
    seed: int = 0,
) -> list[GenerationRequest]:
    """All combinations of the values in the gaps ("{name}") of the template, in their order."""
    gaps = list(dict.fromkeys(_GAP.findall(template)))
    if lacking := [name for name in gaps if name not in parameters]:
        raise InvalidRequest("values", f"The prompt asks for {lacking[0]!r}, which has no values.")
    if unused := [name for name in parameters if name not in gaps]:
        raise InvalidRequest("values", f"The prompt has no gap {{{unused[0]}}}.")
    return [
        _fill(template, dict(zip(gaps, values, strict=True)), parameters, settings, seed)
        for values in product(*(parameters[name].values for name in gaps))
    ]


def _fill(
    template: str,
    values: Mapping[str, str],
    parameters: Mapping[str, ParameterValues],
    settings: RenderSettings,
    seed: int,
) -> GenerationRequest:
    prompt = ""
    position = 0
    slots: list[PromptSlot] = []
    for gap in _GAP.finditer(template):
        name = gap[1]
        prompt += template[position : gap.start()]
        span = (len(prompt), len(prompt) + len(values[name]))
        slots.append(
            PromptSlot(name=name, kind=parameters[name].kind, value=values[name], span=span)
        )
        prompt += values[name]
        position = gap.end()
    return GenerationRequest(
        request_id="/".join(values.values()),
        prompt=prompt + template[position:],
        seed=seed,
        settings=settings,
        slots=tuple(slots),
    )
