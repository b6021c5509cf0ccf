"""The artifact store: one protocol, a local folder or an S3 bucket behind it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.config import Config
from app.errors import ConfigurationError
from app.storage.base import Storage, check_key
from app.storage.local import LocalStorage

__all__ = ["LocalStorage", "Storage", "check_key", "storage_from_url"]


def storage_from_url(config: Config) -> Storage:
    """The store that STORAGE_URL names; ConfigurationError says what is wrong with it."""
    url = urlsplit(config.storage_url)
    if url.scheme == "file" and url.netloc in ("", "localhost") and url.path.startswith("/"):
        return LocalStorage(Path(unquote(url.path)))
    if url.scheme == "s3" and url.netloc:
        # Local import: boto3 costs every process that stores in a folder a second and 30 MB.
        from app.storage.s3 import S3Storage

        return S3Storage(
            url.netloc, prefix=url.path.strip("/"), endpoint_url=config.s3_endpoint_url
        )
    raise ConfigurationError(
        f"STORAGE_URL is {config.storage_url!r}; use file:///absolute/folder or s3://bucket/prefix.",
        field="STORAGE_URL",
    )
