"""The clusters of the coordination tests, for tests of encryption."""

from __future__ import annotations

from tests.e2e.storageversion.conftest import cluster, keys, new_cluster

__all__ = ["cluster", "keys", "new_cluster"]
