"""The ways to render a family: plain diffusers, its step caches, cache-dit, and Adloom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bench.campaign.peers import Peers
from bench.campaign.plain import GUARD_INCLUDED, PlainDiffusers, Rendered, Side
from bench.campaign.stages import STAGES
from engine.config import EngineConfig
from engine.engine import Engine
from engine.types import GenerationRequest, GenerationResult, QualityProfile


class Bench:
    """The loaded models, and the sides that render with them."""

    def __init__(self) -> None:
        self.plain = PlainDiffusers()
        self._config = EngineConfig.from_environment()
        self._engines: dict[int, Engine] = {}

    def baselines(self) -> list[Side]:
        return [
            Side(name="plain loop", peer="plain loop", render=self.plain.loop),
            Side(name="plain batched", peer="plain batched", render=self.plain.batched()),
        ]

    def peers(self) -> list[Side]:
        """Each setting of each peer."""
        return [*Peers(self.plain).sides()]

    def profiles(self) -> list[Side]:
        """Adloom's profiles, without and with the guard's exact renders."""
        return [*self._adloom()]

    def _adloom(self) -> Iterator[Side]:
        for profile in QualityProfile:
            # Exact renders need no check, and previews are worth none.
            is_final = profile not in (QualityProfile.EXACT, QualityProfile.DRAFT)
            guards = (0, self._config.guard_every) if is_final else (0,)
            for every in guards:
                yield Side(
                    name=f"Adloom {profile}" + (GUARD_INCLUDED if every else ""),
                    peer=f"Adloom {profile}",
                    render=self._with_adloom(every),
                    profile=profile,
                )

    def _with_adloom(self, guard_every: int) -> Callable[[list[GenerationRequest]], Rendered]:
        def render(requests: list[GenerationRequest]) -> Rendered:
            if guard_every not in self._engines:
                # Nothing is kept from run to run: each pays for its texts and stems.
                config = replace(self._config, guard_every=guard_every)
                self._engines[guard_every] = Engine(config)
            engine = self._engines[guard_every]
            engine.cache.clear()
            outcomes = {outcome.request_id: outcome for outcome in engine.generate(requests)}
            results = [_result(outcomes[request.request_id]) for request in requests]
            return Rendered(
                clips=[result.frames for result in results],
                forwards=sum(result.forwards_computed for result in results),
                stages={
                    name: sum(getattr(result.seconds, name) for result in results)
                    for name in STAGES
                },
            )

        return render


def _result(outcome: Any) -> GenerationResult:
    if not isinstance(outcome, GenerationResult):
        raise RuntimeError(f"variant {outcome.request_id} failed: {outcome.message}")
    return outcome
