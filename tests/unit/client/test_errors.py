"""The conversion of HTTP responses and failures to errors, which is total."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import SeededRandomness
from restow.apimachinery import status
from restow.apimachinery.status import StatusError
from restow.apimachinery.status_decoder import CLASSES
from restow.client import ConnectionFailed, RetryPolicy
from restow.client.errors import ProtocolBroken, connection_failed, status_of_answer

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ("message", "reason", "code", "details", "metadata")


@given(
    code=st.integers(300, 999),
    body=st.binary(max_size=60)
    | JSON_VALUES.map(orjson.dumps)
    | st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES).map(
        lambda value: orjson.dumps({"kind": "Status", **value})
    ),
    header=st.none() | st.text(max_size=12),
)
def test_every_answer_has_its_error(code: int, body: bytes, header: str | None) -> None:
    """Any code with any body and any Retry-After is a StatusError with that code and a message."""
    headers = {} if header is None else {"retry-after": header}
    error = status_of_answer(code, headers, body)
    assert isinstance(error, StatusError)
    assert error.code == code
    assert error.message
    assert error.retry_after_seconds >= 0


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_comes_back(kind: type[StatusError]) -> None:
    """The client raises the error of the server, with message, code and reason."""
    sent = kind("why", retry_after_seconds=3)
    error = status_of_answer(sent.code, {}, sent.to_bytes())
    assert type(error) is kind
    assert (error.message, error.reason, error.retry_after_seconds) == ("why", kind.reason, 3)


def test_the_http_status_determines_the_error() -> None:
    """A body with another code, passed by a proxy, does not change the class of the error."""
    error = status_of_answer(503, {}, StatusError("x", code=404).to_bytes())
    assert error.code == 503


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("5", 5), (" 7 ", 7), ("-1", 1), ("Wed, 21 Oct 2026 07:28:00 GMT", 1), ("9" * 9, 86_400)],
)
def test_retry_after(header: str, seconds: int) -> None:
    """Seconds are accepted up to a day; a date counts as one second."""
    error = status_of_answer(429, {"retry-after": header}, b"Too many requests")
    assert isinstance(error, status.TooManyRequests)
    assert (error.retry_after_seconds, error.message) == (seconds, "Too many requests")


FAILURES: dict[BaseException, str] = {
    ssl.SSLCertVerificationError(1, "x"): "certificate-authority",
    ssl.SSLError(1, "x"): "HTTPS",
    TimeoutError(): "server is running",
    socket.gaierror(-2, "Name or service not known"): "DNS",
    ConnectionRefusedError(): "port",
    ConnectionResetError(): "try again",
    BrokenPipeError(): "try again",
    asyncio.IncompleteReadError(b"", 5): "try again",
    ProtocolBroken("noise"): "Kubernetes API server",
    asyncio.LimitOverrunError("long", 1): "Kubernetes API server",
    OSError(errno.EHOSTUNREACH, "x"): "network",
    OSError(errno.EMFILE, "Too many open files"): "network",
    RuntimeError("?"): "report",
}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_every_failure_below_http_has_a_remedy(failure: BaseException) -> None:
    """Every failure below HTTP is one error, which names the server and the next step."""
    error = connection_failed(failure, server="https://h:1")
    assert str(error).startswith("https://h:1: ")
    assert FAILURES[failure] in error.advice


def test_unknown_outcomes_of_writes_are_reported() -> None:
    """A write whose response is lost may have been executed, and the error says so."""
    error = connection_failed(ConnectionResetError(), server="s", may_have_happened=True)
    assert "may have been executed" in str(error)
    assert connection_failed(error, server="t") is error
    assert isinstance(error, ConnectionFailed)


@given(
    code=st.sampled_from([400, 409, 410, 429, 500, 503, 504]),
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    asked=st.integers(0, 100),
    attempts=st.integers(1, 12),
)
def test_requests_are_retried_only_if_safe(
    code: int, method: str, asked: int, attempts: int
) -> None:
    """Only with Retry-After; writes only if nothing was executed; limited in number and time."""
    policy = RetryPolicy(attempts_max=10, wait_seconds_max=30, jitter=0.25)
    wait_seconds = policy.wait_seconds(
        StatusError("", code=code, retry_after_seconds=asked),
        method=method,
        attempts=attempts,
        randomness=SeededRandomness(1),
    )
    is_safe = code in {429, 503} or (code >= 500 and method == "GET")
    if 0 < asked <= 30 and attempts < 10 and is_safe:
        assert wait_seconds is not None
        assert asked <= wait_seconds <= asked * 1.25
    else:
        assert wait_seconds is None
