"""A Celery application whose task does nothing but count itself; run as a process of its own.

BENCH_BROKER is the broker, BENCH_TASKS how many tasks wait there, BENCH_REPORT the file that gets
the seconds from the first task to the last.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

QUEUE = "bench"

app = Celery("bench", broker=os.environ.get("BENCH_BROKER"))
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=True,
    worker_send_task_events=False,
    task_serializer="json",
)

_total = int(os.environ.get("BENCH_TASKS", "0"))
_times: list[float] = []


def nothing() -> None:
    """Count, and report when this was the last."""
    _times.append(time.perf_counter())
    if len(_times) == _total:
        Path(os.environ["BENCH_REPORT"]).write_text(str(_times[-1] - _times[0]))


app.task(nothing, name="bench.nothing")
