"""Reads the input of the preflight rules through the API of a cluster.

    StorageStates        persisted versions (`migration.k8s.io`)
    StorageVersions      the versions that each server writes and reads, and whether they agree
    votes                selected versions
    CRDs                 versions of custom resources
    migrations           running and failed ones
    discovery            resources, and their storage version hashes

Resources that a cluster does not serve are omitted; resources that it serves but that cannot be
read are reported. Objects are untrusted input: every type is checked. Not here: the conclusions
(`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis import internal_vote_v1alpha1
from restow.apis.internal_v1alpha1 import StorageVersion, resource_of_name
from restow.apis.migration_v1alpha1 import persisted_hashes
from restow.apis.resources import DEFINITIONS, STATES, STORAGE_VERSIONS
from restow.apis.storage_scan import OBJECTS_PREFIX, Contradiction
from restow.client import ApiClient, ApiResource, DiscoveredResources, ListOptions, Object, key_of
from restow.kinds.kubernetes_releases import is_known, minor_of
from restow.migration import migration_objects
from restow.migration.encryption_keys import ReportedKeys, persisted_keys, reported_keys
from restow.migration.migration_values import MigrationPhase
from restow.migration.names import FAILED
from restow.migration.preflight.key_removal import KeyedResource, KeyedView
from restow.migration.preflight.values import (
    UNKNOWN,
    ClusterView,
    ResourceView,
    ServerEntry,
    TargetRelease,
)
from restow.migration.remote_apis import API_SERVICES, remote_apis
from restow.migration.store_scan import OnProgress, ScanFailed, StoreScan, scan_store
from restow.migration.times import read_time

VOTES: Final = GroupVersionResource(internal_vote_v1alpha1.GROUP, "v1alpha1", "storageversions")

RESTOW_MARK: Final = "+restow."
"""Part of the gitVersion of restow servers."""
AGREED: Final = "AllEncodingVersionsEqual"
SCANS_MAX: Final = 3
"""Limit of the scans, if a StorageState becomes "Unknown" during one."""
NEEDED_VERBS: Final = frozenset({"get", "list"})
_GROUPS_READ: Final = frozenset(
    each.group
    for each in (
        STATES,
        STORAGE_VERSIONS,
        VOTES,
        DEFINITIONS,
        API_SERVICES,
        *migration_objects.MIGRATION_APIS,
    )
)
"""The API groups that are read here."""


@dataclass(slots=True)
class _Seen:
    """Everything that was read, by resource."""

    discovered: DiscoveredResources
    states: dict[GroupResource, Object] = field(default_factory=dict)
    reports: dict[GroupResource, StorageVersion] = field(default_factory=dict)
    selected: dict[GroupResource, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """The selected version, and the servers that voted."""
    definitions: dict[GroupResource, Object] = field(default_factory=dict)
    migrations: dict[GroupResource, list[str]] = field(default_factory=dict)
    ended: dict[GroupResource, list[Object]] = field(default_factory=dict)
    """Migrations that have failed or succeeded."""
    elsewhere: set[str] = field(default_factory=set)
    """Groups that are served by aggregated servers, which store their objects themselves."""


def is_restow(version: object) -> bool:
    """Whether the document at `/version` is that of a restow server."""
    return RESTOW_MARK in _git_version(version)


async def read_cluster(
    client: ApiClient,
    target: TargetRelease | None = None,
    *,
    scan: StoreScan | None = None,
    on_progress: OnProgress | None = None,
) -> ClusterView:
    """Read a cluster. Raises ClientError or StatusError when the server does not respond.

    The servers of a restow cluster scan its store; `scan` is one from elsewhere, for Kubernetes.
    With a target, resources that it does not have are checked for objects.
    """
    version = await client.version()
    if not is_restow(version):
        return await _read(client, target, version, scan=scan)
    contradictions: tuple[Contradiction, ...] = ()
    for attempts_left in reversed(range(SCANS_MAX)):
        problem = ""
        try:
            # Scan first, then list: objects written meanwhile are in the lists.
            scan = await scan_store(client, on_progress=on_progress)
            # Servers add "Unknown" to a state that they find contradicted, so that the next scan
            # finds no contradiction: it is reported nevertheless.
            contradictions = (
                *contradictions,
                *(each for each in scan.contradictions if each not in contradictions),
            )
            scan = replace(scan, contradictions=contradictions)
        except ScanFailed as error:
            scan, problem = None, str(error)
        view = await _read(client, target, version, scan=scan, scan_problem=problem)
        if scan is None or not attempts_left or not _has_become_unknown(view, scan):
            return view
    raise AssertionError("the last attempt returns")


def _has_become_unknown(view: ClusterView, scan: StoreScan) -> bool:
    """Whether a StorageState has changed since the scan, and contains "Unknown"."""
    return any(
        each.state_revision > scan.revision and UNKNOWN in (each.persisted or (UNKNOWN,))
        for each in view.resources
    )


async def _read(
    client: ApiClient,
    target: TargetRelease | None,
    version: object,
    *,
    scan: StoreScan | None,
    scan_problem: str = "",
) -> ClusterView:
    discovered = await client.discover()
    reader = _Reader(client, discovered)
    seen = await reader.read_all()
    is_own = is_restow(version)
    for place, error in discovered.failures.items():
        # The resources of restow servers come from their records. In a mixed cluster one server may
        # lack a version that another one lists. An aggregated server that is down stores nothing
        # here.
        is_needed = place.group in _GROUPS_READ or not (is_own or place.group in seen.elsewhere)
        found_in = reader.unseen if is_needed else reader.notes
        found_in.append(f"{place} could not be read: {error}")
    now = client.runtime.clock.wall()
    stored = _recorded(seen) if is_own else _stored(seen, target)
    resources = [_view(name, found, seen, now=now) for name, found in stored.items()]
    if scan is not None:
        resources = [
            await reader.with_conversion(each, seen.definitions[each.resource], scan)
            if each.custom_versions is not None
            else each
            for each in resources
        ]
    elif target is not None and not is_own:
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
        kubernetes_minor=None if is_own else minor_of(text),
        is_reported=reader.is_served(STORAGE_VERSIONS),
        unseen=tuple(reader.unseen),
        notes=tuple(reader.notes),
        namespaced={each.group_resource: each.is_namespaced for each in discovered.resources},
        scan=scan,
        scan_problem=scan_problem,
    )


async def read_keys(client: ApiClient) -> KeyedView:
    """Read the encryption keys of a cluster. Raises as `read_cluster` does."""
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
    status = migration_objects.mapping(state or {}, "status")
    persisted = persisted_hashes(status.get("persistedStorageVersionHashes"))
    return KeyedResource(
        resource=name,
        said=ReportedKeys() if report is None else reported_keys(report),
        persisted=None if state is None else persisted,
        keys=persisted_keys(status),
    )


class _Reader:
    """Reads lists; a list that cannot be read is empty, and is reported in `unseen`."""

    def __init__(self, client: ApiClient, discovered: DiscoveredResources) -> None:
        self._client = client
        self._discovered = discovered
        self._served = {each.resource for each in discovered.resources}
        self.unseen: list[str] = []
        self.notes: list[str] = []

    def is_served(self, resource: GroupVersionResource) -> bool:
        return resource in self._served

    async def read_all(self) -> _Seen:
        seen = _Seen(self._discovered)
        for state in await self._all_of(STATES):
            seen.states[migration_objects.resource_of(state)] = state
        for report in await self._all_of(STORAGE_VERSIONS):
            name = resource_of_name(key_of(report).name)
            try:
                seen.reports[name] = msgspec.convert(report, StorageVersion)
            except msgspec.ValidationError as error:
                self.unseen.append(f"StorageVersion {key_of(report).name} is not valid: {error}")
        for vote in await self._all_of(VOTES):
            if version := migration_objects.text(vote, "selectedVersion"):
                name = _resource_of_vote(key_of(vote).name)
                seen.selected[name] = version, frozenset(_voters(vote))
        for definition in await self._all_of(DEFINITIONS):
            seen.definitions[_resource_of_definition(definition)] = definition
        remote = remote_apis(await self._all_of(API_SERVICES))
        seen.elsewhere.update(place.group for place in remote)
        await self._read_migrations(seen)
        return seen

    async def with_objects(self, view: ResourceView) -> ResourceView:
        """Add whether the resource has objects; read only where a rule depends on it."""
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

    async def with_conversion(
        self, view: ResourceView, definition: Object, scan: StoreScan
    ) -> ResourceView:
        """Add whether the conversion webhook of the resource converts stored objects.

        One object of each stored version is read in another version.
        """
        spec = migration_objects.mapping(definition, "spec")
        if (
            migration_objects.text(migration_objects.mapping(spec, "conversion"), "strategy")
            != "Webhook"
        ):
            return view
        served = _served_versions(spec)
        for row in scan.rows_of(view.resource):
            other = next((each for each in served if each != row.api_version), None)
            if other is None or not row.examples or not row.api_version:
                continue
            namespace, _, name = row.examples[0].removeprefix(row.prefix).rpartition("/")
            place = GroupVersionResource(
                view.resource.group, other.rpartition("/")[2], view.resource.resource
            )
            try:
                await self._client.get(place, name, namespace=namespace)
            except NotFound:
                continue  # deleted concurrently
            except StatusError as error:
                return replace(view, unconvertible=f"{namespace}/{name} as {other}: {error}")
        return view

    async def _read_migrations(self, seen: _Seen) -> None:
        groups: set[str] = set()
        for place in migration_objects.MIGRATION_APIS:
            if place not in self._served or place.group in groups:
                continue
            groups.add(place.group)
            for migration in await self._all_of(place):
                name = migration_objects.resource_of(migration)
                if migration_objects.phase_of(migration) in (
                    MigrationPhase.PENDING,
                    MigrationPhase.RUNNING,
                ):
                    seen.migrations.setdefault(name, []).append(key_of(migration).name)
                else:
                    seen.ended.setdefault(name, []).append(migration)

    async def _all_of(self, resource: GroupVersionResource) -> list[Object]:
        if not self.is_served(resource):
            return []
        try:
            return [each async for each in self._client.items(resource)]
        except StatusError as error:
            self.unseen.append(f"{resource.group_resource} could not be read: {error}")
            return []


def _stored(seen: _Seen, target: TargetRelease | None) -> dict[GroupResource, ApiResource | None]:
    """The resources that this cluster stores, with their entry in discovery."""
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


def _recorded(seen: _Seen) -> dict[GroupResource, ApiResource | None]:
    """The resources of a restow cluster: those with a record. Discovery is not used, since each
    server of a mixed cluster returns its own."""
    return dict.fromkeys((*seen.states, *seen.reports, *seen.selected, *seen.definitions))


def _view(
    name: GroupResource, found: ApiResource | None, seen: _Seen, *, now: datetime
) -> ResourceView:
    report, state = seen.reports.get(name), seen.states.get(name)
    status = migration_objects.mapping(state or {}, "status")
    persisted = persisted_hashes(status.get("persistedStorageVersionHashes"))
    heartbeat = read_time(status.get("lastHeartbeatTime"))
    definition = seen.definitions.get(name)
    custom, stored = _custom_versions(definition)
    keys = None if report is None else reported_keys(report)
    entries = () if report is None else report.status.storage_versions
    stores = {} if keys is None else keys.stores
    # An old vote means nothing to servers that do not vote.
    selected, voters = seen.selected.get(name, ("", frozenset[str]()))
    return ResourceView(
        resource=name,
        kind=_kind(found, definition),
        persisted=None if state is None else persisted,
        state_revision=_revision(state),
        heartbeat_seconds=None if heartbeat is None else (now - heartbeat).total_seconds(),
        current_hash="" if found is None else found.storage_version_hash,
        entries=tuple(
            ServerEntry(
                server=each.api_server_id,
                encodes=each.encoding_version,
                decodes=tuple(each.decodable_versions),
                store=stores.get(each.api_server_id, ""),
                location="" if keys is None else keys.locations.get(each.api_server_id, ""),
                is_custom=keys is not None and each.api_server_id in keys.custom,
            )
            for each in entries
        ),
        common="" if report is None else report.status.common_encoding_version or "",
        disagreement=_disagreement(report),
        selected=selected if voters.issuperset(each.api_server_id for each in entries) else "",
        custom_versions=custom,
        stored_versions=stored,
        custom_prefix="" if custom is None else f"{OBJECTS_PREFIX}{name.group}/{name.resource}/",
        is_namespaced=_text_of_spec(definition, "scope") != "Cluster",
        readable_keys=() if keys is None else tuple(keys.reads.values()),
        persisted_keys=persisted_keys(status),
        written_keys=() if keys is None else _written_keys(keys),
        migrations=tuple(seen.migrations.get(name, ())),
        failed_migration=_failed(seen.ended.get(name, ())),
    )


def _written_keys(keys: ReportedKeys) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*keys.writes.values(), *keys.prefers.values())))


def _failed(ended: Sequence[Object]) -> str:
    """The migration that ended last, if it failed: its name and why."""
    last = max(ended, key=lambda each: str(migration_objects.finished_at(each) or ""), default=None)
    condition = None if last is None else migration_objects.condition(last, FAILED)
    if last is None or condition is None:
        return ""
    return ": ".join(
        filter(None, (key_of(last).name, migration_objects.text(condition, "message")))
    )


def _revision(state: Object | None) -> int:
    version = migration_objects.text(
        migration_objects.mapping(state or {}, "metadata"), "resourceVersion"
    )
    return int(version) if version.isdigit() else 0


def _text_of_spec(definition: Object | None, name: str) -> str:
    return migration_objects.text(migration_objects.mapping(definition or {}, "spec"), name)


def _served_versions(spec: Mapping[str, Any]) -> list[str]:
    group, versions = migration_objects.text(spec, "group"), spec.get("versions")
    return [
        f"{group}/{migration_objects.text(each, 'name')}"
        for each in (versions if isinstance(versions, list) else ())
        if isinstance(each, dict) and each.get("served") is True
    ]


def _kind(found: ApiResource | None, definition: Object | None) -> str:
    if found is not None:
        return found.kind
    spec = migration_objects.mapping(definition or {}, "spec")
    return migration_objects.text(migration_objects.mapping(spec, "names"), "kind")


def _disagreement(report: StorageVersion | None) -> str:
    """The reason why the servers do not agree, from the conditions; empty if they do."""
    if report is None:
        return ""
    for each in report.status.conditions:
        if each.type == AGREED and each.status != "True":
            return ": ".join(filter(None, (each.reason, each.message))) or f"{AGREED} is not True"
    return ""


def _custom_versions(definition: Object | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The versions that a CRD lists, and its storedVersions."""
    if definition is None:
        return None, ()
    spec = migration_objects.mapping(definition, "spec")
    group = migration_objects.text(spec, "group")
    versions = spec.get("versions")
    listed = [
        migration_objects.text(each, "name")
        for each in (versions if isinstance(versions, list) else ())
        if isinstance(each, dict)
    ]
    stored = _texts(migration_objects.mapping(definition, "status").get("storedVersions"))
    return tuple(f"{group}/{each}" for each in listed), tuple(f"{group}/{each}" for each in stored)


def _resource_of_definition(definition: Object) -> GroupResource:
    spec = migration_objects.mapping(definition, "spec")
    plural = migration_objects.text(migration_objects.mapping(spec, "names"), "plural")
    return GroupResource(migration_objects.text(spec, "group"), plural)


def _resource_of_vote(name: str) -> GroupResource:
    """Votes are named like StorageVersions, with a version before the resource."""
    place, _, resource = name.rpartition(".")
    return resource_of_name(f"{place.rpartition('.')[0]}.{resource}")


def _voters(vote: Object) -> Iterable[str]:
    candidates = vote.get("candidateVersions")
    for each in candidates if isinstance(candidates, list) else ():
        if isinstance(each, dict):
            yield migration_objects.text(each, "apiServerID")


def _git_version(version: object) -> str:
    found = version.get("gitVersion") if isinstance(version, dict) else None
    return found if isinstance(found, str) else ""


def _texts(value: object) -> list[str]:
    items: Iterable[Any] = value if isinstance(value, list) else ()
    return [each for each in items if isinstance(each, str)]
