"""A batch whose variants are rendered, for tests of what people do with them; no GPU needed."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from PIL import Image
from sqlalchemy.orm import Session

from app.db import Database
from app.models import Batch, RenderJob, Variant
from app.services import expanding, leases
from app.services.claimed import ClaimedGroup
from app.services.leases import NewArtifact, NewUsage
from app.storage import Storage
from tests.factories import make_artifact_files
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser

OUT_OF_MEMORY = "The worker ran out of GPU memory."


def video_of(ordinal: int) -> bytes:
    """Bytes that stand for the video of a variant, other ones for each."""
    return bytes([ordinal]) * (300_000 + ordinal)


def launch(editor: Browser, **form: object) -> UUID:
    """A launched batch of six variants, none of them rendered."""
    path = create_batch(editor, **form)
    editor.get(path)
    editor.post(f"{path}/launch")
    return UUID(path.rpartition("/")[2])


def render(
    database: Database,
    storage: Storage,
    folder: Path,
    batch_id: UUID,
    *,
    is_good: Callable[[int], bool] = lambda ordinal: True,
    make_video: Callable[[int], bytes] = video_of,
) -> list[UUID]:
    """End every job of the batch; returns the ids of its variants in order."""
    with database.system_scope() as session:
        while expanding.expand_chunk(session, batch_id):
            pass
    with database.system_scope() as session:
        while group := leases.claim(session, worker="worker"):
            for job in group.jobs:
                ordinal = session.get_one(Variant, job.variant_id).ordinal
                if is_good(ordinal):
                    artifact = store(storage, folder, ordinal, make_video(ordinal))
                    succeed(session, group, job.job_id, artifact)
                else:
                    leases.finish_failed(
                        session,
                        job_id=job.job_id,
                        token=group.token,
                        code="out_of_memory",
                        message=OUT_OF_MEMORY,
                        is_retryable=False,
                    )
    with database.system_scope() as session:
        found = session.query(Variant).filter_by(batch_id=batch_id).order_by(Variant.ordinal)
        return [variant.id for variant in found]


def succeed(session: Session, group: ClaimedGroup, job_id: UUID, artifact: NewArtifact) -> None:
    assert leases.finish_succeeded(
        session,
        job_id=job_id,
        token=group.token,
        artifact=artifact,
        usage=NewUsage(units=60.0, render_s=2.0),
    )


def batch_of(database: Database, variant_id: UUID) -> Batch:
    with database.system_scope() as session:
        return session.get_one(Batch, session.get_one(Variant, variant_id).batch_id)


def job_states(database: Database, batch_id: UUID) -> list[str]:
    with database.system_scope() as session:
        return sorted(job.state for job in session.query(RenderJob).filter_by(batch_id=batch_id))


def store(storage: Storage, folder: Path, ordinal: int, content: bytes) -> NewArtifact:
    """Files of a finished render in the store: the video, a poster of one colour, no preview."""
    key = f"media/{zlib.crc32(content):08x}"
    picture = io.BytesIO()
    Image.new("RGB", (224, 128), (40 * ordinal % 256, 90, 160)).save(picture, "WEBP")
    poster = picture.getvalue()
    for suffix, data in (("mp4", content), ("webp", poster), ("anim.webp", poster)):
        file = folder / f"{ordinal}.{suffix}"
        file.write_bytes(data)
        storage.put_file(f"{key}.{suffix}", file, media_type="application/octet-stream")
    return make_artifact_files(
        storage_key=f"{key}.mp4",
        poster_key=f"{key}.webp",
        preview_key=f"{key}.anim.webp",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
    )
