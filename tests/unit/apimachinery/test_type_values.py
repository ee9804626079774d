"""Times, durations and base64."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.type_values import (
    ABSENT,
    EPOCH,
    decode_base64,
    encode_base64,
    is_canonical_base64,
    is_canonical_micro_time,
    is_canonical_time,
    parse_duration,
    parse_time,
    time_from_unix,
    time_to_unix,
    write_duration,
    write_micro_time,
    write_time,
)

# From the second day of the year 1 to the end of 9999, in microseconds.
moments = st.integers(-62_135_510_400_000_000, 253_402_300_799_999_999).map(
    lambda microseconds: EPOCH + timedelta(microseconds=microseconds)
)


@pytest.mark.parametrize(
    ("text", "second", "micro"),
    [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000Z"),
        ("2024-01-02T03:04:05+02:30", "2024-01-02T00:34:05Z", "2024-01-02T00:34:05.000000Z"),
        (
            "2026-11-15T19:51:08.742963+00:00",
            "2026-11-15T19:51:08Z",
            "2026-11-15T19:51:08.742963Z",
        ),
        ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456Z"),
        ("2024-01-02T03:04:05.5Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.500000Z"),
        ("0001-01-01T00:00:00Z", ABSENT, ABSENT),
    ],
)
def test_times_are_written_in_utc(text: str, second: str, micro: str) -> None:
    """Any offset is parsed; the result has `Z`, and no or six fractional digits."""
    assert write_time(parse_time(text)) == second
    assert write_micro_time(parse_time(text)) == micro


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2024-01-02",
        "2024-01-02 03:04:05Z",
        "2024-01-02T03:04:05",
        "2024-13-02T03:04:05Z",
        "2024-02-30T03:04:05Z",
        "2024-01-02T24:04:05Z",
        "2024-01-02T03:04:60Z",
        "2024-W01-1T03:04:05Z",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
        "\u0662024-01-02T03:04:05Z",
        "2024-01-02T03:04:05+99:00",
    ],
)
def test_invalid_times(text: str) -> None:
    """Invalid times raise ValueError, even if Python's parser accepts them."""
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time(text)
    assert not is_canonical_time(text)


@given(moments)
def test_canonical_times(moment: datetime) -> None:
    """The fast test accepts exactly the output of the formatter."""
    assert is_canonical_time(write_time(moment))
    assert is_canonical_micro_time(write_micro_time(moment))
    assert parse_time(write_micro_time(moment)) == moment
    assert time_from_unix(*time_to_unix(moment)) == moment


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 10**12, -(10**12)])
def test_times_that_python_cannot_hold_are_refused(seconds: int) -> None:
    """Seconds outside of the years 1 to 9999 raise ValueError."""
    with pytest.raises(ValueError, match="years"):
        time_from_unix(seconds, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", "1h0m0s"),
        ("90m", "1h30m0s"),
        ("1.5s", "1.5s"),
        ("-1.5h", "-1h30m0s"),
        ("100ms", "100ms"),
        ("1500us", "1.5ms"),
        ("7ns", "7ns"),
        ("0", "0s"),
        ("1h2m3s4ms", "1h2m3.004s"),
    ],
)
def test_durations_have_the_form_of_go(text: str, expected: str) -> None:
    """Parsing and formatting gives Go's format."""
    assert write_duration(parse_duration(text)) == expected


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_every_duration_is_read_back(nanoseconds: int) -> None:
    """Formatting and parsing loses no digits."""
    assert parse_duration(write_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("text", ["", "1", "h", ".s", "1x", "1h ", "s1", "9" * 30 + "h", "1" * 200])
def test_invalid_durations(text: str) -> None:
    """A unit is required, and values are limited to 64 bits."""
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@given(st.binary())
def test_base64_is_canonical_when_written_here(data: bytes) -> None:
    """Encoded bytes are canonical, and decode to the same bytes."""
    text = encode_base64(data)
    assert is_canonical_base64(text)
    assert decode_base64(text) == data
    assert decode_base64(text[:4] + "\r\n" + text[4:]) == data


@given(st.text("AB/+=\n-_é", max_size=9))
def test_only_the_form_that_is_written_is_canonical(text: str) -> None:
    """The fast test agrees with decoding and encoding again."""
    try:
        again = encode_base64(decode_base64(text))
    except ValueError:
        again = None
    assert is_canonical_base64(text) == (again == text)
