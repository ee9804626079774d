"""The releases of a simulated cluster: four, as in the table of the voting proposal.

x     knows v1                     x+2   knows v1 and v2, stores v2
x+1   knows v1 and v2, stores v1   x+3   knows v2
"""

from __future__ import annotations

from functools import cache
from typing import Final

import orjson

from restow.kinds.releases import parse_release
from restow.resources.catalog import Catalog, release_catalog

GROUP: Final = "example.com"
KIND: Final = "Widget"
PLURAL: Final = "widgets"
NAME: Final = f"{GROUP}.{PLURAL}"
ROOT: Final = f"/registry/{GROUP}/{PLURAL}/"
RELEASES: Final = {
    "x": (("v1",), "v1"),
    "x+1": (("v1", "v2"), "v1"),
    "x+2": (("v1", "v2"), "v2"),
    "x+3": (("v2",), "v2"),
}
"""Versions that a release knows, and the one that it would store."""
_GROUPS: Final = (GROUP, "migration.k8s.io", "storagemigration.k8s.io")
_NEEDED: Final = (
    *(("", "namespaces"), ("", "serviceaccounts"), ("", "configmaps"), ("", "secrets")),
    ("", "endpoints"),
)
"""Besides, by those who keep house, and by those who look for all servers."""


def stored_by(release: str) -> str:
    """The version that a release would store."""
    return f"{GROUP}/{RELEASES[release][1]}"


@cache
def catalog_of(release: str) -> Catalog:
    """What coordination and migration need, and one kind to play with. Not to be changed."""
    versions, storage = RELEASES[release]
    listed = {
        "group": GROUP,
        "kind": KIND,
        "plural": PLURAL,
        "scope": "Namespaced",
        "versions": [{"name": name, "served": True, "decodable": True} for name in versions],
        "storage": storage,
        "conversion": "rename",
        "schema": "open",
    }
    text = orjson.dumps({"release": release, "kinds": [listed]})
    found = release_catalog(parse_release(text, f"release {release}"))
    kept = [
        each
        for each in found
        if each.kind.pinned
        or each.kind.group_resource.group in _GROUPS
        or each.kind.group_resource in _NEEDED
    ]
    return Catalog(kept, name=release)
