"""The StorageVersion as servers write it."""

from __future__ import annotations

import msgspec

from restow.apis.internal_v1alpha1 import StorageVersion


def test_the_spec_is_empty() -> None:
    """Servers write an empty spec, which KEP-2339 reserves."""
    assert msgspec.to_builtins(StorageVersion(metadata={"name": "apps.deployments"}))["spec"] == {}
