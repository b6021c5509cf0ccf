"""Where tests find files that are no code."""

from __future__ import annotations

from pathlib import Path

# axe-core, the accessibility checker that browser tests run in the pages.
AXE = Path(__file__).parent / "data" / "axe" / "axe.min.js"
