"""The Hugging Face hub: which files a repository has at a commit, and fetching them; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._headers import build_hf_headers

from engine.config import HubConfig
from engine.errors import HubError
from engine.snapshots import ByteCounter, LockedFile

DEFAULT_REVISION = "main"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a repository at one commit."""

    hub_id: str
    revision: str
    files: tuple[LockedFile, ...]


class Hub:
    """One hub, asked with one token."""

    def __init__(self, config: HubConfig) -> None:
        self._config = config
        self._api = HfApi(endpoint=config.endpoint, token=config.token)

    def list_files(self, hub_id: str, *, revision: str | None) -> Listing:
        """Resolve a branch, tag or commit, and list what is there; HubError says the way out."""
        revision = revision or DEFAULT_REVISION
        with self._errors(hub_id, revision):
            commit = self._api.model_info(hub_id, revision=revision).sha
            if commit is None:
                raise HubError(f"{self._config.endpoint} names no commit for {hub_id}.")
            tree = self._api.list_repo_tree(hub_id, revision=commit, recursive=True)
            files = tuple(_locked(each) for each in tree if isinstance(each, RepoFile))
        return Listing(hub_id=hub_id, revision=commit, files=files)

    def fetch(
        self, listing: Listing, file: LockedFile, destination: Path, *, on_bytes: ByteCounter
    ) -> None:
        """Append to the file at `destination` what it lacks of the hub's; HubError on failure.

        What has come stays there, so the next call goes on behind it. OSError says that the file
        could not be written.
        """
        url = hf_hub_url(
            listing.hub_id,
            file.path,
            revision=listing.revision,
            endpoint=self._config.endpoint,
        )
        destination.parent.mkdir(parents=True, exist_ok=True)
        with self._errors(listing.hub_id, listing.revision), destination.open("ab") as part:
            if part.tell() > file.size_bytes:
                part.truncate(0)
            http_get(
                url,
                part,
                resume_size=part.tell(),
                headers=build_hf_headers(token=self._config.token),
                expected_size=file.size_bytes,
                tqdm_class=_counting(on_bytes),
            )

    @contextmanager
    def _errors(self, hub_id: str, revision: str) -> Iterator[None]:
        """Each of the library's errors as HubError, with what to do about it."""
        page = f"{self._config.endpoint}/{hub_id}"
        try:
            yield
        except GatedRepoError:
            raise HubError(_gated(page, has_token=self._config.token is not None)) from None
        except RevisionNotFoundError:
            raise HubError(
                f"{hub_id} has no revision {revision!r}; its branches, tags and commits are"
                f" listed at {page}/commits."
            ) from None
        except RepositoryNotFoundError:
            raise HubError(
                f"{page} does not exist, or HF_TOKEN (or its absence) does not open it."
            ) from None
        except HFValidationError as error:
            raise HubError(f"The hub cannot be asked for this: {error}") from None
        except OfflineModeIsEnabled:
            raise HubError("HF_HUB_OFFLINE is set; unset it to fetch models.") from None
        except HfHubHTTPError as error:
            raise HubError(
                f"{self._config.endpoint} answered {error.response.status_code} for {hub_id}."
                " What has come is kept; try the same again later."
            ) from None
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise HubError(
                f"{self._config.endpoint} cannot be reached ({reason}). Check the network and"
                " HF_ENDPOINT; what has come is kept, the same command goes on from there."
            ) from None
        except ValueError as error:
            raise HubError(f"{hub_id}: {error}") from None


def _locked(file: RepoFile) -> LockedFile:
    if file.lfs is None:
        return LockedFile(path=file.path, size_bytes=file.size, digest=f"git-sha1:{file.blob_id}")
    return LockedFile(path=file.path, size_bytes=file.lfs.size, digest=f"sha256:{file.lfs.sha256}")


def _gated(page: str, *, has_token: bool) -> str:
    if has_token:
        return f"Your HF_TOKEN has no access yet: accept the terms at {page} and try again."
    return (
        f"Its authors want their terms accepted first: sign in at {page} and accept them, make a"
        " token at https://huggingface.co/settings/tokens, set HF_TOKEN to it and try again."
    )


def _counting(on_bytes: ByteCounter) -> type:
    """A class that the library takes for a progress bar; it only counts."""

    class Counter:
        def __init__(self, **_: object) -> None:
            """The library tells units, totals and labels, which whoever counts knows already."""

        def __enter__(self) -> Self:
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            """Nothing was opened."""

        def update(self, num_bytes: int) -> None:
            on_bytes(num_bytes)

    return Counter
