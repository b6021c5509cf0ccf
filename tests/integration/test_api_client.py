"""The client and every command of docs/api.md, against a real server with real loops."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from werkzeug.serving import make_server

from app.client import Adloom, ApiError, Retries
from app.config import Config
from app.db import Database
from app.models import Workspace
from app.paths import ROOT
from app.queues import Queue
from tests.api import make_key
from tests.engines import NullEngine
from tests.web import make_app
from workers.runtime import Runtime

SETTINGS = {"num_frames": 5, "num_inference_steps": 4}
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.usefixtures("weights")


@pytest.fixture
def url(config: Config, redis_url: str) -> Iterator[str]:
    """The address of a server with control and render loops, with a stand-in for the GPU."""
    config = replace(config, redis_url=redis_url, workers=replace(config.workers, poll_s=0.2))
    server = make_server("127.0.0.1", 0, make_app(config), threaded=True)
    address = f"http://127.0.0.1:{server.server_port}"
    # Links are made with the address that the server is known by.
    server.app.extensions["adloom"] = replace(  # type: ignore[attr-defined]
        server.app.extensions["adloom"],  # type: ignore[attr-defined]
        config=replace(config, base_url=address),
    )
    runtime = Runtime(config, engine_factory=lambda _: NullEngine())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    runtime.start([Queue.CONTROL, Queue.RENDER])
    yield address
    runtime.stop()
    runtime.join()
    server.shutdown()
    thread.join()


@pytest.fixture
def key(database: Database, workspace: Workspace) -> str:
    return make_key(database, workspace)


def test_the_client_takes_a_campaign_from_prompt_to_files(
    url: str, key: str, tmp_path: Path
) -> None:
    with Adloom(url, key) as adloom:
        campaign = adloom.create_campaign(
            "Spring",
            "a red sneaker on {{ backdrop }}",
            settings=SETTINGS,
            parameters=[{"name": "backdrop", "values": ["a beach", "a meadow", "a roof"]}],
        )
        quote = adloom.quote(campaign.id)
        assert quote.variant_count == 3
        assert adloom.launch(quote.batch_id).state == "expanding"
        batch = adloom.wait_for_batch(quote.batch_id, timeout_s=60, pause_s=0.2)
        assert (batch.state, batch.progress.done) == ("completed", 3)
        variants = list(adloom.variants(batch.id, state="succeeded"))
        assert [variant.ordinal for variant in variants] == [0, 1, 2]
        artifact = variants[0].artifact
        assert artifact is not None
        file = adloom.download(artifact.links.file, tmp_path / "a.mp4")
        assert file.read_bytes()[4:8] == b"ftyp"
        generation = adloom.generate("a blue sneaker", settings=SETTINGS, timeout_s=60)
        assert (generation.status, generation.error) == ("succeeded", None)
        with pytest.raises(ApiError, match="not_found"):
            adloom.get_batch(campaign.id)


def test_a_broken_connection_is_tried_again_under_the_same_key(url: str, key: str) -> None:
    adloom = Adloom(url, key, retries=Retries(first_pause_s=0.01))
    sent: list[str] = []
    send = adloom._http.send

    def send_and_lose_the_answer(request: httpx.Request, **options: object) -> httpx.Response:
        response = send(request, **options)  # type: ignore[arg-type]
        sent.append(request.headers["Idempotency-Key"])
        if len(sent) < 3:
            raise httpx.ReadError("the connection broke")
        return response

    adloom._http.send = send_and_lose_the_answer  # type: ignore[method-assign]
    adloom.create_campaign("Spring", "a red sneaker")
    assert len(sent) == 3
    assert len(set(sent)) == 1
    adloom._http.send = send  # type: ignore[method-assign]
    assert [item["name"] for item in adloom.pages("/campaigns")] == ["Spring"]
    adloom.close()


def test_every_command_of_the_documentation_works(url: str, key: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "api.md").read_text())
    shell = "".join(text for language, text in blocks if language == "sh")
    assert shell.count("curl ") >= 8
    environment = {"ADLOOM_URL": url, "ADLOOM_KEY": key, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", shell],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "generation.json").read_text())["status"] == "succeeded"
    assert json.loads((tmp_path / "upload.json").read_text())["row_count"] == 2
    [python] = [text for language, text in blocks if language == "python"]
    python = python.replace("sneaker.mp4", str(tmp_path / "sneaker.mp4"))
    exec(python, {"ADLOOM_URL": url, "ADLOOM_KEY": key})
    assert (tmp_path / "sneaker.mp4").read_bytes()[4:8] == b"ftyp"
