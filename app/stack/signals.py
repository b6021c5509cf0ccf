"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second for an immediate one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequests:
    """Counts the signals that ask this process to end."""

    def __init__(self) -> None:
        self.count = 0

    def should_hurry(self) -> bool:
        return self.count > 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block the first signal raises KeyboardInterrupt, later ones only count."""
        before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            raise KeyboardInterrupt
