"""Moments in objects of the API."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from restow.migration.times import read_time, time_text

MOMENT = datetime(2024, 5, 6, 7, 8, 9, 999_999, tzinfo=UTC)


def test_a_moment_is_written_in_utc_and_cut() -> None:
    """Whole seconds, never one too many, whatever zone it was told in."""
    assert time_text(MOMENT) == "2024-05-06T07:08:09Z"
    assert time_text(MOMENT.astimezone(timezone(timedelta(hours=2)))) == "2024-05-06T07:08:09Z"


def test_a_moment_is_read_with_its_zone() -> None:
    """As servers and others write it."""
    assert read_time(time_text(MOMENT)) == MOMENT.replace(microsecond=0)
    assert read_time("2024-05-06T09:08:09.999999+02:00") == MOMENT


@pytest.mark.parametrize("value", [None, 5, "", "soon", "2024-05-06T07:08:09", {"time": "x"}])
def test_what_is_no_moment_is_none(value: object) -> None:
    """Without a zone it could be any."""
    assert read_time(value) is None
