"""Real Kubernetes releases: in which version each stored what, and which versions it could read.

The table comes with the package, made by `tools/build_kubernetes_releases.py` from each release's
own test of its storage. It knows the versions that a release serves when every API is switched on.
A release may be able to read more than that: what is unreadable here is so as far as is known.

    {"releases": ["1.14", ...],
     "resources": {"apps/deployments": ["Deployment", [[0, "v1beta1 v1", "apps/v1"], ...]]}}

Each row holds from the release with its number on, until the next one; empty: there is no such
resource. Not here: releases that a restow server can run (`releases`).
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
    """How a release has a resource."""

    resource: GroupResource
    kind: str
    versions: tuple[str, ...]
    """`apiVersion`s that it reads, as far as is known; of all groups that share the objects."""
    storage: str
    """The `apiVersion` that it writes."""


@dataclass(frozen=True, slots=True)
class KubernetesRelease:
    """One release."""

    minor: int
    resources: dict[GroupResource, StoredResource]

    @property
    def name(self) -> str:
        return f"{PREFIX}1.{self.minor}"


def minor_of(text: str) -> int | None:
    """The number behind `1.` in `1.29`, `v1.29.3` or `kubernetes-1.29`; None for other texts."""
    found = _NAME.fullmatch(text.strip())
    return int(found[1]) if found else None


def known_minors() -> tuple[int, ...]:
    """Of the releases in the table, in order."""
    return tuple(int(name.partition(".")[2]) for name in _table()["releases"])


@cache
def kubernetes_release(minor: int) -> KubernetesRelease:
    """A release of the table; raises ReleaseError when it is not there."""
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
        # Groups that store the same objects in one version share them, and read each other's.
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
    """Every `apiVersion` that any release of the table up to this one has written."""
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
