"""Stores where a group was stopped between two steps, and fetches it for whoever goes on."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from app.db import Database
from app.errors import AppError
from app.services import draft_states, render_states
from app.services.draft_states import NewState
from app.services.leases import ClaimedGroup, ClaimedJob
from app.storage import Storage
from engine.errors import InvalidRequest
from engine.suspending import StateFile, Suspension
from engine.types import SavedState
from workers.loop import DATABASE_AWAY

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/octet-stream"


class StateStore:
    """Does its best: without a state a job is rendered from the start."""

    def __init__(self, database: Database, storage: Storage, *, draft_days: float) -> None:
        """States of drafts are kept for `draft_days`."""
        self._database = database
        self._storage = storage
        self._keep_for = timedelta(days=draft_days)

    def resume(self, group: ClaimedGroup, should_suspend: Callable[[], bool]) -> Suspension:
        """What lets the engine go on with a group, and stops it when that is asked for.

        It goes on from where the group was stopped, or else from where its drafts ended.
        """
        files, lost = [], []
        drafts = {job.draft_id for job in group.jobs if job.draft_id is not None}
        kept = self._find_drafts(group, drafts)
        if len(kept) < len(drafts):
            lost.append("the state of the draft is not kept any more")
        for key in (*self._find_keys(group), *sorted(set(kept.values()))):
            try:
                files.append(self._fetch(key))
            except (AppError, InvalidRequest, OSError) as error:
                logger.warning("state %s cannot be read: %s", key, error)
                lost.append("what was stored cannot be read")
        return Suspension(should_suspend, resumed=files, lost=lost)

    def keep(self, group: ClaimedGroup, job_ids: Collection[UUID], file: StateFile) -> None:
        """Store what a group left open, for the jobs that are handed back."""
        try:
            with tempfile.TemporaryDirectory(prefix="adloom-") as folder:
                self._keep(group, job_ids, file, Path(folder) / "state.safetensors")
        except (AppError, InvalidRequest, OSError, *DATABASE_AWAY) as error:
            logger.warning("group %s will start anew: %s", group.group_key, error)

    def keep_draft(self, job: ClaimedJob, token: int, state: SavedState) -> None:
        """Store where a draft ended, so that it can be finished without its steps."""
        key = f"{job.workspace_id}/drafts/{job.job_id}.safetensors"
        try:
            with tempfile.TemporaryDirectory(prefix="adloom-") as folder:
                path = Path(folder) / "draft.safetensors"
                state.save(path)
                self._keep_draft(job, token, key, path, step=state.last_step)
        except (AppError, InvalidRequest, OSError, *DATABASE_AWAY) as error:
            logger.warning("draft %s will be finished from the start: %s", job.job_id, error)

    def _keep_draft(self, job: ClaimedJob, token: int, key: str, path: Path, *, step: int) -> None:
        new = NewState(
            job_id=job.job_id,
            storage_key=key,
            variant_key=job.variant_key,
            step=step,
            size_bytes=path.stat().st_size,
        )
        with self._database.system_scope() as session:
            if not draft_states.record(session, new, token=token, keep_for=self._keep_for):
                return
        try:
            self._storage.put_file(key, path, media_type=MEDIA_TYPE)
        except (AppError, OSError):
            # A quote must not count on it.
            with self._database.system_scope() as session:
                draft_states.forget(session, key)
            raise

    def _find_drafts(self, group: ClaimedGroup, drafts: Collection[UUID]) -> Mapping[UUID, str]:
        try:
            with self._database.system_scope() as session:
                return draft_states.find_files(session, drafts)
        except DATABASE_AWAY as error:
            logger.warning("group %s is rendered without its drafts: %s", group.group_key, error)
            return {}

    def _find_keys(self, group: ClaimedGroup) -> Sequence[str]:
        try:
            with self._database.system_scope() as session:
                return render_states.find_keys(session, [job.variant_id for job in group.jobs])
        except DATABASE_AWAY as error:
            logger.warning("group %s starts anew: %s", group.group_key, error)
            return ()

    def _keep(
        self, group: ClaimedGroup, job_ids: Collection[UUID], file: StateFile, path: Path
    ) -> None:
        file.save(path)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        key = f"{group.jobs[0].workspace_id}/states/{digest}{path.suffix}"
        with self._database.system_scope() as session:
            noted = render_states.record(
                session,
                token=group.token,
                job_ids=job_ids,
                storage_key=key,
                step=file.last_step,
                size_bytes=path.stat().st_size,
            )
        if noted:
            self._storage.put_file(key, path, media_type=MEDIA_TYPE)
            logger.info("kept %d job(s) of group %s at a step", noted, group.group_key)

    def _fetch(self, key: str) -> StateFile:
        with (
            tempfile.TemporaryDirectory(prefix="adloom-") as folder,
            self._storage.open(key) as stored,
        ):
            path = Path(folder) / "state.safetensors"
            with path.open("wb") as copy:
                shutil.copyfileobj(stored, copy)
            return StateFile.load(path)
