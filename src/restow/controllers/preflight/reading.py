"""A look at a cluster, through its API: all that the rules of preflight want to know.

    StorageStates        what may be stored (`migration.k8s.io`)
    StorageVersions      what each server writes and reads, and whether they agree
    ballots              what was voted for
    definitions          versions of custom resources
    migrations           what is being rewritten
    discovery            what there is, and what is written where nothing else is said

What a cluster does not have is left out; what is there and could not be seen is told. Nothing in an
object is believed to have the right type. Not here: what follows from it (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from restow.api import internal_vote_v1alpha1
from restow.api.internal_v1alpha1 import StorageVersion, resource_of_name
from restow.api.resources import DEFINITIONS, STATES, STORAGE_VERSIONS
from restow.client import ApiClient, ApiResource, Discovered, ListOptions, Object, key_of
from restow.controllers import requests
from restow.controllers.encryption_keys import KeysSaid, keys_said, persisted_keys
from restow.controllers.preflight.dropping import KeyedResource, KeyedView
from restow.controllers.preflight.values import (
    ClusterView,
    ResourceView,
    ServerEntry,
    Target,
)
from restow.controllers.remote_apis import API_SERVICES, remote_apis
from restow.controllers.times import read_time
from restow.controllers.trigger.values import Phase
from restow.kinds.kubernetes_releases import is_known, minor_of
from restow.machinery.names import GroupResource, GroupVersionResource
from restow.machinery.status_error import StatusError

BALLOTS: Final = GroupVersionResource(internal_vote_v1alpha1.GROUP, "v1alpha1", "storageversions")

RESTOW_MARK: Final = "+restow."
"""In the version of a restow server."""
AGREED: Final = "AllEncodingVersionsEqual"
NEEDED_VERBS: Final = frozenset({"get", "list"})


@dataclass(slots=True)
class _Seen:
    """Everything that was read, by resource."""

    discovered: Discovered
    states: dict[GroupResource, Object] = field(default_factory=dict)
    reports: dict[GroupResource, StorageVersion] = field(default_factory=dict)
    selected: dict[GroupResource, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """What was voted for, and who votes."""
    definitions: dict[GroupResource, Object] = field(default_factory=dict)
    migrations: dict[GroupResource, list[str]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    """Groups that are served by aggregated servers, which store their objects themselves."""


def is_restow(version: object) -> bool:
    """Whether the document at `/version` is that of a restow server."""
    return RESTOW_MARK in _git_version(version)


async def read_cluster(client: ApiClient, target: Target | None = None) -> ClusterView:
    """Look at a cluster. Raises ClientError or StatusError when it cannot be asked at all.

    With a target it is also looked whether there are objects of what the target does not know.
    """
    version = await client.version()
    discovered = await client.discover()
    reader = _Reader(client, discovered)
    seen = await reader.read_all()
    for place, error in discovered.failures.items():
        # A server of its own that is down stores nothing here.
        found_in = reader.notes if place.group in seen.elsewhere else reader.unseen
        found_in.append(f"{place} could not be read: {error}")
    now = client.runtime.clock.wall()
    resources = [_view(name, found, seen, now=now) for name, found in _stored(seen, target).items()]
    if target is not None:
        resources = [
            await reader.with_objects(each)
            if each.resource not in target.resources and each.custom_versions is None
            else each
            for each in resources
        ]
    text = _git_version(version)
    return ClusterView(
        server=client.server,
        version=text,
        resources=tuple(resources),
        kubernetes_minor=None if is_restow(version) else minor_of(text),
        unseen=tuple(reader.unseen),
        notes=tuple(reader.notes),
    )


async def read_keys(client: ApiClient) -> KeyedView:
    """Look at the encryption keys of a cluster. Raises as `read_cluster` does."""
    version = await client.version()
    discovered = await client.discover()
    reader = _Reader(client, discovered)
    seen = await reader.read_all()
    for place, error in discovered.failures.items():
        if place.group not in seen.elsewhere:
            reader.unseen.append(f"{place} could not be read: {error}")
    names = sorted({*seen.states, *seen.reports}, key=str)
    return KeyedView(
        server=client.server,
        version=_git_version(version),
        resources=tuple(_keyed(name, seen) for name in names),
        says_keys=is_restow(version),
        unseen=tuple(reader.unseen),
    )


def _keyed(name: GroupResource, seen: _Seen) -> KeyedResource:
    report, state = seen.reports.get(name), seen.states.get(name)
    status = requests.mapping(state or {}, "status")
    persisted = _texts(status.get("persistedStorageVersionHashes"))
    return KeyedResource(
        resource=name,
        said=KeysSaid() if report is None else keys_said(report),
        persisted=None if state is None else tuple(persisted),
        keys=persisted_keys(status),
    )


class _Reader:
    """Reads lists; what cannot be read is empty, and is told."""

    def __init__(self, client: ApiClient, discovered: Discovered) -> None:
        self._client = client
        self._discovered = discovered
        self._served = {each.resource for each in discovered.resources}
        self.unseen: list[str] = []
        self.notes: list[str] = []

    async def read_all(self) -> _Seen:
        seen = _Seen(self._discovered)
        for state in await self._all_of(STATES):
            seen.states[requests.resource_of(state)] = state
        for report in await self._all_of(STORAGE_VERSIONS):
            name = resource_of_name(key_of(report).name)
            try:
                seen.reports[name] = msgspec.convert(report, StorageVersion)
            except msgspec.ValidationError as error:
                self.unseen.append(f"StorageVersion {key_of(report).name} is not one: {error}")
        for ballot in await self._all_of(BALLOTS):
            if version := requests.text(ballot, "selectedVersion"):
                name = _resource_of_ballot(key_of(ballot).name)
                seen.selected[name] = version, frozenset(_voters(ballot))
        for definition in await self._all_of(DEFINITIONS):
            seen.definitions[_resource_of_definition(definition)] = definition
        remote = remote_apis(await self._all_of(API_SERVICES))
        seen.elsewhere.update(place.group for place in remote)
        await self._read_migrations(seen)
        return seen

    async def with_objects(self, view: ResourceView) -> ResourceView:
        """The same, with whether there are objects; asked only where something depends on it."""
        found = next(
            (each for each in self._discovered.preferred() if each.group_resource == view.resource),
            None,
        )
        if found is None or not found.verbs >= NEEDED_VERBS:
            return view
        try:
            page = await self._client.list_page(
                found.resource, options=ListOptions(limit=1), metadata_only=True
            )
        except StatusError as error:
            self.notes.append(f"{view.resource} could not be listed: {error}")
            return view
        return replace(view, has_objects=bool(page.items))

    async def _read_migrations(self, seen: _Seen) -> None:
        groups: set[str] = set()
        for place in requests.REQUESTS:
            if place not in self._served or place.group in groups:
                continue
            groups.add(place.group)
            for request in await self._all_of(place):
                if requests.phase_of(request) in (Phase.PENDING, Phase.RUNNING):
                    name = requests.resource_of(request)
                    seen.migrations.setdefault(name, []).append(key_of(request).name)

    async def _all_of(self, resource: GroupVersionResource) -> list[Object]:
        if resource not in self._served:
            return []
        try:
            return [each async for each in self._client.items(resource)]
        except StatusError as error:
            self.unseen.append(f"{resource.group_resource} could not be read: {error}")
            return []


def _stored(seen: _Seen, target: Target | None) -> dict[GroupResource, ApiResource | None]:
    """The resources that this cluster stores, and how discovery has them."""
    found: dict[GroupResource, ApiResource | None] = {}
    for each in seen.discovered.preferred():
        name = each.group_resource
        is_reported = name in seen.states or name in seen.reports or name in seen.definitions
        is_listed = is_known(name) or (target is not None and name in target.resources)
        if each.group in seen.elsewhere and not is_reported:
            continue
        if is_reported or each.storage_version_hash or (is_listed and each.verbs >= NEEDED_VERBS):
            found[name] = each
    for name in (*seen.states, *seen.reports, *seen.definitions):
        found.setdefault(name, None)
    return found


def _view(
    name: GroupResource, found: ApiResource | None, seen: _Seen, *, now: datetime
) -> ResourceView:
    report, state = seen.reports.get(name), seen.states.get(name)
    status = requests.mapping(state or {}, "status")
    persisted = status.get("persistedStorageVersionHashes")
    heartbeat = read_time(status.get("lastHeartbeatTime"))
    custom, stored = _custom_versions(seen.definitions.get(name))
    entries = () if report is None else report.status.storage_versions
    stores = {} if report is None else keys_said(report).stores
    # A vote of the past means nothing to servers that do not vote.
    selected, voters = seen.selected.get(name, ("", frozenset[str]()))
    return ResourceView(
        resource=name,
        kind=_kind(found, seen.definitions.get(name)),
        persisted=None if state is None else tuple(_texts(persisted)),
        heartbeat_seconds=None if heartbeat is None else (now - heartbeat).total_seconds(),
        current_hash="" if found is None else found.storage_version_hash,
        entries=tuple(
            ServerEntry(
                server=each.api_server_id,
                encodes=each.encoding_version,
                decodes=tuple(each.decodable_versions),
                store=stores.get(each.api_server_id, ""),
            )
            for each in entries
        ),
        common="" if report is None else report.status.common_encoding_version or "",
        disagreement=_disagreement(report),
        selected=selected if voters.issuperset(each.api_server_id for each in entries) else "",
        custom_versions=custom,
        stored_versions=stored,
        migrations=tuple(seen.migrations.get(name, ())),
    )


def _kind(found: ApiResource | None, definition: Object | None) -> str:
    if found is not None:
        return found.kind
    spec = requests.mapping(definition or {}, "spec")
    return requests.text(requests.mapping(spec, "names"), "kind")


def _disagreement(report: StorageVersion | None) -> str:
    """What the servers say about why they do not agree; empty when they do."""
    if report is None:
        return ""
    for each in report.status.conditions:
        if each.type == AGREED and each.status != "True":
            return ": ".join(filter(None, (each.reason, each.message))) or f"{AGREED} is not True"
    return ""


def _custom_versions(definition: Object | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The versions that a definition lists, and those that it says are stored."""
    if definition is None:
        return None, ()
    spec = requests.mapping(definition, "spec")
    group = requests.text(spec, "group")
    versions = spec.get("versions")
    listed = [
        requests.text(each, "name")
        for each in (versions if isinstance(versions, list) else ())
        if isinstance(each, dict)
    ]
    stored = _texts(requests.mapping(definition, "status").get("storedVersions"))
    return tuple(f"{group}/{each}" for each in listed), tuple(f"{group}/{each}" for each in stored)


def _resource_of_definition(definition: Object) -> GroupResource:
    spec = requests.mapping(definition, "spec")
    plural = requests.text(requests.mapping(spec, "names"), "plural")
    return GroupResource(requests.text(spec, "group"), plural)


def _resource_of_ballot(name: str) -> GroupResource:
    """Ballots are called as reports are, with a version before the resource."""
    place, _, resource = name.rpartition(".")
    return resource_of_name(f"{place.rpartition('.')[0]}.{resource}")


def _voters(ballot: Object) -> Iterable[str]:
    candidates = ballot.get("candidateVersions")
    for each in candidates if isinstance(candidates, list) else ():
        if isinstance(each, dict):
            yield requests.text(each, "apiServerID")


def _git_version(version: object) -> str:
    found = version.get("gitVersion") if isinstance(version, dict) else None
    return found if isinstance(found, str) else ""


def _texts(value: object) -> list[str]:
    items: Iterable[Any] = value if isinstance(value, list) else ()
    return [each for each in items if isinstance(each, str)]
