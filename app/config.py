"""Everything that can be set from outside, read from the environment once."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.errors import ConfigurationError
from app.paths import DEFAULT_STATE_DIR

OWNER_ROLE = "adloom_owner"
APP_ROLE = "adloom_app"
SYSTEM_ROLE = "adloom_system"

# Every variable that the application reads; the compose file is checked against this list.
VARIABLES: dict[str, str] = {
    "DATABASE_URL": "Postgres as the owner of the schema: used by `adloom migrate` alone",
    "DATABASE_APP_URL": "Postgres as adloom_app (web, API); default: DATABASE_URL with that user",
    "DATABASE_SYSTEM_URL": "Postgres as adloom_system (workers); default: as above",
    "REDIS_URL": "broker of the doorbell, for example redis://localhost:6379/0",
    "STORAGE_URL": "file:///path or s3://bucket/prefix",
    "S3_ENDPOINT_URL": "S3-compatible endpoint; empty means AWS",
    "ADLOOM_SECRET_KEY": "signs sessions and links; at least 32 characters",
    "ADLOOM_STATE_DIR": "data of the embedded servers and the local artifact store",
    "ADLOOM_HOST": "address that the web server listens on",
    "ADLOOM_PORT": "port that the web server listens on",
    "ADLOOM_BASE_URL": "public address, for links in messages",
    "ADLOOM_SECURE_COOKIES": "1 when served over HTTPS",
    "ADLOOM_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR",
    "ADLOOM_LEASE_S": "seconds after which the work of a silent worker is given to another",
    "ADLOOM_JOB_DEADLINE_S": "seconds that one render may take before it counts as hung",
    "ADLOOM_CLAIM_LIMIT": "most jobs that a render worker takes at once",
    "ADLOOM_DRAFT_DAYS": "days for which drafts can be finished without rendering them anew",
    "ADLOOM_DRAFT_GIGABYTES": "most that the drafts of one workspace may take in the store",
    "ADLOOM_API_REQUESTS_PER_MINUTE": "requests that one API key may make in a minute",
    "WEBHOOK_ALLOWED_NETWORKS": "private networks that webhooks may reach, as 10.1.0.0/16,…; "
    "empty (all refused) wherever people who are not trusted have a workspace",
}

MIN_SECRET_LENGTH = 32

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How workers hold their work; heartbeat and reaper follow from the lease."""

    lease_s: float = 60.0
    job_deadline_s: float = 1_800.0
    claim_limit: int = 64
    # How often a worker looks for work that no doorbell announced.
    poll_s: float = 2.0
    # How long a worker in trouble (no space left, no weights) takes nothing new.
    pause_s: float = 10.0
    # States of drafts: how long they are kept, and how much of them for each workspace.
    draft_days: float = 7.0
    draft_gigabytes: float = 20.0

    @property
    def heartbeat_s(self) -> float:
        """A third of the lease: two heartbeats may be lost before the lease is."""
        return self.lease_s / 3

    @property
    def reap_s(self) -> float:
        return self.lease_s / 6


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of one process. Build it with `from_environment`."""

    database_url: str
    database_app_url: str
    database_system_url: str
    redis_url: str
    storage_url: str
    secret_key: str
    s3_endpoint_url: str | None = None
    state_dir: Path = DEFAULT_STATE_DIR
    host: str = "127.0.0.1"
    port: int = 8000
    base_url: str = "http://127.0.0.1:8000"
    secure_cookies: bool = False
    log_level: str = "INFO"
    workers: WorkerSettings = WorkerSettings()
    api_requests_per_minute: int = 600
    webhook_allowed_networks: tuple[IPNetwork, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read the settings; ConfigurationError names the variable that is missing or wrong."""
        env = os.environ if environ is None else environ
        database_url = _required(env, "DATABASE_URL")
        host = env.get("ADLOOM_HOST", "127.0.0.1")
        port = _port(env.get("ADLOOM_PORT", "8000"))
        return cls(
            database_url=_with_driver(database_url, "DATABASE_URL"),
            database_app_url=_role_url(env, "DATABASE_APP_URL", database_url, APP_ROLE),
            database_system_url=_role_url(env, "DATABASE_SYSTEM_URL", database_url, SYSTEM_ROLE),
            redis_url=_required(env, "REDIS_URL"),
            storage_url=_required(env, "STORAGE_URL"),
            secret_key=_secret(env),
            s3_endpoint_url=env.get("S3_ENDPOINT_URL") or None,
            state_dir=state_dir_of(env),
            host=host,
            port=port,
            base_url=(env.get("ADLOOM_BASE_URL") or f"http://{host}:{port}").rstrip("/"),
            secure_cookies=env.get("ADLOOM_SECURE_COOKIES", "0") == "1",
            log_level=env.get("ADLOOM_LOG_LEVEL", "INFO").upper(),
            workers=_worker_settings(env),
            api_requests_per_minute=math.ceil(
                _positive(env, "ADLOOM_API_REQUESTS_PER_MINUTE", cls.api_requests_per_minute)
            ),
            webhook_allowed_networks=_networks(env, "WEBHOOK_ALLOWED_NETWORKS"),
        )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise ConfigurationError(
            f"{name} is not set ({VARIABLES[name]}). On one machine, `adloom up` sets it for you.",
            field=name,
        )
    return value


