"""The state folder of one installation: data, secrets and logs, and its short run folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.errors import ConfigurationError, Conflict

LOCK_POLL_S = 0.05
# Unix sockets lie here: their path may hold about 107 bytes, a checkout's path may be longer.
RUN_ROOT = Path("/tmp")  # noqa: S108  (the folder below is created with mode 700 and checked)


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Generated once, kept in the state folder with mode 600."""

    secret_key: str
    valkey_password: str


@dataclass(frozen=True)
class StateFolder:
    """Paths of one installation. Several installations never share a path or a socket."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> StateFolder:
        """The folder as it is, whether or not it is there; nothing is written."""
        return cls(path.expanduser().resolve())

    @classmethod
    def create(cls, path: Path) -> StateFolder:
        """Make the folders that are missing; ConfigurationError when that is impossible."""
        folder = cls.at(path)
        # As root, Postgres runs as another user, which must be able to pass through.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            folder.root.mkdir(parents=True, exist_ok=True)
            folder.root.chmod(mode)
            for part in (folder.logs, folder.valkey, folder.artifacts):
                part.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"The state folder {folder.root} cannot be used ({error.strerror}). "
                "Choose another with --state-dir or ADLOOM_STATE_DIR.",
                field="ADLOOM_STATE_DIR",
            ) from None
        folder._create_run_folder(mode)
        return folder

    @property
    def is_there(self) -> bool:
        """Whether Adloom has kept anything in it."""
        return any(part.exists() for part in (self.postgres, self.artifacts, self._secrets_file))

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Sockets and process ids; outlives a state folder that is deleted under the servers."""
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return RUN_ROOT / f"adloom-{os.geteuid()}-{digest}"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def secrets(self) -> Secrets:
        """Read the secrets, generating them the first time."""
        path = self._secrets_file
        if not path.exists():
            fresh = Secrets(
                secret_key=secrets.token_urlsafe(48), valkey_password=secrets.token_urlsafe(24)
            )
            write_private(path, json.dumps(fresh.__dict__, indent=1))
        found = self.find_secrets()
        if isinstance(found, Damage):
            raise found.to_error()
        return found

    def find_secrets(self) -> Secrets | Damage:
        """The secrets, or why they cannot be read; nothing is written."""
        path = self._secrets_file
        try:
            return Secrets(**json.loads(path.read_text()))
        except (ValueError, TypeError, OSError) as error:
            loses = "Everybody has to sign in again"
            return damage(path, f"it cannot be read: {error}", loses=loses)

    @contextmanager
    def lock(
        self, name: str, *, wait: bool = True, check: Callable[[], None] = lambda: None
    ) -> Iterator[IO[str]]:
        """Hold an exclusive lock that ends with this process; Conflict if held and not `wait`.

        `check` is called while it waits, and raises to give up.
        """
        path = self.run / f"{name}.lock"
        with path.open("a+") as handle:
            while not _try_lock(handle):
                if not wait:
                    raise Conflict(f"{path} is held by another process.")
                check()
                time.sleep(LOCK_POLL_S)
            yield handle

    @property
    def has_secrets(self) -> bool:
        """Whether they were generated, be they readable or not."""
        return self._secrets_file.exists()

    @property
    def _secrets_file(self) -> Path:
        return self.root / "secrets.json"

    def _create_run_folder(self, mode: int) -> None:
        self.run.mkdir(exist_ok=True, mode=mode)
        found = self.run.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours:
            raise ConfigurationError(
                f"{self.run} belongs to somebody else, so no socket is put there. Remove it, or "
                "choose another state folder with --state-dir."
            )
        self.run.chmod(mode)


def _try_lock(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Why a part of the state folder cannot be used, and the way out with what it costs."""

    reason: str
    remedy: str

    def to_error(self) -> ConfigurationError:
        return ConfigurationError(f"{self.reason} {self.remedy}")


def damage(path: Path, why: str, *, loses: str) -> Damage:
    """A part that has to be moved aside; `loses` says what goes with it."""
    return Damage(reason=f"{path} is damaged: {why}.", remedy=move_aside(path, loses=loses))


def move_aside(path: Path, *, loses: str) -> str:
    """The way out that always works, with its price."""
    return (
        f"Move it aside (`mv {path} {path}.broken`) and start again. {loses}; the rest of the "
        "state folder is kept."
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    draft.replace(path)
