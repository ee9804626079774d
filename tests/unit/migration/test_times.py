"""Times in API objects."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from restow.migration.times import read_time, time_text

MOMENT = datetime(2024, 5, 6, 7, 8, 9, 999_999, tzinfo=UTC)


def test_a_time_is_written_in_utc_and_truncated() -> None:
    """A time of any zone is written in whole seconds, truncated."""
    assert time_text(MOMENT) == "2024-05-06T07:08:09Z"
    assert time_text(MOMENT.astimezone(timezone(timedelta(hours=2)))) == "2024-05-06T07:08:09Z"


def test_a_time_is_read_with_its_zone() -> None:
    """Times with fractions and other zones, as other writers produce them, are read."""
    assert read_time(time_text(MOMENT)) == MOMENT.replace(microsecond=0)
    assert read_time("2024-05-06T09:08:09.999999+02:00") == MOMENT


@pytest.mark.parametrize("value", [None, 5, "", "soon", "2024-05-06T07:08:09", {"time": "x"}])
def test_an_invalid_time_is_none(value: object) -> None:
    """A time without a zone is ambiguous, and is invalid too."""
    assert read_time(value) is None
