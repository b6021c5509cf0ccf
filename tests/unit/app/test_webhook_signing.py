"""Signatures that the Standard Webhooks library accepts, and secrets that only we can read."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.errors import ConfigurationError
from app.services.webhook_signing import new_secret, seal, signed_headers, unseal

KEY = "a secret key of the installation, long enough"


def test_the_signature_is_that_of_the_published_test_vector() -> None:
    headers = signed_headers(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        sent_at=datetime.fromtimestamp(1614265330, UTC),
        body=b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_library_of_the_specification_verifies_a_message() -> None:
    secret = new_secret()
    body = '{"type":"batch.completed","data":{"name":"Frühling ☀"}}'.encode()
    headers = signed_headers([secret], message_id="evt_1", sent_at=datetime.now(UTC), body=body)
    assert Webhook(secret).verify(body, headers)["type"] == "batch.completed"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(body, headers)


def test_an_old_message_is_refused_by_the_library() -> None:
    secret = new_secret()
    sent_at = datetime.now(UTC) - timedelta(minutes=6)
    headers = signed_headers([secret], message_id="evt_1", sent_at=sent_at, body=b"{}")
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(b"{}", headers)


def test_while_a_secret_is_rotated_either_of_the_two_verifies() -> None:
    old, new = new_secret(), new_secret()
    headers = signed_headers([new, old], message_id="evt_1", sent_at=datetime.now(UTC), body=b"{}")
    for secret in (old, new):
        Webhook(secret).verify(b"{}", headers)


def test_a_secret_holds_as_many_random_bytes_as_the_specification_asks_for() -> None:
    assert new_secret() != new_secret()
    assert 24 <= len(base64.b64decode(new_secret().removeprefix("whsec_"), validate=True)) <= 64


def test_a_sealed_secret_opens_under_its_own_key_alone() -> None:
    secret = new_secret()
    sealed = seal(secret, secret_key=KEY)
    assert secret.encode() not in sealed
    assert unseal(sealed, secret_key=KEY) == secret
    with pytest.raises(ConfigurationError, match="ADLOOM_SECRET_KEY has changed"):
        unseal(sealed, secret_key=KEY + "!")
