"""The command lines of the processes that do the work: web, control, render."""

from __future__ import annotations

import sys
from enum import StrEnum

from app.stack.environment import Address

# A page may hold its connection open for live progress; do not wait for it longer than this.
WEB_GRACE_S = 3
WEB_THREADS = 16
# Celery warns of root because pickled messages could run code; ours are JSON alone.
IGNORED_WARNING = "ignore:You're running the worker with superuser privileges"


class WorkerRole(StrEnum):
    RENDER = "render"
    CONTROL = "control"


def web_command(address: Address, *, access_log: str = "-", workers: int = 1) -> list[str]:
    """gunicorn with threads; several worker processes only help with several cores."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return [
        *(sys.executable, "-m", "gunicorn", "--worker-class", "gthread"),
        *("--workers", str(workers), "--threads", str(WEB_THREADS)),
        *("--bind", f"{host}:{address.port}", "--graceful-timeout", str(WEB_GRACE_S)),
        *("--access-logfile", access_log, "--no-control-socket"),
        "app.factory:create_app()",
    ]


def worker_command(role: WorkerRole, *, name: str) -> list[str]:
    """One celery process that listens on the doorbell of its role.

    The render worker is one thread: it owns the device. `name` tells workers of a host apart.
    """
    return [
        *(sys.executable, "-W", IGNORED_WARNING, "-m", "celery"),
        *("--app", "workers.celery", "--quiet", "worker"),
        *("--pool", "threads", "--concurrency", "1" if role is WorkerRole.RENDER else "4"),
        *("--queues", role.value, "--hostname", f"{role.value}-{name}@%h"),
        *("--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    ]
