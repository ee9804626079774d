"""APIs of aggregated servers, from the APIServices of a cluster.

An aggregated server may have any kind of store. Its resources are migrated if it reports
StorageVersions; otherwise they are not migrated, which is reported to users.

Not here: connections to such a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from restow.apimachinery.names import GroupVersion, GroupVersionResource
from restow.apimachinery.status import Forbidden, NotFound
from restow.client import ApiClient, Object, key_of
from restow.migration.migration_objects import mapping, text

LEFT_ALONE_END: Final = ": left alone"
API_SERVICES: Final = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices")


def remote_apis(services: Iterable[Object]) -> dict[GroupVersion, str]:
    """Map the group versions of aggregated servers to the names of their APIServices.

    An APIService without a service is served by the server itself.
    """
    found: dict[GroupVersion, str] = {}
    for each in services:
        if place := _remote(each):
            found[place] = key_of(each).name
    return found


async def find_remote(client: ApiClient, place: GroupVersion) -> str:
    """Return the name of the APIService of an aggregated group version; empty if there is none, or
    if reading it is forbidden. Raises other errors of the read."""
    if not place.group:
        return ""
    try:
        service = await client.get(API_SERVICES, f"{place.version}.{place.group}")
    except (NotFound, Forbidden):
        return ""
    return key_of(service).name if _remote(service) == place else ""


def left_alone_text(
    silent: Mapping[GroupVersion, str], once_told: Collection[str] = ()
) -> list[str]:
    """Describe remote APIs that report nothing: a sentence for each group.

    `once_told` are the groups that were reported before.
    """
    groups: dict[str, list[str]] = {}
    for place, name in silent.items():
        groups.setdefault(place.group, []).append(name)
    texts: list[str] = []
    for group, names in sorted(groups.items()):
        what = "reports no storage versions"
        if group in once_told:
            what = "no server reports its storage versions any more"
        served = f"served by APIService {', '.join(sorted(names))}"
        texts.append(f"{group}: {served}; {what}{LEFT_ALONE_END}")
    return texts


def _remote(service: Object) -> GroupVersion | None:
    spec = mapping(service, "spec")
    version = text(spec, "version") or key_of(service).name.partition(".")[0]
    group = text(spec, "group")
    return GroupVersion(group, version) if spec.get("service") and group and version else None
