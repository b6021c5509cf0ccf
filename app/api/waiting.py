"""Answers that are held back for a while, until what they tell of is final."""

from __future__ import annotations

import json
import threading
import time
from typing import Final
from uuid import UUID

from app.access import Actor
from app.api.routes import Refresh
from app.extensions import extensions
from app.services.idempotency import Answer

MAX_WAIT_S: Final = 30
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0
# Each waiting request holds a thread; beyond this many, answers are given at once.
_slots = threading.BoundedSemaphore(4)


def wait_for(refresh: Refresh, actor: Actor, answer: Answer, *, wait_s: int) -> Answer:
    """The answer as it is once it is final or `wait_s` seconds have passed.

    No transaction is open meanwhile. Callers must be ready for an answer that is not final.
    """
    if wait_s <= 0 or not _slots.acquire(blocking=False):
        return answer
    try:
        return _poll(refresh, actor, answer, until=time.monotonic() + wait_s)
    finally:
        _slots.release()


def _poll(refresh: Refresh, actor: Actor, answer: Answer, *, until: float) -> Answer:
    row_id, pause_s = UUID(json.loads(answer.body)["id"]), FIRST_PAUSE_S
    while True:
        with extensions().database.workspace_scope(actor) as session:
            shown, is_final = refresh(session, actor, row_id)
            answer = Answer(status=answer.status, body=shown.model_dump_json())
        left_s = until - time.monotonic()
        if is_final or left_s <= 0:
            return answer
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
