"""The environment that the stack hands to its processes: what is set outside wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.stack.folder import StateFolder
from app.stack.servers import Servers


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the web server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def compose(
    environ: Mapping[str, str], *, folder: StateFolder, servers: Servers, address: Address
) -> dict[str, str]:
    """A complete environment for `Config.from_environment` here and in child processes.

    Call it once the servers run: the address of Valkey is known only then.
    """
    defaults = {variable: server.url for variable, server in servers.by_variable.items()}
    defaults["STORAGE_URL"] = folder.artifacts.as_uri()
    if not environ.get("ADLOOM_SECRET_KEY"):
        defaults["ADLOOM_SECRET_KEY"] = folder.secrets().secret_key
    defaults["ADLOOM_BASE_URL"] = address.url
    fixed = {
        "ADLOOM_STATE_DIR": str(folder.root),
        "ADLOOM_HOST": address.host,
        "ADLOOM_PORT": str(address.port),
        "PYTHONUNBUFFERED": "1",
    }
    given = {name: value for name, value in environ.items() if value or name not in defaults}
    return {**defaults, **given, **fixed}
