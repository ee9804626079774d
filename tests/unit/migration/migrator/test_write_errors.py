"""The meaning of error replies, for one object and for the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupKind, GroupResource
from restow.apimachinery.status import StatusError
from restow.client import ConnectionFailed
from restow.migration.migrator.write_errors import (
    DRY_RUN_UNSUPPORTED,
    MESSAGE_LENGTH_MAX,
    SERVER_ATTEMPTS_MAX,
    WEBHOOK_ATTEMPTS_MAX,
    Means,
    classify,
    message_of,
    reason_of,
)

WIDGETS = GroupResource("example.com", "widgets")
KIND = GroupKind("example.com", "Widget")


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (status.not_found(WIDGETS, "a"), Means.GONE),
        (status.resource_not_found(), Means.STOP),
        (StatusError("404 page not found", code=404), Means.STOP),
        (status.unauthorized(), Means.STOP),
        (status.conflict(WIDGETS, "a"), Means.CONFLICT),
        (
            status.invalid(KIND, "a", [field_errors.invalid("metadata.uid", "x", "is immutable")]),
            Means.CONFLICT,
        ),
        (
            status.invalid(KIND, "a", [field_errors.invalid("spec.size", 0, "too small")]),
            Means.REFUSED,
        ),
        (status.bad_request("no"), Means.REFUSED),
        (status.forbidden("no"), Means.REFUSED),
        (status.body_too_large(1), Means.REFUSED),
        (status.method_not_allowed(), Means.UNSUPPORTED),
        (status.unsupported_media_type(["application/json"]), Means.UNSUPPORTED),
        (status.too_many_requests(), Means.RETRY),
        (status.internal("no"), Means.RETRY),
        (status.unavailable("no"), Means.RETRY),
        (status.server_timeout(WIDGETS, "update"), Means.RETRY),
        (status.timeout("no"), Means.RETRY),
        (ConnectionFailed("s", "refused", advice=""), Means.RETRY),
    ],
)
def test_classification(error: StatusError | ConnectionFailed, means: Means) -> None:
    """Each kind of error has its class."""
    assert classify(error).means is means


def test_server_errors_and_object_errors() -> None:
    """Load and lost connections are attributed to the server; a persistent error may be the
    object's."""
    for error in (
        status.too_many_requests(retry_after_seconds=5),
        status.unavailable("no", retry_after_seconds=5),
    ):
        verdict = classify(error)
        assert verdict.is_about_server
        assert verdict.is_load
        assert verdict.wait_seconds == 5
        assert verdict.attempts_max == SERVER_ATTEMPTS_MAX
    assert classify(ConnectionFailed("s", "refused", advice="")).is_about_server
    assert not classify(status.internal("no")).is_about_server
    assert not classify(status.internal("no")).is_load
    assert classify(status.timeout("no")).is_load
    webhook = status.internal('failed calling webhook "a": no')
    assert classify(webhook).attempts_max == WEBHOOK_ATTEMPTS_MAX


@given(
    code=st.integers(100, 999),
    reason=st.text(max_size=20),
    message=st.text(max_size=2000),
    seconds=st.integers(0, 10**6),
)
def test_every_error_is_classified(code: int, reason: str, message: str, seconds: int) -> None:
    """For any reply, retries are bounded and the message is truncated."""
    error = StatusError(message, code=code, reason=reason, retry_after_seconds=seconds)
    verdict = classify(error)
    assert 1 <= verdict.attempts_max <= SERVER_ATTEMPTS_MAX
    assert (verdict.attempts_max > 1) == (verdict.means is Means.RETRY)
    assert reason_of(error)
    assert len(message_of(error)) <= MESSAGE_LENGTH_MAX


def test_reasons() -> None:
    """Each error has a one-word reason, also if Kubernetes gives none."""
    assert reason_of(status.conflict(WIDGETS, "a")) == "Conflict"
    assert reason_of(StatusError("invalid character", code=500)) == "InternalError"
    assert reason_of(StatusError("strange", code=418)) == "Unknown"
    assert reason_of(ConnectionFailed("s", "refused", advice="")) == "ConnectionFailed"
    assert reason_of(status.bad_request("webhook does not support dry run")) == DRY_RUN_UNSUPPORTED
