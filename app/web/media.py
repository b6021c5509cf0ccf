"""Videos, posters and previews: from a local store by this app, from S3 by a signed redirect."""

from __future__ import annotations

import mimetypes
from uuid import UUID

from flask import Blueprint, Response, make_response, redirect, request, send_file, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import NotFound
from app.extensions import extensions
from app.models import Artifact
from app.services.exports import EXTENSIONS
from app.services.scoping import get_in_workspace
from app.storage import LocalStorage
from app.web.scope import signed_in

blueprint = Blueprint("media", __name__, url_prefix="/media")

# An artifact never changes, so browsers may keep it; only for the person who was let in.
KEEP = "private, max-age=31536000, immutable"
# A redirect is kept for less time than its signature lives.
REDIRECT_MAX_AGE_S = 300
REDIRECT_EXPIRES_S = 3600


@blueprint.get("/<uuid:artifact_id>/<any(file, poster, preview):part>")
@signed_in
def show(session: Session, actor: Actor, artifact_id: UUID, part: str) -> ResponseReturnValue:
    """One file of an artifact of this workspace; `?download=name` saves it under that name."""
    return send_artifact(get_in_workspace(session, actor, Artifact, artifact_id), part)


def send_artifact(artifact: Artifact, part: str) -> Response:
    """The file itself, in ranges, or a redirect to where the store hands it out."""
    key = _key(artifact, part)
    storage = extensions().storage
    if not isinstance(storage, LocalStorage):
        url = storage.url(key, expires_s=REDIRECT_EXPIRES_S)
        if url is None:
            raise NotFound("This store does not hand out its files.")
        answer = make_response(redirect(url))
        answer.headers["Cache-Control"] = f"private, max-age={REDIRECT_MAX_AGE_S}"
        return answer
    name = request.args.get("download")
    # Conditional answers carry byte ranges, without which browsers cannot seek in a video.
    response = send_file(
        storage.path(key),
        mimetype=_media_type(artifact, part),
        as_attachment=name is not None,
        download_name=name,
        conditional=True,
        etag=f"{artifact.sha256}-{part}",
    )
    response.headers["Cache-Control"] = KEEP
    return response


def media_url(artifact_id: UUID, part: str) -> str:
    return url_for("media.show", artifact_id=artifact_id, part=part)


def download_url(artifact: Artifact, name: str) -> str:
    extension = EXTENSIONS.get(artifact.media_type, "bin")
    return url_for(
        "media.show", artifact_id=artifact.id, part="file", download=f"{name}.{extension}"
    )


def _key(artifact: Artifact, part: str) -> str:
    keys = {"poster": artifact.poster_key, "preview": artifact.preview_key}
    return keys.get(part, artifact.storage_key)


def _media_type(artifact: Artifact, part: str) -> str:
    if part == "file":
        return artifact.media_type
    guessed, _ = mimetypes.guess_type(_key(artifact, part))
    return guessed or "image/webp"
