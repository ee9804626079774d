"""Limit flags of `restow serve`: the resulting options, and invalid values."""

import argparse

import pytest

from restow.apiserver.limit_options import LimitOptions
from restow.apiserver.limits import listener_limits, request_limits
from restow.cli.serve_limits import add_limits, limit_options
from restow.httpserver import Limits
from restow.request.limits import RequestLimits


def options(*words: str) -> LimitOptions:
    parser = argparse.ArgumentParser()
    add_limits(parser)
    return limit_options(parser.parse_args(words))


def test_defaults() -> None:
    """Omitted flags have the defaults of the components."""
    assert options() == LimitOptions()
    assert request_limits(LimitOptions()) == RequestLimits()
    assert listener_limits(LimitOptions()) == Limits()


def test_words() -> None:
    """Each flag sets the option of its component."""
    found = options(
        *("--max-requests-inflight", "4", "--max-mutating-requests-inflight", "0"),
        *("--max-watches", "5", "--max-watches-per-user", "6"),
        *("--max-connections", "7", "--max-connections-per-address", "3"),
        *("--max-unauthenticated-connections", "8", "--max-privileged-connections", "9"),
        *("--request-timeout", "5m", "--min-request-timeout", "90"),
    )
    limits, listener = request_limits(found), listener_limits(found)
    assert (limits.in_flight.reads_max, limits.in_flight.writes_max) == (4, 0)
    assert (limits.in_flight.streams_max, limits.in_flight.streams_per_user_max) == (5, 6)
    assert (listener.connections_max, listener.connections_per_address_max) == (7, 3)
    assert listener.connections_per_user_max == 1
    assert (listener.unauthenticated_connections_max, listener.privileged_connections_max) == (8, 9)
    assert (limits.deadlines.request_seconds, limits.deadlines.watch_seconds) == (300, 90)
    assert limits.deadlines.write_seconds == 34
    assert request_limits(options("--request-timeout", "5")).deadlines.write_seconds == 5


def test_few_file_descriptors() -> None:
    """Each class of connections has a share of the file descriptors, so that none can use up those
    of another; without a limit for a user, each has a fifth of the connections."""
    found = listener_limits(LimitOptions(), files_max=1024)
    classes = found.unauthenticated_connections_max + found.privileged_connections_max
    assert found.connections_max + classes + found.handshakes_max == 1024 * 7 // 8
    assert found.connections_per_user_max == found.connections_max // 5
    assert listener_limits(LimitOptions(connections_per_user_max=3)).connections_per_user_max == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests_in_flight_max", -1),
        ("watches_per_user_max", 10_000_000),
        ("connections_max", 0),
        ("request_seconds", 0),
        ("watch_seconds_min", 1e9),
    ],
)
def test_values_that_cannot_work(name: str, value: float) -> None:
    """They are refused with an error that names the flag."""
    with pytest.raises(ValueError, match=r"^--"):
        LimitOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [("--max-watches", "-1"), ("--request-timeout", "soon")])
def test_words_that_cannot_work(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused before anything is started."""
    with pytest.raises(SystemExit):
        options(*words)
    assert words[0] in capsys.readouterr().err
