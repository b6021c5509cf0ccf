"""What a run leaves open when it is stopped between two steps, as a file, and how it goes on.

An open edge is found again by its key, which holds all that decides its pixels: family, way through
the tree, step cache. What decides them for a whole process (weights, versions, device) are the
facts of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.errors import InvalidRequest
from engine.states import LatentState

STATE_VERSION = 1
_HEADER = "adloom_state"

Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class OpenEdge:
    """An edge that was run up to `state.step`, its end or not, and what it took so far.

    There is no state where the edges that follow have what they need.
    """

    state: LatentState | None
    batch_size: int = 1
    text_seconds: float = 0.0
    denoise_seconds: float = 0.0
    computed: float = 0.0
    saved: Mapping[str, float] = field(default_factory=dict)

    def part(self, share: float) -> OpenEdge:
        """The edge with this part of what it took: the rest is paid by renders that have ended."""
        return replace(
            self,
            text_seconds=self.text_seconds * share,
            denoise_seconds=self.denoise_seconds * share,
            computed=self.computed * share,
            saved={kind: count * share for kind, count in self.saved.items()},
        )


@dataclass(frozen=True, kw_only=True)
class StateFile:
    """Open edges by key, with the facts of the process that ran them; one safetensors file."""

    facts: Facts
    edges: Mapping[str, OpenEdge]

    @property
    def last_step(self) -> int:
        """The furthest step that one of its edges reached."""
        return max((edge.state.step for edge in self.edges.values() if edge.state), default=0)

    def save(self, path: Path) -> None:
        """Write the file; what is not a tensor stands in its header."""
        tensors: dict[str, torch.Tensor] = {}
        edges: dict[str, Any] = {}
        for key, edge in self.edges.items():
            state = edge.state and edge.state.to_document(f"{key}.", tensors)
            edges[key] = asdict(replace(edge, state=None)) | {"state": state}
        document = {"version": STATE_VERSION, "facts": dict(self.facts), "edges": edges}
        # Tensors that share memory are refused, and the history may hold one twice.
        own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        save_file(own, path, metadata={_HEADER: json.dumps(document)})

    @classmethod
    def load(cls, path: Path) -> StateFile:
        """Read a saved file; InvalidRequest when it is not whole or of another format."""
        try:
            with safe_open(path, framework="pt") as file:
                document = json.loads((file.metadata() or {})[_HEADER])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise InvalidRequest(
                "state", f"{path} holds no whole denoising state ({type(error).__name__}: {error})."
            ) from None
        if document["version"] != STATE_VERSION:
            raise InvalidRequest(
                "state",
                f"{path} was written in format {document['version']}, not {STATE_VERSION}.",
            )
        edges = {}
        for key, item in document["edges"].items():
            stored = item["state"]
            state = stored and LatentState.from_document(stored, f"{key}.", tensors)
            edges[key] = OpenEdge(**(item | {"state": state}))
        return cls(facts=document["facts"], edges=edges)

    def misfit(self, facts: Facts) -> str | None:
        """Why it cannot be continued where these facts hold; None where it can."""
        for name in sorted(facts.keys() | self.facts.keys()):
            here, there = facts.get(name), self.facts.get(name)
            if here != there:
                return f"{name} was {there}, and is {here}"
        return None


class Run(Protocol):
    """What can tell at any time what it would leave open."""

    def open_edges(self) -> Mapping[str, OpenEdge]: ...


class Suspension:
    """Stops one run of the engine between two steps, and lets it begin where another stopped.

    Give it to `Engine.generate`; where that yields failures with code `suspended`, `left_open`
    holds what the next run can go on from.
    """

    def __init__(
        self,
        should_suspend: Callable[[], bool] = lambda: False,
        *,
        resumed: Sequence[StateFile] = (),
    ) -> None:
        """`should_suspend` is asked between steps; `resumed` are files that earlier runs left."""
        self._should_suspend = should_suspend
        self._resumed = resumed
        self._is_asked = False
        self._fitting: dict[str, OpenEdge] = {}
        self._misfits: list[str] = []
        self._facts: Facts = {}
        self._runs: list[Run] = []
        self.left_open: StateFile | None = None

    @property
    def is_asked(self) -> bool:
        """Whether to stop; once asked, it stays so."""
        self._is_asked = self._is_asked or self._should_suspend()
        return self._is_asked

    @property
    def is_resuming(self) -> bool:
        return bool(self._resumed)

    @property
    def why_not(self) -> str:
        """Why a render could not go on from what was stored."""
        return "; ".join(self._misfits) or "its way through the tree is another one now"

    def begin(self, facts: Facts) -> None:
        """What is run next is run under these facts; what was run before has ended."""
        self._facts = facts
        self._runs = []
        self._fitting, self._misfits = {}, []
        for file in self._resumed:
            reason = file.misfit(facts)
            if reason is None:
                self._fitting |= file.edges
            else:
                self._misfits.append(reason)

    def find(self, key: str) -> OpenEdge | None:
        """Where an edge can go on from."""
        return self._fitting.get(key)

    def note(self, run: Run) -> None:
        """This run begins; it may be one of several of the same requests."""
        self._runs.append(run)

    def leave(self) -> None:
        """Keep what the runs leave open for the next one."""
        edges = {key: edge for run in self._runs for key, edge in run.open_edges().items()}
        self.left_open = StateFile(facts=self._facts, edges=edges) if edges else None
