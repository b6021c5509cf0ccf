"""The Celery application of the workers: `celery -A workers.celery worker -P threads -Q render`."""

from __future__ import annotations

from app.config import Config
from workers.application import create_celery

app = create_celery(Config.from_environment())
