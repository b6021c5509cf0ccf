"""Requests generated from the OpenAPI document: no answer is a fault of ours, each is as told."""

from __future__ import annotations

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from app.config import Config
from app.db import Database
from app.models import Workspace
from tests.api import make_key
from tests.web import make_app

EXAMPLES = 4
CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]


@pytest.mark.usefixtures("weights")
def test_generated_requests_never_break_the_service(
    config: Config, database: Database, workspace: Workspace
) -> None:
    app = make_app(config)
    app.config["PROPAGATE_EXCEPTIONS"] = False
    schema = schemathesis.openapi.from_wsgi("/v1/openapi.json", app)
    headers = {"Authorization": f"Bearer {make_key(database, workspace)}"}
    statuses: Counter[int] = Counter()

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: schemathesis.Case) -> None:
            response = case.call(headers=headers)
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

        send()
    print(f"{statuses.total()} generated requests: {dict(sorted(statuses.items()))}")
    assert statuses.total() >= 40 * EXAMPLES * 0.5
    assert not [status for status in statuses if status >= 500]
