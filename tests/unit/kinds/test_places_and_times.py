"""Validation of addresses, port names, schedules and time zones."""

from __future__ import annotations

import pytest

from restow.kinds.validation.addresses import (
    address_problem,
    port_name_problem,
    special_address_problem,
)
from restow.kinds.validation.schedules import schedule_problem, zone_problem


@pytest.mark.parametrize("text", ["10.9.8.7", "127.0.0.1", "0.0.0.0", "::1", "2001:db8::ffff"])
def test_good_addresses(text: str) -> None:
    """Both families pass."""
    assert address_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1.2.3", "300.1.1.1", "1.2.3.4/8", "1.2.3.4 "),
        *("fe80::1%eth0", "1" * 500, "\u0661.2.3.4"),
    ],
)
def test_bad_addresses(text: str) -> None:
    """An invalid address, or more than one, is rejected."""
    assert address_problem(text) == "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


@pytest.mark.parametrize("text", ["010.0.0.1", "10.0.0.01", "::ffff:01.2.3.4"])
def test_addresses_that_two_readers_read_differently(text: str) -> None:
    """A leading zero may mean octal, so it is rejected."""
    assert address_problem(text) == "must not have leading 0s"
    assert "mapped" in str(address_problem("::ffff:127.0.0.1"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0", "unspecified"),
        ("127.3.2.1", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local range"),
        ("fe80::1", "link-local range"),
        ("224.0.0.5", "multicast"),
        ("10.0.0.1", ""),
    ],
)
def test_special_addresses(text: str, why: str) -> None:
    """Loopback, unspecified and similar addresses are recognized."""
    assert why in str(special_address_problem(text) or "")
    assert bool(special_address_problem(text)) is bool(why)


def test_names_of_ports() -> None:
    """Letters, digits and single hyphens inside, fifteen at most, one letter at least."""
    for text in ("http", "a", "8080-tcp", "x-y-z", "a" * 15):
        assert port_name_problem(text) is None
    for text in ("", "HTTP", "a_b", "123", "a--b", "-a", "a-", "a" * 16, "\u0430"):
        assert port_name_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        *("* * * * *", "0 0 1 1 0", "*/5 0-23/2 1,15 jan-DEC mon", "? 1 * * ?", "59 23 31 12 6"),
        *("@daily", "@yearly", "@every 1h30m", "0  0\t* * SUN"),
    ],
)
def test_good_schedules(text: str) -> None:
    """Numbers, names, lists, ranges, steps and macros pass."""
    assert schedule_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"),
        *("* * * * 7", "a * * * *", "5-1 * * * *", "1-2-3 * * * *", "*/0 * * * *", "*/x * * * *"),
        *("@sometimes", "@every soon", "TZ=UTC * * * * *", "-1 * * * *", "1,,2 * * * *"),
        *("\u0661 * * * *", "9" * 50 + " * * * *", "* " * 2000),
    ],
)
def test_bad_schedules(text: str) -> None:
    """Any other form is rejected."""
    assert schedule_problem(text)


def test_time_zones() -> None:
    """Names pass, whether or not such a zone exists; names that could be a path are rejected."""
    for text in ("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"):
        assert zone_problem(text) is None
    for text in ("", "Local", "../../etc/passwd", "/etc/passwd", "a//b", "a b", "a\x00", "a" * 99):
        assert zone_problem(text)
