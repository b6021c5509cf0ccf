"""A typed client of the API: sends again under one idempotency key, follows pages, waits."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import httpx
from pydantic import BaseModel, ConfigDict

RETRIED: Final = frozenset({409, 429, 502, 503, 504})
IN_USE: Final = "idempotency_key_in_use"
FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
LONGEST_WAIT_S: Final = 30


class ApiError(Exception):
    """The API refused; act on `code`."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        self.status = response.status_code
        self.code: str = problem.get("code", "http_error")
        self.detail: str = problem.get("detail", response.reason_phrase)
        self.field: str | None = problem.get("field")
        self.request_id: str | None = problem.get("request_id")
        super().__init__(f"{self.status} {self.code}: {self.detail}")


class _Answer(BaseModel):
    """What is not named here is kept, and read as an attribute."""

    model_config = ConfigDict(extra="allow")


class Links(_Answer):
    file: str
    poster: str
    preview: str


class Artifact(_Answer):
    id: str
    media_type: str
    width: int
    height: int
    links: Links


class Generation(_Answer):
    id: str
    status: str
    progress: float
    cost_micros: int
    artifact: Artifact | None = None
    error: dict[str, Any] | None = None


class Quote(_Answer):
    id: str
    batch_id: str
    variant_count: int
    cost_micros: int
    full_cost_micros: int
    currency: str


class Progress(_Answer):
    total: int
    done: int
    failed: int
    cost_micros: int


class Batch(_Answer):
    id: str
    state: str
    quote: Quote
    progress: Progress


class Variant(_Answer):
    id: str
    ordinal: int
    prompt: str
    values: dict[str, str]
    state: str | None = None
    artifact: Artifact | None = None


class Campaign(_Answer):
    id: str
    name: str


