"""What is measured how often: the whole comparison in some twenty minutes of a quiet core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bench.campaign.families import BASES, PARAMETERS, SEEDS, Family
from bench.campaign.plain import BATCH, GUARD_INCLUDED, Side

# A plain loop takes as long for each variant; three of them tell.
LOOP_VARIANTS = 3
LOOPS = ("plain loop", "Adloom exact")
# Only these are measured at other sizes than the main one.
CURVE = ("Adloom faithful", "Adloom consistent")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Families for speed, for the sweep of the peers' settings, and for quality."""

    main: Family
    others: Sequence[Family]
    sweep: Family
    quality: Sequence[Family]
    max_settings: int
    max_peers: int

    def speed(self, side: Side, *, runs: int) -> Iterator[tuple[Family, int]]:
        """Families that a side is timed with, and how often: the main one several times."""
        yield self.main, 1 if side.name.endswith(GUARD_INCLUDED) else runs
        if side.name in CURVE:
            yield from ((family, 1) for family in self.others)

    def timed(self, side: Side, family: Family) -> Family:
        """As many variants of it as tell what each one takes.

        Where variants share nothing, or nothing but a batch, more of them tell no more.
        """
        if side.name in LOOPS:
            return Family(varying="geography", size=LOOP_VARIANTS)
        if side.name.startswith("Adloom"):
            return family
        return Family(varying="three", size=min(BATCH, family.size))

    def quality_of(self, side: Side) -> list[Family]:
        """Adloom's profiles are judged on all families; peers on one of each kind."""
        if side.name == "plain loop" or side.name.endswith(GUARD_INCLUDED):
            return []
        if side.name == "Adloom exact":
            return [*self.quality[:1]]
        if side.name.startswith("Adloom"):
            return [*self.quality]
        kinds: dict[str, Family] = {}
        for family in self.quality:
            if family.place == family.seed_place:
                kinds.setdefault(family.varying, family)
        return [*kinds.values()]

    def swept(self, sides: Sequence[Side]) -> list[Side]:
        """The mildest settings of each peer, as many as are tried."""
        seen: Counter[str] = Counter()
        chosen = []
        for side in sides:
            seen[side.peer] += 1
            if seen[side.peer] <= self.max_settings:
                chosen.append(side)
        return chosen

    def words(self, runs: int) -> str:
        """How often what was timed, for the report."""
        others = (
            ""
            if not self.others
            else (f"; other sizes ({', '.join(family.key for family in self.others)}) once")
        )
        return (
            f"{self.main.key} is the median of {runs} run(s), with the guard once{others}; loops"
            f" are timed with {LOOP_VARIANTS} variants, ways that share nothing but a batch with"
            f" {min(BATCH, self.main.size)}"
        )

    def quality_words(self) -> str:
        """What quality rests on, for the report."""
        prompts = len({family.place for family in self.quality})
        seeds = len({family.seed_place for family in self.quality})
        return (
            f"{sum(family.size for family in self.quality)} variants of {prompts} prompt(s) and"
            f" {seeds} seed(s), for peers one family of each kind; each against its own exact"
            " render; right: the judge reads the asked values (in exact renders)"
        )


def full_schedule() -> Schedule:
    """One parameter varying with each prompt and seed, and three at once with three of them."""
    pairs = list(product(range(len(BASES)), range(len(SEEDS))))
    single = [
        Family(
            varying=PARAMETERS[(place + seed) % len(PARAMETERS)],
            size=4,
            place=place,
            seed_place=seed,
        )
        for place, seed in pairs
    ]
    three = [Family(varying="three", size=4, place=at, seed_place=at) for at in range(len(BASES))]
    return Schedule(
        main=Family(varying="three", size=24),
        others=[
            *(Family(varying="three", size=size) for size in (1, 4, 64)),
            Family(varying="geography", size=24),
        ],
        sweep=three[1],
        quality=[*single, *three],
        max_settings=6,
        max_peers=16,
    )


def quick_schedule() -> Schedule:
    """Enough to see that everything runs; too little to publish."""
    quality = [Family(varying=PARAMETERS[0], size=4)]
    return Schedule(
        main=Family(varying="three", size=4),
        others=[Family(varying="three", size=1)],
        sweep=quality[0],
        quality=quality,
        max_settings=1,
        max_peers=1,
    )
