"""Reads what `restow status` shows from the API, with a few lists for the whole cluster.

Persisted versions (StorageState), encoding versions (StorageVersion, or the hash in discovery),
migrations (of either API), servers (identity leases), leaders (leases of controllers), and groups
of aggregated servers (APIServices). The first page of each resource is listed: a resource that
cannot be listed is not ok. A list that the server does not have, or that the user may not read, is
reported in the notes, and the rest is shown.

The result is for display only: the lists are of several moments. Not here: how it is printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.names import IDENTITY_LABEL, LEASE_NAMESPACE
from restow.apis.resources import LEASES, STATES, STORAGE_VERSIONS
from restow.apis.storage_scan import STORAGE_SCANS
from restow.client import ApiClient, DiscoveredResources, ListOptions, Object
from restow.migration import migration_objects
from restow.migration.names import MIGRATOR_LEASE, TRIGGER_LEASE
from restow.migration.overview_reader import (
    groups_stored,
    leader_seen,
    migrations_seen,
    resources_seen,
    server_seen,
    silent_apis,
    unread_notes,
    with_evidence,
)
from restow.migration.overview_values import ClusterOverview, StoredSeen
from restow.migration.readability import Unread, find_unread
from restow.migration.remote_apis import API_SERVICES, left_alone_text, remote_apis
from restow.migration.store_scan import ScanFailed, scan_store

OBJECTS_MAX: Final = 50_000
"""Limit of one list; a note reports omitted objects."""


class OverviewObjects(NamedTuple):
    """The objects that an overview shows: StorageStates, StorageVersions, migrations of either
    API, identity leases, leases of controllers, and APIServices."""

    states: list[Object]
    reports: list[Object]
    migrations: list[Object]
    servers: list[Object]
    leases: list[Object]
    services: list[Object]


async def look(client: ApiClient, names: Iterable[str] = ()) -> ClusterOverview:
    """Read the resources of these names, as users type them; without names, all.

    Raises NoSuchResource for a name that the server does not have, and the errors of discovery.
    """
    discovered = await client.discover()
    wanted = frozenset(discovered.find(name).group_resource for name in names)
    moment = client.runtime.clock.wall()
    reader = _Reader(client, discovered)
    for group_version, error in discovered.failures.items():
        reader.miss(f"{group_version} could not be read: {error}")
    objects = OverviewObjects(
        states=await reader.all_of(
            STATES, "the persisted versions are not known: `restow controllers --install` adds it"
        ),
        reports=await reader.all_of(
            STORAGE_VERSIONS,
            "servers do not report what they write, so whether they agree is not known (on"
            " Kubernetes: feature gate StorageVersionAPI and this API)",
        ),
        migrations=await reader.migrations(),
        servers=await reader.identities(),
        leases=await reader.leaders(),
        services=await reader.all_of(API_SERVICES, ""),
    )
    return build_overview(
        ClusterOverview(
            client.server,
            moment,
            unread=await read_unread(client, discovered, wanted),
            stored=await read_stored(client, discovered),
            notes=reader.notes,
            missing=reader.missing,
        ),
        objects,
        discovered,
        wanted,
    )


def build_overview(
    basis: ClusterOverview,
    objects: OverviewObjects,
    discovered: DiscoveredResources,
    wanted: frozenset[GroupResource],
) -> ClusterOverview:
    """Add to `basis` what the objects show about the wanted resources; about all if none is."""
    migrations = migrations_seen(objects.migrations, objects.states)
    if wanted:
        chosen = {str(each) for each in wanted}
        migrations = [each for each in migrations if each.resource in chosen]
    servers = [server_seen(each, basis.moment) for each in objects.servers]
    remote = remote_apis(objects.services)
    resources = resources_seen(
        discovered,
        objects.states,
        objects.reports,
        migrations,
        wanted,
        remote=remote,
        servers=servers,
    )
    silent = silent_apis(remote, objects.reports)
    return replace(
        basis,
        resources=with_evidence(resources, basis.unread, basis.stored),
        migrations=migrations,
        servers=servers,
        leaders=[leader_seen(each, basis.moment) for each in objects.leases],
        notes=[
            *basis.notes,
            *unread_notes(basis.unread),
            *basis.stored.notes,
            *left_alone_text(silent, groups_stored(objects.states)),
        ],
    )


async def read_stored(client: ApiClient, discovered: DiscoveredResources) -> StoredSeen:
    """Scan the raw values, if servers support it."""
    if STORAGE_SCANS not in {each.resource for each in discovered.resources}:
        return StoredSeen()
    namespaced = {each.group_resource: each.is_namespaced for each in discovered.resources}
    try:
        scan = await scan_store(client)
    except ScanFailed as error:
        return StoredSeen(is_expected=True, notes=(f"the store could not be scanned: {error}",))
    return StoredSeen(is_expected=True, scan=scan, namespaced=namespaced)


async def read_unread(
    client: ApiClient, discovered: DiscoveredResources, wanted: frozenset[GroupResource]
) -> list[Unread]:
    """Find the resources that cannot be listed, by the first page of each."""
    chosen = (
        each for each in discovered.preferred() if not wanted or each.group_resource in wanted
    )
    return await find_unread(client, chosen, pages_max=1)


class _Reader:
    """Reads lists; a list that cannot be read is empty, with a note."""

    def __init__(self, client: ApiClient, discovered: DiscoveredResources) -> None:
        self._client = client
        self._served = {each.resource for each in discovered.resources}
        self.notes: list[str] = []
        self.missing: list[str] = []

    def miss(self, note: str) -> None:
        """Note that data of the cluster is missing."""
        self.notes.append(note)
        self.missing.append(note)

    async def all_of(
        self,
        resource: GroupVersionResource,
        without: str,
        *,
        namespace: str = "",
        options: ListOptions | None = None,
    ) -> list[Object]:
        if resource not in self._served:
            if without:
                self.notes.append(f"the server has no {_words(resource)}: {without}")
            return []
        found: list[Object] = []
        try:
            async for item in self._client.items(
                resource, namespace=namespace, options=options or ListOptions()
            ):
                if len(found) >= OBJECTS_MAX:
                    self.miss(f"only {OBJECTS_MAX:,} of {_words(resource)} are shown")
                    break
                found.append(item)
        except StatusError as error:
            if not isinstance(error, NotFound):  # the resource was removed concurrently
                self.miss(f"{_words(resource)} could not be read: {error}")
        return found

    async def migrations(self) -> list[Object]:
        """List the migrations of each group, in the first version that is served."""
        found: list[Object] = []
        seen: set[str] = set()
        for each in migration_objects.MIGRATION_APIS:
            if each in self._served and each.group not in seen:
                seen.add(each.group)
                found += await self.all_of(each, "")
        if not seen:
            self.notes.append(
                "the server has no API for migrations: `restow controllers --install` adds it"
            )
        return found

    async def identities(self) -> list[Object]:
        """List the servers of any component whose leases are here: all but aggregated servers with
        their own store."""
        return await self.all_of(
            LEASES,
            "which servers run is not known",
            namespace=LEASE_NAMESPACE,
            options=ListOptions(label_selector=IDENTITY_LABEL),
        )

    async def leaders(self) -> list[Object]:
        """List the leases of controllers, in all namespaces."""
        found: list[Object] = []
        for name in (TRIGGER_LEASE, MIGRATOR_LEASE):
            options = ListOptions(field_selector=f"metadata.name={name}")
            found += await self.all_of(LEASES, "", options=options)
        return found


def _words(resource: GroupVersionResource) -> str:
    return f"{resource.resource}.{resource.group} ({resource.version})"
