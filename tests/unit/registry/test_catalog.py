"""The resources that a server hosts, and those whose objects it stores."""

from __future__ import annotations

from collections import Counter

from restow.registry.catalog import builtin_catalog


def test_resources_that_share_a_store_are_listed_once() -> None:
    """Events are stored as those of the core group; events.k8s.io has no StorageVersion."""
    persisted = builtin_catalog().persisted()
    assert [each.group for each in persisted if each.plural == "events"] == [""]
    assert max(Counter(each.root for each in persisted).values()) == 1