def _secret(env: Mapping[str, str]) -> str:
    secret = _required(env, "ADLOOM_SECRET_KEY")
    if len(secret) < MIN_SECRET_LENGTH:
        raise ConfigurationError(
            f"ADLOOM_SECRET_KEY has {len(secret)} characters; use at least {MIN_SECRET_LENGTH}, "
            "for example from `python -c 'import secrets; print(secrets.token_urlsafe(48))'`.",
            field="ADLOOM_SECRET_KEY",
        )
    return secret


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigurationError(
            f"ADLOOM_PORT is {text!r}; it must be a number from 1 to 65535.", field="ADLOOM_PORT"
        )
    return int(text)


def _worker_settings(env: Mapping[str, str]) -> WorkerSettings:
    default = WorkerSettings()
    return WorkerSettings(
        lease_s=_positive(env, "ADLOOM_LEASE_S", default.lease_s),
        job_deadline_s=_positive(env, "ADLOOM_JOB_DEADLINE_S", default.job_deadline_s),
        claim_limit=math.ceil(_positive(env, "ADLOOM_CLAIM_LIMIT", default.claim_limit)),
        draft_days=_positive(env, "ADLOOM_DRAFT_DAYS", default.draft_days),
        draft_gigabytes=_positive(env, "ADLOOM_DRAFT_GIGABYTES", default.draft_gigabytes),
    )


def _positive(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigurationError(f"{name} is {text!r}; it must be a number above 0.", field=name)
    return value


def _networks(env: Mapping[str, str], name: str) -> tuple[IPNetwork, ...]:
    parts = filter(None, (part.strip() for part in env.get(name, "").split(",")))
    try:
        return tuple(ipaddress.ip_network(part) for part in parts)
    except ValueError as error:
        raise ConfigurationError(
            f"{name}: {error}. Write networks with their length, as in 127.0.0.0/8,::1/128.",
            field=name,
        ) from None


def _parse_url(text: str, name: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise ConfigurationError(
            f"{name} is not a database address. It should look like "
            "postgresql://user:password@host:5432/adloom.",
            field=name,
        ) from None
    if not url.drivername.startswith("postgresql"):
        raise ConfigurationError(
            f"{name} names {url.drivername!r}; Adloom runs on PostgreSQL alone.", field=name
        )
    return url.set(drivername="postgresql+psycopg")


def _with_driver(text: str, name: str) -> str:
    return _parse_url(text, name).render_as_string(hide_password=False)


def _role_url(env: Mapping[str, str], name: str, database_url: str, role: str) -> str:
    text = env.get(name, "").strip()
    if text:
        return _with_driver(text, name)
    owner = _parse_url(database_url, "DATABASE_URL")
    return owner.set(username=role).render_as_string(hide_password=False)


def state_dir_of(environ: Mapping[str, str] | None = None) -> Path:
    """The state folder that a command takes when it is not told another."""
    env = os.environ if environ is None else environ
    return Path(env.get("ADLOOM_STATE_DIR") or DEFAULT_STATE_DIR)
