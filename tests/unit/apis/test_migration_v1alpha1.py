"""The persisted hashes in a StorageState."""

from __future__ import annotations

import pytest

from restow.apis.migration_v1alpha1 import persisted_hashes


@pytest.mark.parametrize(
    ("found", "hashes"),
    [
        (None, ("Unknown",)),
        ([], ("Unknown",)),
        ("h1", ("Unknown",)),
        ({}, ("Unknown",)),
        (["h1"], ("h1",)),
        (["h1", "h2", "h1"], ("h1", "h2")),
        (["h1", "Unknown"], ("h1", "Unknown")),
        (["h1", ""], ("h1", "Unknown")),
        ([None, 7, "h1"], ("Unknown", "h1")),
    ],
)
def test_an_empty_or_malformed_list_means_unknown(found: object, hashes: tuple[str, ...]) -> None:
    """ "Unknown" is the default value: it does not mean that nothing is stored."""
    assert persisted_hashes(found) == hashes