class Upload(_Answer):
    id: str
    row_count: int
    is_open: bool


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often a request is sent, and the pauses between: doubled each time, with jitter."""

    attempts: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 20.0


class Adloom:
    """The API at `base_url`, as whoever the key belongs to. Close it, or use it in `with`.

    Methods raise ApiError for what the API refuses, httpx.TransportError when it stays out of
    reach, and TimeoutError when waiting takes too long.
    """

    def __init__(
        self, base_url: str, key: str, *, timeout_s: float = 40.0, retries: Retries | None = None
    ) -> None:
        self._retries = retries or Retries()
        self._http = httpx.Client(
            base_url=f"{base_url.rstrip('/')}/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=timeout_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def generate(
        self,
        prompt: str,
        *,
        timeout_s: float = 600.0,
        idempotency_key: str | None = None,
        **more: Any,
    ) -> Generation:
        """Order one render and wait for its end; `more` are further fields of the order."""
        generation = self.create_generation(prompt, idempotency_key=idempotency_key, **more)
        return self.wait_for_generation(generation.id, timeout_s=timeout_s)

    def create_generation(
        self, prompt: str, *, idempotency_key: str | None = None, **more: Any
    ) -> Generation:
        body = {"prompt": prompt, **more}
        return Generation(**self._post("/generations", body, idempotency_key=idempotency_key))

    def get_generation(self, generation_id: str, *, wait_s: int = 0) -> Generation:
        return Generation(**self._get(f"/generations/{generation_id}", {"wait": wait_s}))

    def wait_for_generation(self, generation_id: str, *, timeout_s: float = 600.0) -> Generation:
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0:
            wait_s = max(1, min(int(left_s), LONGEST_WAIT_S))
            generation = self.get_generation(generation_id, wait_s=wait_s)
            if generation.status in FINAL:
                return generation
            time.sleep(min(0.2, max(left_s, 0)))
        raise TimeoutError(f"The generation {generation_id} has not ended in {timeout_s} s.")

    def cancel_generation(self, generation_id: str) -> Generation:
        return Generation(**self._post(f"/generations/{generation_id}/cancel"))

    def create_campaign(self, name: str, prompt: str, **more: Any) -> Campaign:
        return Campaign(**self._post("/campaigns", {"name": name, "prompt": prompt, **more}))

    def upload(self, campaign_id: str, path: Path) -> Upload:
        """Send a table of rows (CSV or XLSX)."""
        file = {"file": (path.name, path.read_bytes())}
        return Upload(**self._send("POST", f"/campaigns/{campaign_id}/uploads", files=file))

    def quote(self, campaign_id: str, **more: Any) -> Quote:
        """Price a batch; launch it by the quote's `batch_id`."""
        return Quote(**self._post("/quotes", {"campaign_id": campaign_id, **more}))

    def create_batch(
        self,
        campaign_id: str,
        *,
        launch: bool = False,
        idempotency_key: str | None = None,
        **more: Any,
    ) -> Batch:
        body = {"campaign_id": campaign_id, "launch": launch, **more}
        return Batch(**self._post("/batches", body, idempotency_key=idempotency_key))

    def launch(self, batch_id: str) -> Batch:
        return Batch(**self._post(f"/batches/{batch_id}/launch"))

    def get_batch(self, batch_id: str) -> Batch:
        return Batch(**self._get(f"/batches/{batch_id}"))

    def wait_for_batch(
        self, batch_id: str, *, timeout_s: float = 86_400.0, pause_s: float = 2.0
    ) -> Batch:
        until = time.monotonic() + timeout_s
        while True:
            batch = self.get_batch(batch_id)
            if batch.state in ENDED:
                return batch
            if time.monotonic() + pause_s > until:
                raise TimeoutError(f"The batch {batch_id} has not ended in {timeout_s} s.")
            time.sleep(pause_s)

    def variants(self, batch_id: str, **filters: str) -> Iterator[Variant]:
        """All variants of a batch in order, page by page."""
        for item in self.pages(f"/batches/{batch_id}/variants", filters):
            yield Variant(**item)

    def pages(
        self, path: str, filters: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, following its cursors."""
        query: dict[str, Any] = {"limit": 100, **(filters or {})}
        while True:
            page = self._get(path, query)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def download(self, url: str, path: Path) -> Path:
        """Fetch a file behind a link of an artifact; no key is sent along."""
        with httpx.stream("GET", url, follow_redirects=True, timeout=60.0) as response:
            if response.status_code >= 400:
                response.read()
                raise ApiError(response)
            with path.open("wb") as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)
        return path

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._send("GET", path, params=dict(query or {}))

    def _post(
        self, path: str, body: Any = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        options = {} if body is None else {"json": body}
        return self._send("POST", path, idempotency_key=idempotency_key, **options)

    def _send(
        self, method: str, path: str, *, idempotency_key: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """The answer; every attempt of a POST carries the same key, so it has one effect."""
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex} if method == "POST" else {}
        for attempt in range(1, self._retries.attempts + 1):
            is_last = attempt == self._retries.attempts
            wait_s = None
            try:
                response = self._http.request(method, path, headers=headers, **options)
            except httpx.TransportError:
                if is_last:
                    raise
            else:
                if response.is_success:
                    answer: dict[str, Any] = response.json()
                    return answer
                error = ApiError(response)
                if is_last or not _is_passing(error):
                    raise error
                wait_s = response.headers.get("Retry-After")
            time.sleep(self._pause_s(attempt, wait_s))
        raise AssertionError("the last attempt returns or raises")

    def _pause_s(self, attempt: int, asked: str | None) -> float:
        if asked is not None and asked.isdigit():
            return float(asked)
        doubled: float = self._retries.first_pause_s * 2 ** (attempt - 1)
        return random.uniform(0.5, 1.0) * min(doubled, self._retries.longest_pause_s)


def _is_passing(error: ApiError) -> bool:
    """Whether the same request may well succeed a little later."""
    return error.status in RETRIED and (error.status != 409 or error.code == IN_USE)
