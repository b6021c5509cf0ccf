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
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError, safe_open

from engine.errors import InvalidRequest
from engine.types import GenerationRequest, Lora, RenderSettings

if TYPE_CHECKING:
    import torch

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
    """Open edges by key, with the facts of the process that ran them; one safetensors file.

    Of a request that ran alone `origin` says what it was (`origin_of`), and `edges` hold one state.
    """

    facts: Facts
    edges: Mapping[str, OpenEdge]
    origin: Mapping[str, Any] | None = None

    @property
    def last_step(self) -> int:
        """The furthest step that one of its edges reached."""
        return max((edge.state.step for edge in self.edges.values() if edge.state), default=0)

    @property
    def request(self) -> GenerationRequest | None:
        """The request whose state it is; None where several ran together."""
        if self.origin is None:
            return None
        stored = dict(self.origin)
        for name in ("last_frame", "mask"):
            stored[name] = stored[name] and Path(stored[name])
        stored["settings"] = RenderSettings.from_dict(stored["settings"])
        stored["references"] = tuple(map(Path, stored["references"]))
        stored["loras"] = tuple(
            Lora(path=Path(each["path"]), weight=each["weight"]) for each in stored["loras"]
        )
        return GenerationRequest(request_id="state", **stored)

    def save(self, path: Path) -> None:
        """Write the file; what is not a tensor stands in its header."""
        # Local import: it brings torch in, which workers load with their engine.
        from safetensors.torch import save_file

        tensors: dict[str, torch.Tensor] = {}
        edges: dict[str, Any] = {}
        for key, edge in self.edges.items():
            state = edge.state and edge.state.to_document(f"{key}.", tensors)
            edges[key] = asdict(replace(edge, state=None)) | {"state": state}
        document = {
            "version": STATE_VERSION,
            "facts": dict(self.facts),
            "origin": self.origin,
            "edges": edges,
        }
        # Tensors that share memory are refused, and the history may hold one twice.
        own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        save_file(own, path, metadata={_HEADER: json.dumps(document)})

    @classmethod
    def load(cls, path: Path) -> StateFile:
        """Read a saved file; InvalidRequest when it is not whole or of another format."""
        # Local import: see above.
        from engine.states import LatentState

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
        return cls(facts=document["facts"], edges=edges, origin=document["origin"])

    def misfit(self, facts: Facts) -> str | None:
        """Why it cannot be continued where these facts hold; None where it can."""
        for name in sorted(facts.keys() | self.facts.keys()):
            here, there = facts.get(name), self.facts.get(name)
            if here != there:
                return f"{name} was {there}, and is {here}"
        return None


def origin_of(request: GenerationRequest) -> dict[str, Any]:
    """What a state depends on, as plain values; the prompt alone may be another one from there."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(request), default=str))
    return {name: document[name] for name in document.keys() - {"request_id", "slots"}}


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
        lost: Sequence[str] = (),
    ) -> None:
        """`should_suspend` is asked between steps; `resumed` are files that earlier runs left.

        `lost` says of others why they cannot be read.
        """
        self._should_suspend = should_suspend
        self._resumed = resumed
        self._lost = lost
        self._is_asked = False
        self._fitting: dict[str, OpenEdge] = {}
        self._misfits: list[str] = []
        self._facts: Facts = {}
        self._origin: Mapping[str, Any] | None = None
        self._runs: list[Run] = []
        self.left_open: StateFile | None = None

    @property
    def is_asked(self) -> bool:
        """Whether to stop; once asked, it stays so."""
        self._is_asked = self._is_asked or self._should_suspend()
        return self._is_asked

    @property
    def is_resuming(self) -> bool:
        return bool(self._resumed or self._lost)

    @property
    def why_not(self) -> str:
        """Why a render could not go on from what was stored."""
        return (
            "; ".join((*self._lost, *self._misfits))
            or "its way through the tree is another one now"
        )

    def begin(self, facts: Facts, requests: Sequence[GenerationRequest]) -> None:
        """These are run next, under these facts; what was run before has ended."""
        self._facts = facts
        self._origin = origin_of(requests[0]) if len(requests) == 1 else None
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

    def draft_file(self, key: str, state: LatentState, request: GenerationRequest) -> StateFile:
        """The file that lets the finished render of this draft go on from its state."""
        finished = replace(request, settings=request.settings.finished)
        return StateFile(
            facts=self._facts, edges={key: OpenEdge(state=state)}, origin=origin_of(finished)
        )

    def note(self, run: Run) -> None:
        """This run begins; it may be one of several of the same requests."""
        self._runs.append(run)

    def leave(self) -> None:
        """Keep what the runs leave open for the next one."""
        edges = {key: edge for run in self._runs for key, edge in run.open_edges().items()}
        if edges:
            self.left_open = StateFile(facts=self._facts, edges=edges, origin=self._origin)


class Redirection(Suspension):
    """Lets a request go on from the state of another one, which had another prompt.

    InvalidRequest where the two differ in more than that, or where the weights or versions do.
    """

    def __init__(self, file: StateFile, request: GenerationRequest) -> None:
        super().__init__()
        self._file = file
        self._start = _only_edge(file, request)

    def begin(self, facts: Facts, requests: Sequence[GenerationRequest]) -> None:
        super().begin(facts, requests)
        reason = self._file.misfit(facts)
        if reason is not None:
            raise InvalidRequest("state", f"The state cannot be continued here: {reason}.")

    def find(self, key: str) -> OpenEdge | None:
        return self._start


def _only_edge(file: StateFile, request: GenerationRequest) -> OpenEdge:
    states = [edge for edge in file.edges.values() if edge.state is not None]
    if file.origin is None or len(states) != 1:
        raise InvalidRequest("state", "The state is that of several requests, not of one.")
    asked = origin_of(request)
    for name, value in _flat(asked).items():
        stored = _flat(file.origin).get(name)
        if name not in ("prompt", "fps") and value != stored:
            raise InvalidRequest(
                name, f"The state was made with {name} {stored!r}, and {value!r} is asked for."
            )
    (edge,) = states
    if asked["prompt"] == file.origin["prompt"] or edge.state is None:
        return edge
    # What a step cache remembers of the other prompt would lead the first steps astray.
    return replace(edge, state=replace(edge.state, memory={}))


def _flat(origin: Mapping[str, Any]) -> dict[str, Any]:
    return {**origin["settings"], **{k: v for k, v in origin.items() if k != "settings"}}
