"""Durations, times and labels in table cells."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.endpoints.tables.values import (
    human_duration,
    label_selector,
    labels,
    moment,
    since,
    some_of,
)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (5 * 86400 + 3 * 3600, "5d3h"),
        (8 * 86400, "8d"),
        (700 * 86400, "700d"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)
def test_durations(seconds: int, shown: str) -> None:
    """A duration has the format of kubectl."""
    assert human_duration(timedelta(seconds=seconds)) == shown


@given(st.integers(0, 40 * 365 * 86400))
def test_a_duration_is_never_too_long(seconds: int) -> None:
    """A duration is rounded down to its last unit."""
    parts = re.findall(r"(\d+)([smhdy])", human_duration(timedelta(seconds=seconds)))
    read_back = sum(int(count) * _SECONDS[unit] for count, unit in parts)
    # A second unit that is zero is left out, so the remainder may reach to the next lower unit.
    slack = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}[parts[-1][1]]
    assert read_back <= seconds < read_back + slack


@pytest.mark.parametrize("value", [None, "", "soon", 7, {}, "0001-01-01T00:00:00Z", "2026-13-01"])
def test_invalid_times_are_unknown(value: object) -> None:
    """Missing, zero and invalid times have no age."""
    assert since(value, datetime(2026, 1, 1, tzinfo=UTC)) == "<unknown>"


def test_times_in_all_forms() -> None:
    """Offsets and fractions are parsed, and a time without an offset is in UTC."""
    expected = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for form in ("2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00", "2026-01-02T03:04:05"):
        assert moment(form) == expected
    assert moment("2026-01-02T03:04:05.000001Z") == expected + timedelta(microseconds=1)


def test_lists_are_cut() -> None:
    """Three members are shown, the others are counted."""
    assert some_of("abc") == "a,b,c"
    assert some_of("abcde") == "a,b,c + 2 more..."
    assert some_of([], empty="-") == "-"


def test_selectors() -> None:
    """Selectors have the syntax of the command line."""
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "f", "operator": "DoesNotExist"},
            {"key": "g", "operator": "Odd"},
        ],
    }
    assert label_selector(selector) == "a=1,b=2,c in (x,y),d notin (z),e,!f"
    assert label_selector(None) == "<none>"
    assert labels({"b": "2", "a": "1", "c": 3}) == "a=1,b=2"
