"""APIs that another server serves: which, as the APIServices of a cluster say it.

Such a server keeps its objects where it likes. One that reports its StorageVersions is looked after
like all others; one that does not is left alone, and a person is told so.

Not here: reaching such a server.
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
    """The groups, in their versions, that other servers serve, and the names of their APIServices.

    One without a service is served by the server itself.
    """
    found: dict[GroupVersion, str] = {}
    for each in services:
        if place := _remote(each):
            found[place] = key_of(each).name
    return found


async def find_remote(client: ApiClient, place: GroupVersion) -> str:
    """The name of the APIService by which another server serves a group in a version; empty if none
    does, or if that may not be asked. Raises what else a read raises."""
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
    """What a person is told of remote APIs that report nothing: a sentence for each group.

    `once_told` are the groups of which somebody has reported something before.
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
