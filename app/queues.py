"""The doorbell: wake-up calls to the workers over Celery, which may be lost without harm.

Postgres holds the work. A message only says "look now"; every worker also looks by itself every
few seconds, so a lost, late or doubled message changes latency alone.
"""

from __future__ import annotations

import logging
import time
from enum import StrEnum
from functools import lru_cache
from typing import Any

import kombu
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from app.config import Config
from app.db import after_commit, config_of

logger = logging.getLogger(__name__)

# Never relied on: messages are acknowledged before they run.
VISIBILITY_TIMEOUT_S = 7 * 86_400
# A ring waits this long for a broker that does not answer, then leaves it alone for a while.
RING_TIMEOUT_S = 1.0
QUIET_AFTER_FAILURE_S = 5.0


class Queue(StrEnum):
    """Which workers listen: those that render, or those that expand, dispatch and tidy up."""

    RENDER = "render"
    CONTROL = "control"


class TaskName(StrEnum):
    WAKE_RENDER = "adloom.wake_render"
    WAKE_CONTROL = "adloom.wake_control"


WAKE_TASKS = {Queue.RENDER: TaskName.WAKE_RENDER, Queue.CONTROL: TaskName.WAKE_CONTROL}


class Doorbell:
    """Publishes wake-up calls by task name. Shared by threads; never raises."""

    def __init__(self, config: Config) -> None:
        self._celery = Celery(set_as_current=False)
        settings = celery_settings(config, socket_timeout_s=RING_TIMEOUT_S)
        # Otherwise a publisher waits two seconds for the connection to be refused again.
        settings["broker_transport_options"] |= {"max_retries": 1, "interval_start": 0}
        self._celery.conf.update(settings)
        self._quiet_until = 0.0

    def ring(self, queue: Queue, *, hint: str = "", times: int = 1) -> bool:
        """Wake up to `times` workers of a queue; False when the broker did not take the call.

        `hint` is the affinity key of the work that waits.
        """
        if time.monotonic() < self._quiet_until:
            return False
        try:
            with self._celery.producer_or_acquire() as producer:
                for _ in range(times):
                    self._celery.send_task(
                        WAKE_TASKS[queue],
                        kwargs={"hint": hint},
                        queue=queue,
                        producer=producer,
                        retry=False,
                        ignore_result=True,
                    )
        except (KombuError, RedisError, OSError) as error:
            self._quiet_until = time.monotonic() + QUIET_AFTER_FAILURE_S
            logger.warning(
                "the broker did not take a wake-up call for %s (%s); workers find the work "
                "themselves within seconds",
                queue,
                error,
            )
            return False
        return True

    def close(self) -> None:
        self._celery.close()


def ring_after_commit(session: Session, queue: Queue, *, hint: str = "") -> None:
    """Ring once the session's transaction has committed; not at all when it rolls back."""
    doorbell = _doorbell(config_of(session))

    def ring() -> None:
        doorbell.ring(queue, hint=hint)

    after_commit(session, ring)


def celery_settings(config: Config, *, socket_timeout_s: float) -> dict[str, Any]:
    """Celery's settings for publishers and workers; every timeout of the broker is explicit."""
    return {
        "broker_url": config.redis_url,
        "broker_connection_timeout": socket_timeout_s,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_limit": 8,
        "broker_pool_acquire_timeout": socket_timeout_s,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "socket_timeout": socket_timeout_s,
            "socket_connect_timeout": socket_timeout_s,
            "socket_keepalive": True,
            "health_check_interval": 25,
        },
        "task_queues": [kombu.Queue(queue.value, routing_key=queue.value) for queue in Queue],
        "task_create_missing_queues": False,
        "task_publish_retry": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "result_backend": None,
        "task_ignore_result": True,
        "task_acks_late": False,
        "worker_prefetch_multiplier": 1,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
    }


@lru_cache(maxsize=8)
def _doorbell(config: Config) -> Doorbell:
    return Doorbell(config)
