"""Adloom's rendering engine: requests in, frames out. Importing the package loads no torch.

errors       what can go wrong                 types       requests, results, progress
config       what the environment sets         checkpoint  is a weights folder whole, and which
registry     the models and what they can do   costs       operations of a forward, a decode
units        what rendering costs              tree        edges that variants share, groups
forks        where parameters part             stems       what shared edges are conditioned on
families     requests from a prompt with gaps  profiles    what each profile promises
calibration  what was measured, its file       calibrating measuring it with probe renders
guarded      which variants are checked        guard       checks them, narrows what failed
distances    how far renders are apart
hub          files of the public hub           published   which of them a model needs
pulling      fetching and removing weights     snapshots   what was fetched, and is it whole
memory       how a model fits into a machine   loading     the models that are in memory
plan         groups, sharing, prices           watching    progress, cancels, failures of a run
media        videos, posters, contact sheets   caching     values kept, forwards spared
segments     slices of a run, stored, resumed  pipelines   one file per model family
branches     edges being run, their accounts   edge_runner edges as rows of one batch
tree_runner  a family's tree, depth first
engine       `Engine.generate(requests)`       __main__    the engine on the command line
advice       what libraries need not say
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.advice import withhold_torchvision_advice

if TYPE_CHECKING:
    from engine.engine import Engine

__all__ = ["Engine"]

withhold_torchvision_advice()


def __getattr__(name: str) -> Any:
    if name == "Engine":
        # Local import: it brings torch in, which the web and control processes never load.
        from engine.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
