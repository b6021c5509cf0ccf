"""From frames to stored files: encode, hash, and upload under keys made of the hash."""

from __future__ import annotations

import hashlib
from pathlib import Path
from uuid import UUID

from app.services.leases import ClaimedJob, NewArtifact
from app.storage import Storage
from engine import media
from engine.types import GenerationResult

MEDIA_TYPES = {
    ".mp4": "video/mp4",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
}


def store_render(
    storage: Storage, job: ClaimedJob, result: GenerationResult, *, folder: Path
) -> NewArtifact:
    """Write the media files into `folder` and upload them; the store then holds all of them.

    Raises the engine's MediaError (DiskFull) and the store's StorageError.
    """
    main = _encode(job, result, folder)
    poster = folder / "poster.jpg"
    media.write_poster(result.frames, poster)
    preview = folder / "preview.webp"
    media.write_preview(result.frames, result.fps, preview)
    num_frames, height, width, _ = result.frames.shape
    key, digest = _store(storage, job.workspace_id, main)
    return NewArtifact(
        media_type=MEDIA_TYPES[main.suffix],
        storage_key=key,
        poster_key=_store(storage, job.workspace_id, poster)[0],
        preview_key=_store(storage, job.workspace_id, preview)[0],
        sha256=digest,
        size_bytes=main.stat().st_size,
        width=width,
        height=height,
        num_frames=num_frames,
        fps=result.fps,
        profile=job.settings.profile.value,
        provenance=result.provenance
        | {
            "forwards_computed": result.forwards_computed,
            "work_units": result.work_units,
            "seconds": {
                "text": round(result.seconds.text, 4),
                "denoise": round(result.seconds.denoise, 4),
                "decode": round(result.seconds.decode, 4),
            },
        },
    )


def _encode(job: ClaimedJob, result: GenerationResult, folder: Path) -> Path:
    if job.settings.task.is_image:
        path = folder / "image.png"
        media.write_image(result.frames, path)
    else:
        path = folder / "clip.mp4"
        media.encode_video(result.frames, result.fps, path, audio=result.audio)
    return path


def _store(storage: Storage, workspace_id: UUID, path: Path) -> tuple[str, str]:
    """Upload one file; returns its key and its SHA-256."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    key = f"{workspace_id}/artifacts/{digest}{path.suffix}"
    storage.put_file(key, path, media_type=MEDIA_TYPES[path.suffix])
    return key, digest
