"""Permitted and rejected addresses and names of backends."""

from __future__ import annotations

import pytest

from restow.aggregator.addresses import is_host_name, parse_address, refusal_of


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "192.168.1.9", "203.0.113.7", "fd00::7", "2001:db8::1"]
)
def test_an_ordinary_address_is_good(text: str) -> None:
    """Private and public unicast addresses are permitted."""
    assert refusal_of(text, allows_loopback=False) is None


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_a_choice(text: str) -> None:
    """Loopback is rejected, unless the cluster runs on this machine."""
    assert refusal_of(text, allows_loopback=False) is not None
    assert refusal_of(text, allows_loopback=True) is None


@pytest.mark.parametrize("text", ["169.254.1.1", "::ffff:169.254.1.1", "fe80::1", "0.0.0.0", "::"])
def test_some_addresses_are_no_choice(text: str) -> None:
    """Link-local and unspecified addresses are rejected with any option."""
    assert refusal_of(text, allows_loopback=True) is not None


@pytest.mark.parametrize("text", ["010.0.0.1", "1.2.3", "fe80::1%eth0", "a.b", ""])
def test_invalid_addresses(text: str) -> None:
    """Old and partial spellings of numbers are not addresses."""
    assert parse_address(text) is None


@pytest.mark.parametrize("text", ["a", "a.b.svc", "x-1.example.com.", "_srv.example"])
def test_names(text: str) -> None:
    """Names that DNS can resolve are valid."""
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text", ["", "a..b", "-a", "a b", "a/b", "a@b", "1.2.3", "10.0.0.1", "a" * 64]
)
def test_invalid_names(text: str) -> None:
    """A text that could be read as a number, or as more than a name, is invalid."""
    assert not is_host_name(text)
