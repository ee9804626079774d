"""CRDs keep the versions that servers write in `storedVersions`."""

from __future__ import annotations

from typing import Any

import pytest

from restow.registry.catalog import builtin_catalog
from restow.registry.custom.crd_shape import CrdShape
from restow.registry.custom.crds import GROUP, PLURAL


def definition(*stored: str) -> dict[str, Any]:
    versions = [{"name": name, "served": True, "storage": name == "v3"} for name in ("v1", "v3")]
    return {
        "metadata": {"name": "gears.example.com"},
        "spec": {"group": "example.com", "names": {"plural": "gears"}, "versions": versions},
        "status": {"storedVersions": list(stored)},
    }


@pytest.mark.parametrize(
    ("written", "kept"),
    [((), ["v3"]), (("v3",), ["v3"]), (("v1", "v3"), ["v1", "v3"]), (("v7",), ["v3"])],
)
def test_a_version_that_is_written_stays_listed(written: tuple[str, ...], kept: list[str]) -> None:
    """A version that a server still writes is added back after its removal from the list."""
    resource = builtin_catalog().named(GROUP, PLURAL)
    assert resource is not None
    asked = []

    def ask(group: str, plural: str) -> tuple[str, ...]:
        asked.append((group, plural))
        return written

    shape = CrdShape(resource.kind, resource.converter, written=ask)
    old, new = definition("v1", "v3"), definition("v3")
    shape.prepare_update(new, old)
    assert new["status"]["storedVersions"] == kept
    assert old["status"]["storedVersions"] == ["v1", "v3"]
    assert asked == [("example.com", "gears")]


def test_other_changes_query_no_versions() -> None:
    """A write that removes no version does not query the versions that servers write."""
    resource = builtin_catalog().named(GROUP, PLURAL)
    assert resource is not None

    def ask(_group: str, _plural: str) -> tuple[str, ...]:
        raise AssertionError("asked")

    shape = CrdShape(resource.kind, resource.converter, written=ask)
    new = definition("v1", "v3")
    shape.prepare_update(new, definition("v3"))
    assert new["status"]["storedVersions"] == ["v1", "v3"]
