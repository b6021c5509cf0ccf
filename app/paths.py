"""Where the parts of a checkout (or of the Docker image) lie on disk."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates"
STATIC = ROOT / "app" / "static"
MIGRATIONS = ROOT / "migrations"
EXAMPLES = ROOT / "examples"
LANDMARKS = ROOT / "app" / "data" / "landmarks.csv"
DEFAULT_STATE_DIR = ROOT / ".adloom"
