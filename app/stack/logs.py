"""Log files of the supervised processes: following them and keeping them small."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_LOG_BYTES = 20_000_000


@dataclass
class LogTail:
    """Reads the lines that were added to a file since the last look."""

    path: Path
    offset: int = 0
    _rest: bytes = b""

    @classmethod
    def at_end(cls, path: Path) -> LogTail:
        return cls(path, path.stat().st_size if path.exists() else 0)

    def new_lines(self) -> list[str]:
        """Whole lines only; an unfinished one waits for its end."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as handle:
            handle.seek(self.offset)
            added = handle.read()
        self.offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def rotate(path: Path) -> None:
    """Put a log that has grown large aside; one older file is kept."""
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, for an error message."""
    if not path.exists():
        return []
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - 16_384))
        return handle.read().decode(errors="replace").splitlines()[-count:]
