"""Target releases: a shipped one, one in a file, or a real Kubernetes release.

`kubernetes-1.27` names both a release of restow and the real release. It means the first for a
restow cluster, and the second for a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from restow.apimachinery.names import GroupVersion
from restow.apis.storage_scan import OBJECTS_PREFIX
from restow.kinds.kind import api_version
from restow.kinds.kubernetes_releases import (
    KubernetesRelease,
    known_minors,
    kubernetes_release,
    minor_of,
)
from restow.kinds.releases import (
    DEFAULT_NAME,
    Release,
    ReleaseError,
    ReleaseKind,
    load_release,
    shipped_release,
    shipped_releases,
)
from restow.migration.preflight.values import (
    ClusterView,
    ResourceView,
    TargetRelease,
    TargetResource,
)
from restow.migration.store_scan import resource_of

_FILE_ENDS: Final = (".yaml", ".yml")


def find_target(text: str, *, is_restow: bool) -> TargetRelease:
    """Return the release of a name or file; raises ReleaseError, which lists the known ones."""
    if text.endswith(_FILE_ENDS) or "/" in text:
        return target_of_release(load_release(Path(text)))
    minor = minor_of(text)
    is_shipped = text == DEFAULT_NAME or text in shipped_releases()
    if is_shipped and (is_restow or minor is None):
        return target_of_release(shipped_release(text))
    if minor is not None:
        return target_of_kubernetes(kubernetes_release(minor))
    minors = known_minors()
    shipped = ", ".join((DEFAULT_NAME, *shipped_releases()))
    raise ReleaseError(
        f"no release {text!r} is known: give a file (.yaml), the name of a shipped release"
        f" ({shipped}), or kubernetes-1.{minors[0]} to kubernetes-1.{minors[-1]}"
    )


def shipped_targets() -> Iterator[TargetRelease]:
    """Yield all releases that are shipped with restow."""
    return (target_of_release(shipped_release(name)) for name in shipped_releases())


def target_of_release(release: Release) -> TargetRelease:
    """Return the versions that a restow server of this release reads and writes."""
    return TargetRelease(
        name=release.name,
        resources={kind.definition.group_resource: _hosted(kind) for kind in release.kinds},
    )


def target_of_kubernetes(release: KubernetesRelease) -> TargetRelease:
    """Return the versions that a kube-apiserver of this release reads and writes."""
    return TargetRelease(
        name=release.name,
        kubernetes_minor=release.minor,
        resources={
            name: TargetResource(kind=each.kind, storage=each.storage, decodable=each.versions)
            for name, each in release.resources.items()
        },
    )


def _hosted(kind: ReleaseKind) -> TargetResource:
    definition = kind.definition
    decodable = [api_version(definition.group, version) for version in kind.decodable_versions]
    if kind.conversion == "builtin":
        # It also decodes the versions of other groups that share its objects.
        decodable += [
            version
            for version in kind.converter().versions
            if GroupVersion.parse(version).group != definition.group
        ]
    storage = kind.storage_api_version
    return TargetResource(
        kind=definition.store.kind,
        storage=storage,
        decodable=tuple(dict.fromkeys((*decodable, storage))),
        prefix=f"{OBJECTS_PREFIX}{definition.key_prefix}/" if definition.persisted else "",
        is_namespaced=definition.namespaced,
    )


def running_target(view: ClusterView) -> TargetRelease:
    """Return the versions that all running servers read, to check the current state."""
    rows = () if view.scan is None else view.scan.rows
    prefixes = {resource: row.prefix for row in rows if (resource := resource_of(row))}
    return TargetRelease(
        name="the running servers",
        resources={
            each.resource: TargetResource(
                kind=each.kind,
                storage=each.common or each.entries[0].encodes,
                decodable=_read_by_all(each),
                prefix=next(iter(each.prefixes), prefixes.get(each.resource, "")),
                is_namespaced="Namespaced" in each.scopes
                if each.scopes
                else view.namespaced.get(each.resource),
            )
            for each in view.resources
            if each.entries and each.custom_versions is None
        },
        keeps_keys=True,
    )


def _read_by_all(view: ResourceView) -> tuple[str, ...]:
    read = [{each.encodes, *each.decodes} for each in view.entries]
    return tuple(sorted(set.intersection(*read)))
