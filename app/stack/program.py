"""The `adloom` command as its reader has to type it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from app.config import state_dir_of
from app.paths import DEFAULT_STATE_DIR


def command(arguments: str, *, state_dir: Path = DEFAULT_STATE_DIR) -> str:
    """`adloom …`, with the path of the program where the shell would not find this very one.

    `state_dir` is named unless the command takes that folder by itself.
    """
    program = Path(sys.executable).with_name("adloom")
    found = shutil.which("adloom")
    if found is not None and program.exists() and program.samefile(found):
        name = "adloom"
    else:
        name = shlex.quote(_short(program))
    is_taken = state_dir.resolve() == state_dir_of().resolve()
    state = "" if is_taken else f" --state-dir {shlex.quote(str(state_dir))}"
    return f"{name} {arguments}{state}"


def _short(path: Path) -> str:
    """Relative where that is shorter to type, as in `.venv/bin/adloom`."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
