"""The releases of a simulated cluster: four, as in the table of the voting proposal.

x     has v1                       x+2   has v1 and v2, stores v2
x+1   has v1 and v2, stores v1     x+3   has v2

Worlds with advice (`advice`) have two more, which differ from x+1 in one thing each:

x+1c  widgets are cluster-scoped   x+1g  gadgets are built in, which are a CRD elsewhere
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from restow.kinds.releases import Release, parse_release
from restow.registry.catalog import Catalog, release_catalog

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
"""Versions of a release, and its storage version."""
CUSTOM_GROUP: Final = "custom.example.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedKind:
    """A kind of a release that is not the same in all releases."""

    group: str
    kind: str
    plural: str
    scope: str
    versions: tuple[str, ...]
    storage: str

    @property
    def root(self) -> str:
        return f"/registry/{self.group}/{self.plural}/"


def _widgets(release: str, *, scope: str = "Namespaced") -> HostedKind:
    versions, storage = RELEASES[release]
    return HostedKind(
        group=GROUP, kind=KIND, plural=PLURAL, scope=scope, versions=versions, storage=storage
    )


_GADGETS: Final = HostedKind(
    group=CUSTOM_GROUP,
    kind="Gadget",
    plural="gadgets",
    scope="Namespaced",
    versions=("v1", "v2"),
    storage="v1",
)
CLUSTER_SCOPED: Final = "x+1c"
WITH_GADGETS: Final = "x+1g"
HOSTED: Final = {
    **{release: (_widgets(release),) for release in RELEASES},
    CLUSTER_SCOPED: (_widgets("x+1", scope="Cluster"),),
    WITH_GADGETS: (_widgets("x+1"), _GADGETS),
}
"""The kinds of each release that are not the same in all of them."""
_GROUPS: Final = (
    *(GROUP, CUSTOM_GROUP),
    *("migration.k8s.io", "storage.restow.dev", "storagemigration.k8s.io"),
)
_NEEDED: Final = (
    *(("", "namespaces"), ("", "serviceaccounts"), ("", "configmaps"), ("", "secrets")),
    ("", "endpoints"),
)
"""Resources that controllers use, and those with the servers' addresses."""


def stored_by(release: str) -> str:
    """The storage version of a release."""
    return f"{GROUP}/{RELEASES[release][1]}"


@cache
def release_of(release: str) -> Release:
    """The release as production code reads it from a file."""
    listed = [
        {
            "group": each.group,
            "kind": each.kind,
            "plural": each.plural,
            "scope": each.scope,
            "versions": [
                {"name": name, "served": True, "decodable": True} for name in each.versions
            ],
            "storage": each.storage,
            "conversion": "rename",
            "schema": "open",
        }
        for each in HOSTED[release]
    ]
    text = orjson.dumps({"release": release, "kinds": listed})
    return parse_release(text, f"release {release}")


@cache
def catalog_of(release: str) -> Catalog:
    """The kinds of coordination and migration, and those under test. Must not be changed."""
    found = release_catalog(release_of(release))
    kept = [
        each
        for each in found
        if each.kind.pinned
        or each.kind.group_resource.group in _GROUPS
        or each.kind.group_resource in _NEEDED
    ]
    return Catalog(kept, name=release)
