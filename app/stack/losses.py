"""Tells a state folder whose database is gone from one that is new: both have none."""

from __future__ import annotations

from pathlib import Path

from app.stack.folder import Damage, StateFolder


def find_lost_database(folder: StateFolder) -> Damage | None:
    """What shows that there was an embedded database here; None if it is here, or never was."""
    if folder.postgres.exists():
        return None
    signs = {
        "finished files in artifacts/": any(path.is_file() for path in folder.artifacts.rglob("*")),
        "the demo's sign-in in demo.json": (folder.root / "demo.json").exists(),
        "the log of an earlier database in logs/postgres.log": folder.log("postgres").exists(),
    }
    found = [what for what, is_there in signs.items() if is_there]
    if not found:
        return None
    return Damage(
        reason=f"The database is missing: there is no {folder.postgres}, although this state "
        f"folder was in use (it holds {', '.join(found)}).",
        remedy=f"{_way_back(folder)} If the records lie in a server of yours, set DATABASE_URL. "
        "Without either, Adloom starts with an empty database: no campaigns, no sign-in, and the "
        "files in artifacts/ are kept but shown nowhere.",
    )


def _way_back(folder: StateFolder) -> str:
    """How to put the database back, with its present place where that is easily found."""
    moved = _find_moved(folder)
    place = str(moved[0]) if moved else "/where/it/is/postgres"
    hint = f" ({', '.join(map(str, moved))} may be it)" if moved else ""
    return (
        f"Put it back{hint}: `adloom down`, then `mv {place} {folder.postgres}`; an empty one that "
        "was made there meanwhile has to be moved away first."
    )


def _find_moved(folder: StateFolder) -> list[Path]:
    """Clusters beside the place where ours should be, and beside the state folder."""
    beside = [*folder.root.glob("*/PG_VERSION"), *folder.root.parent.glob("postgres*/PG_VERSION")]
    return sorted(path.parent for path in beside)
