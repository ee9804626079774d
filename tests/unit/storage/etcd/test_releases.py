"""Releases of etcd: rejected ones, ones with known faults, and supported ones."""

from __future__ import annotations

import pytest

from restow.storage.etcd.releases import is_too_old, known_fault


@pytest.mark.parametrize("version", ["3.3.27", "2.3.8", "", "strange"])
def test_too_old(version: str) -> None:
    """A release older than 3.4, or an unreadable version, is rejected."""
    assert is_too_old(version)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.5.0", "lose acknowledged writes"),
        ("3.5.2", "lose acknowledged writes"),
        ("3.5.3", "stale data"),
        ("3.5.27", "stale data"),
        ("3.4.41", "stale data"),
        ("3.6.8", "stale data"),
        ("3.6.0-rc.1", "stale data"),
    ],
)
def test_known_faults(version: str, words: str) -> None:
    """A release with a known fault is used, and the message names the one with the fix."""
    assert not is_too_old(version)
    assert words in known_fault(version)
    assert "or newer" in known_fault(version)


@pytest.mark.parametrize("version", ["3.4.42", "3.5.28", "3.6.9", "3.6.10", "3.7.0", "4.0.0"])
def test_no_known_fault(version: str) -> None:
    """Fixed releases and later minor versions have no known fault."""
    assert not is_too_old(version)
    assert known_fault(version) == ""
