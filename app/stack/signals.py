"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second hurries, the third ends us."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED_EXIT = 130  # 128 + SIGINT, as shells report it
MESSAGES = (
    b"\nStopping: waiting some seconds for the denoising step in hand. Where it ends is stored, "
    b"and the batch goes on from there at the next start; once more stops without waiting.\n",
    b"\nHurrying; once more ends this command alone, and `adloom down` stops the rest.\n",
)


class StopRequested(KeyboardInterrupt):
    """Somebody asked this process to end, and it has come to a point where it can.

    Like its base it is no error, so nothing that catches errors takes it for one.
    """


class StopRequests:
    """Counts the signals that ask this process to end; whoever waits looks at it in short turns.

    The handler raises nothing: an exception out of nowhere would leave whatever lock the
    interrupted code holds taken, and the orderly end would then wait for that lock for ever.
    """

    def __init__(self) -> None:
        self.count = 0

    def check(self) -> None:
        """Raise StopRequested once somebody has asked; to be called where stopping is safe."""
        if self.count:
            raise StopRequested

    def should_hurry(self) -> bool:
        return self.count > 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block the signals are counted; the third ends the process on the spot."""
        before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > len(MESSAGES):
            os._exit(INTERRUPTED_EXIT)
        # Not through a buffered stream, which the interrupted code may be writing to.
        os.write(2, MESSAGES[self.count - 1])
