"""Replace attributes of loaded modules for a while, and leave them as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(target: Any, **attributes: Any) -> Iterator[None]:
    """Set attributes of an instance while the body runs, methods of its class included."""
    before = {name: vars(target)[name] for name in attributes if name in vars(target)}
    for name, value in attributes.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                setattr(target, name, before[name])
            else:
                # The class's own comes back by removing what hides it.
                delattr(target, name)
