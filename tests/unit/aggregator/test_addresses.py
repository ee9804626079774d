"""Addresses and names of backends: which are good, and which are refused."""

from __future__ import annotations

import pytest

from restow.aggregator.addresses import is_host_name, parse_address, refusal_of


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "192.168.1.9", "203.0.113.7", "fd00::7", "2001:db8::1"]
)
def test_an_ordinary_address_is_good(text: str) -> None:
    """Addresses of clusters and of the world are connected to."""
    assert refusal_of(text, allows_loopback=False) is None


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_a_choice(text: str) -> None:
    """This machine is refused, unless a server is told that its cluster is here."""
    assert refusal_of(text, allows_loopback=False) is not None
    assert refusal_of(text, allows_loopback=True) is None


@pytest.mark.parametrize("text", ["169.254.1.1", "::ffff:169.254.1.1", "fe80::1", "0.0.0.0", "::"])
def test_some_addresses_are_no_choice(text: str) -> None:
    """Link-local and unspecified addresses are refused whatever is chosen."""
    assert refusal_of(text, allows_loopback=True) is not None


@pytest.mark.parametrize("text", ["010.0.0.1", "1.2.3", "fe80::1%eth0", "a.b", ""])
def test_what_is_no_address(text: str) -> None:
    """Old and partial spellings of numbers are no addresses."""
    assert parse_address(text) is None


@pytest.mark.parametrize("text", ["a", "a.b.svc", "x-1.example.com.", "_srv.example"])
def test_names(text: str) -> None:
    """What DNS may know is a name."""
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text", ["", "a..b", "-a", "a b", "a/b", "a@b", "1.2.3", "10.0.0.1", "a" * 64]
)
def test_what_is_no_name(text: str) -> None:
    """What would be read as a number or as more than a name is none."""
    assert not is_host_name(text)
