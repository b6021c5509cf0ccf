"""Files of artifacts behind signed links that need no key and end after some minutes."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from flask import Response, redirect, send_file, url_for
from itsdangerous import BadSignature, URLSafeSerializer

from app.errors import NotFound
from app.extensions import extensions
from app.models import Artifact
from app.storage import LocalStorage

ENDPOINT: Final = "get_file"
PATH: Final = "/files/<token>"
# A link lives from one to two of these: the same link is given out for a while, so that answers
# which hold it keep their ETag.
SLOT_S: Final = 450
REDIRECT_EXPIRES_S: Final = 300


class Part(StrEnum):
    FILE = "file"
    POSTER = "poster"
    PREVIEW = "preview"


class LinkExpired(NotFound):
    """The link is wrong or too old."""

    code = "link_expired"


def link_to(artifact_id: UUID, part: Part, *, clock: Callable[[], float] = time.time) -> str:
    """A link to one file of an artifact, good for SLOT_S to 2 × SLOT_S seconds."""
    expires_at = (int(clock()) // SLOT_S + 2) * SLOT_S
    token = _serializer().dumps([str(artifact_id), part.value, expires_at])
    path = url_for(f"v1.{ENDPOINT}", token=token, _external=False)
    return f"{extensions().config.base_url}{path}"


def get_file(token: str) -> Any:
    """The file itself, with byte ranges, or a redirect to a store that signs links of its own."""
    try:
        artifact_id, part, expires_at = _serializer().loads(token)
    except BadSignature:
        expires_at = 0
    if expires_at <= time.time():
        raise LinkExpired("This link is wrong or too old. Ask for the artifact again.")
    # The signature is the permission: whoever made the link was let in to the artifact.
    with extensions().database.system_scope() as session:
        artifact = session.get(Artifact, UUID(artifact_id))
    if artifact is None:
        raise NotFound("The artifact was deleted.")
    return _send(artifact, Part(part))


def _send(artifact: Artifact, part: Part) -> Response:
    keys = {Part.POSTER: artifact.poster_key, Part.PREVIEW: artifact.preview_key}
    key = keys.get(part, artifact.storage_key)
    storage = extensions().storage
    if not isinstance(storage, LocalStorage):
        url = storage.url(key, expires_s=REDIRECT_EXPIRES_S)
        if url is None:
            raise NotFound("This store does not hand out its files.")
        response: Response = redirect(url)  # type: ignore[assignment]
        response.headers["Cache-Control"] = "no-store"
        return response
    guessed, _ = mimetypes.guess_type(key)
    media_type = artifact.media_type if part is Part.FILE else guessed
    return send_file(
        storage.path(key),
        mimetype=media_type or "image/webp",
        conditional=True,
        etag=f"{artifact.sha256}-{part}",
    )


def _serializer() -> URLSafeSerializer:
    return URLSafeSerializer(extensions().config.secret_key, salt="artifact links")
