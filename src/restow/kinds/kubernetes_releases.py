"""Kubernetes releases: the storage version and the readable versions of each resource.

The table is shipped with the package. `tools/build_kubernetes_releases.py` builds it from the
storage test of each release. It has the versions that a release serves with all APIs enabled. A
release may be able to read more versions than those.

    {"releases": ["1.14", ...],
     "resources": {"apps/deployments": ["Deployment", [[0, "v1beta1 v1", "apps/v1"], ...]]}}

Each row applies from the release with its number until the next row; an empty row: the resource
does not exist. Not here: releases that a restow server can run (`releases`).
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from restow.apimachinery.names import GroupResource, GroupVersion
from restow.kinds.kind import api_version
from restow.kinds.releases import ReleaseError

PREFIX: Final = "kubernetes-"
_NAME: Final = re.compile(r"(?:kubernetes-)?v?1\.([0-9]{1,3})(?:\..*)?", flags=re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResource:
    """A resource in a release."""

    resource: GroupResource
    kind: str
    versions: tuple[str, ...]
    """The known `apiVersion`s that it reads; of all groups that share the objects."""
    storage: str
    """The storage version, as `apiVersion`."""


@dataclass(frozen=True, slots=True)
class KubernetesRelease:
    """A Kubernetes release and its resources."""

    minor: int
    resources: dict[GroupResource, StoredResource]

    @property
    def name(self) -> str:
        return f"{PREFIX}1.{self.minor}"


def minor_of(text: str) -> int | None:
    """Return 29 for `1.29`, `v1.29.3` or `kubernetes-1.29`; None for other texts."""
    found = _NAME.fullmatch(text.strip())
    return int(found[1]) if found else None


def known_minors() -> tuple[int, ...]:
    """Return the minor versions of the releases in the table, in order."""
    return tuple(int(name.partition(".")[2]) for name in _table()["releases"])


@cache
def kubernetes_release(minor: int) -> KubernetesRelease:
    """Return a release of the table; raises ReleaseError if it is not there."""
    minors = known_minors()
    if minor not in minors:
        raise ReleaseError(
            f"Kubernetes 1.{minor} is not in the table of releases, which has"
            f" 1.{minors[0]} to 1.{minors[-1]}"
        )
    number = minors.index(minor)
    rows: dict[GroupResource, tuple[str, list[str], str]] = {}
    shared: dict[tuple[str, str], list[str]] = {}
    for name, (kind, changes) in _table()["resources"].items():
        served, storage = _row_at(changes, number)
        if not storage:
            continue
        resource = _resource(name)
        versions = [api_version(resource.group, each) for each in served.split()]
        rows[resource] = kind, versions, storage
        # Groups with the same storage version share the objects, and read each other's versions.
        place = (GroupVersion.parse(storage).group, resource.resource)
        shared.setdefault(place, []).extend((*versions, storage))
    found: dict[GroupResource, StoredResource] = {}
    for resource, (kind, _, storage) in rows.items():
        place = (GroupVersion.parse(storage).group, resource.resource)
        found[resource] = StoredResource(
            resource=resource,
            kind=kind,
            versions=tuple(dict.fromkeys(shared[place])),
            storage=storage,
        )
    return KubernetesRelease(minor, found)


def is_known(resource: GroupResource) -> bool:
    """Whether any release of the table has the resource."""
    return _name(resource) in _table()["resources"]


def stored_before(resource: GroupResource, minor: int) -> tuple[str, ...]:
    """Return every storage version of the resource in the releases up to this one."""
    entry = _table()["resources"].get(_name(resource))
    if entry is None:
        return ()
    numbers = [number for number, each in enumerate(known_minors()) if each <= minor]
    written = [storage for number, _, storage in entry[1] if storage and number in numbers]
    return tuple(dict.fromkeys(written))


def _row_at(changes: list[Any], number: int) -> tuple[str, str]:
    row = ("", "")
    for first, versions, storage in changes:
        if first <= number:
            row = (versions, storage)
    return row


def _resource(name: str) -> GroupResource:
    group, _, plural = name.rpartition("/")
    return GroupResource(group, plural)


def _name(resource: GroupResource) -> str:
    return f"{resource.group}/{resource.resource}" if resource.group else resource.resource


@cache
def _table() -> dict[str, Any]:
    file = resources.files("restow.kinds") / "data" / "kubernetes-releases.bin"
    found: dict[str, Any] = json.loads(zlib.decompress(file.read_bytes()))
    return found
