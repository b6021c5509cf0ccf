"""The unprivileged user that Postgres runs as when Adloom is started by root."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import ConfigurationError

USER_NAME = "adloom-postgres"


@dataclass(frozen=True)
class SystemUser:
    """Whom a server process runs as; `None` ids mean whoever runs Adloom."""

    uid: int | None = None
    gid: int | None = None

    @property
    def process_options(self) -> dict[str, Any]:
        """Arguments of subprocess.Popen that drop root's rights."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    @property
    def name(self) -> str:
        return pwd.getpwuid(os.geteuid() if self.uid is None else self.uid).pw_name

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def postgres_user(say: Callable[[str], None]) -> SystemUser:
    """Postgres refuses to run as root: as root, find or create a system user for it."""
    if os.geteuid() != 0:
        return SystemUser()
    try:
        entry = pwd.getpwnam(USER_NAME)
    except KeyError:
        _create_user()
        entry = pwd.getpwnam(USER_NAME)
        say(f"Postgres refuses to run as root: created the system user {USER_NAME} for it.")
    return SystemUser(entry.pw_uid, entry.pw_gid)


def open_way(path: Path, user: SystemUser, say: Callable[[str], None]) -> None:
    """Let the system user pass through (not list) the folders that lead to `path`."""
    if user.uid is None:
        return
    for parent in reversed(path.parents):
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH)
            say(f"Let {USER_NAME} pass through {parent} (mode o+x), which leads to {path}.")


def _create_user() -> None:
    useradd = shutil.which("useradd", path=os.defpath + ":/usr/sbin:/sbin")
    if useradd is None:
        raise ConfigurationError(
            "Postgres refuses to run as root and this system has no useradd to make a user for "
            "it. Run Adloom as an ordinary user, or set DATABASE_URL to a running Postgres."
        )
    command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    done = subprocess.run([*command, USER_NAME], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigurationError(
            f"The system user {USER_NAME} could not be created: {done.stderr.strip()}. Run Adloom "
            "as an ordinary user, or set DATABASE_URL to a running Postgres."
        )
