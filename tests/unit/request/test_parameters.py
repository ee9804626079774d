"""Query parameters that many verbs share."""

from __future__ import annotations

import math

import pytest

from restow.request.parameters import REQUEST_SECONDS_MAX, seconds_of
from restow.request.request_info import parse_request


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("100ms", 0.1),
        ("%2B100ms", 0.1),
        ("1s250ms", 1.25),
        ("5us", 5e-6),
        ("5%C2%B5s", 5e-6),
        ("7ns", 7e-9),
        ("59.9s", 59.9),
        ("1m", REQUEST_SECONDS_MAX),
        ("100h", REQUEST_SECONDS_MAX),
        ("0", REQUEST_SECONDS_MAX),
        ("0s", REQUEST_SECONDS_MAX),
        ("-5s", REQUEST_SECONDS_MAX),
        ("", REQUEST_SECONDS_MAX),
    ],
)
def test_how_long_a_request_may_take(text: str, seconds: float) -> None:
    """The requested duration in Go's format, up to the server's maximum."""
    info = parse_request("GET", f"/api/v1/configmaps?timeout={text}")
    assert seconds_of(info) == pytest.approx(seconds)
    assert seconds_of(parse_request("GET", f"/api/v1/pods?watch=1&timeout={text}")) == math.inf
