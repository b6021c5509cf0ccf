"""The artifact store in an S3 bucket, or in a store that speaks the same protocol."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import boto3.session
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config as ClientConfig
from botocore.exceptions import BotoCoreError, ClientError

from app.errors import NotFound, StorageError, StorageFull
from app.storage.base import URL_EXPIRES_S, check_key

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

POOL_SIZE = 16
MAX_URL_EXPIRES_S = 900
# From here on a file is sent in parts, several at once; below, in one conditional request.
MULTIPART_BYTES = 32 * 2**20
# Another writer of the same key was faster, or is just now writing it.
_ALREADY_THERE = "PreconditionFailed"
_CONFLICT = "ConditionalRequestConflict"
_CONFLICT_TRIES = 3
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_FULL = frozenset({"InsufficientStorage", "507", "QuotaExceeded", "XMinioStorageFull"})
_PROBE_KEY = "health/writable"


class S3Storage:
    """Objects below `prefix` of one bucket; the client is shared by all threads."""

    def __init__(self, bucket: str, *, prefix: str = "", endpoint_url: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._place = f"s3://{bucket}" + (f" at {endpoint_url}" if endpoint_url else "")
        self._transfer = TransferConfig(multipart_threshold=MULTIPART_BYTES)
        with self._errors():
            self._client: S3Client = boto3.session.Session().client(
                "s3", endpoint_url=endpoint_url, config=_client_config(endpoint_url)
            )

    def put_file(self, key: str, path: Path, *, media_type: str) -> None:
        name = self._name(key)
        with self._errors():
            if path.stat().st_size >= MULTIPART_BYTES:
                extra = {"ContentType": media_type}
                self._client.upload_file(
                    str(path), self._bucket, name, ExtraArgs=extra, Config=self._transfer
                )
            else:
                self._put_once(name, path, media_type)

    def open(self, key: str, *, offset: int = 0) -> BinaryIO:
        bucket, name = self._bucket, self._name(key)
        with self._errors(key):
            # Of an empty object S3 gives no range at all, not even the whole.
            if offset:
                rest = f"bytes={offset}-"
                answer = self._client.get_object(Bucket=bucket, Key=name, Range=rest)
            else:
                answer = self._client.get_object(Bucket=bucket, Key=name)
        # The body reads and closes; the buffer adds lines and peeking.
        return io.BufferedReader(cast(io.RawIOBase, answer["Body"]))

    def url(self, key: str, *, expires_s: int = URL_EXPIRES_S) -> str | None:
        with self._errors():
            return self._client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": self._name(key)},
                ExpiresIn=min(expires_s, MAX_URL_EXPIRES_S),
            )

    def exists(self, key: str) -> bool:
        try:
            with self._errors(key):
                self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except NotFound:
            return False
        return True

    def delete(self, key: str) -> None:
        with self._errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        with self._errors():
            for page in pages:
                for item in page.get("Contents", ()):
                    key = item["Key"].removeprefix(self._prefix)
                    if key != _PROBE_KEY:
                        yield key

    def check_writable(self) -> None:
        with self._errors():
            self._client.put_object(Bucket=self._bucket, Key=self._name(_PROBE_KEY), Body=b"")

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _put_once(self, name: str, path: Path, media_type: str) -> None:
        """Write unless the key is there; equal keys hold equal bytes, so that is a success too."""
        for attempt in range(1, _CONFLICT_TRIES + 1):
            with path.open("rb") as body:
                try:
                    self._client.put_object(
                        Bucket=self._bucket,
                        Key=name,
                        Body=body,
                        ContentType=media_type,
                        IfNoneMatch="*",
                    )
                except ClientError as error:
                    code = _code(error)
                    if code == _ALREADY_THERE:
                        return
                    if code != _CONFLICT or attempt == _CONFLICT_TRIES:
                        raise
                else:
                    return

    @contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        """Turn the library's errors into ours; a missing object is NotFound where a key is read."""
        try:
            yield
        except ClientError as error:
            code = _code(error)
            if key is not None and code in _MISSING:
                raise NotFound(f"There is no stored file {key}.") from None
            if code in _FULL:
                raise StorageFull(
                    f"No space left in {self._place} ({code}). Raise its quota or delete old "
                    "objects; waiting work then goes on by itself."
                ) from None
            raise StorageError(
                f"{self._place} refused: {error}. Check the bucket's name and that the access "
                "key may read, write, list and delete there."
            ) from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise StorageError(
                f"{self._place} cannot be used: {error}. Check S3_ENDPOINT_URL, "
                "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION."
            ) from error


def _client_config(endpoint_url: str | None) -> ClientConfig:
    # Many compatible stores refuse the checksum trailers that newer SDKs send by default, and
    # serve no virtual host per bucket.
    is_compatible = endpoint_url is not None
    return ClientConfig(
        signature_version="s3v4",
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=POOL_SIZE,
        request_checksum_calculation="when_required" if is_compatible else "when_supported",
        response_checksum_validation="when_required" if is_compatible else "when_supported",
        s3={"addressing_style": "path" if is_compatible else "auto"},
    )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
