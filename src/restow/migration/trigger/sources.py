"""Sources of storage versions: which one a server has for a resource, and its observer.

    storageversion   one observer: the StorageVersion of the resource
    discovery-ha     one observer: all servers, concurrently; or the local one only
    discovery        one observer: the server that the client is connected to

The source is chosen per resource, since Kubernetes with StorageVersions has none for custom
resources. A resource keeps its best source: a source that is unavailable for a moment is no reason
to use a weaker one. Servers of restow report all resources with a storage version, so what they do
not report is not migrated.

Not here: the rules, and when to reconcile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from restow.aio import Tasks
from restow.apimachinery.names import GroupResource, GroupVersion, GroupVersionResource
from restow.apimachinery.status import Forbidden, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.resources import STATES, STORAGE_VERSIONS
from restow.client import ApiClient, ApiResource, ClientError, ConnectionFailed
from restow.client import DiscoveredResources as Discovery
from restow.migration.migration_objects import MIGRATION_APIS
from restow.migration.trigger.addresses import read_addresses
from restow.migration.trigger.eligibility import DiscoveredVersion, eligible
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.shared_reading import SharedReading
from restow.migration.trigger.storage_version_watch import StorageVersionWatch
from restow.migration.trigger.values import (
    DiscoveryReading,
    LocalReading,
    Reading,
    ServerHash,
    ServersReading,
)

ConnectTo = Callable[[str], ApiClient]
"""Creates a client for the server at an address, `host:port`."""

_WATCH_VERBS: Final = frozenset({"get", "list", "watch"})

logger = logging.getLogger(__name__)


class SourceMissing(ClientError):
    """The server does not serve the selected source, or an API that the trigger needs."""


class NotKnownYet(Exception):
    """The source of a resource is not known yet."""


class ServerObserver(Protocol):
    """Reads the storage version that servers write for a resource."""

    @property
    def name(self) -> str:
        """The key of the rules' memory; observers of other sources have other names."""
        ...

    async def read(self) -> Reading: ...


def eligible_resources(found: Discovery) -> dict[GroupResource, DiscoveredVersion]:
    """Return the resources in discovery that can be migrated."""
    shown = (
        DiscoveredVersion(
            name=each.resource, kind=each.kind, verbs=each.verbs, hash=each.storage_version_hash
        )
        for each in found.resources
    )
    return eligible(shown, {each.name: each.preferred for each in found.groups})


def served_migration_apis(found: Discovery) -> tuple[GroupVersionResource, ...]:
    """Return the migration APIs, preferred first, each group in one version."""
    served = {each.resource for each in found.resources}
    chosen: dict[str, GroupVersionResource] = {}
    for each in MIGRATION_APIS:
        if each in served:
            chosen.setdefault(each.group, each)
    return tuple(chosen.values())


class Sources:
    """Creates observers. The controller owns the tasks and the watch of StorageVersions."""

    def __init__(
        self,
        client: ApiClient,
        options: TriggerOptions,
        *,
        tasks: Tasks,
        is_leader: Callable[[], bool],
        connect_to: ConnectTo | None = None,
    ) -> None:
        if (
            options.source is TriggerSource.DISCOVERY_HA
            and not options.is_local
            and connect_to is None
        ):
            raise ValueError("discovery-ha without a local reporter needs connect_to")
        self._client = client
        self._options = options
        self._tasks = tasks
        self._is_leader = is_leader
        self._connect_to = connect_to
        self._clients: dict[str, ApiClient] = {}
        self._documents: dict[tuple[str, GroupVersion], SharedReading[dict[str, ApiResource]]] = {}
        self._addresses: SharedReading[tuple[str, ...]] = SharedReading(
            "addresses", self._read_addresses, tasks=tasks
        )
        self._is_many = self._has_warned = False
        self._following: StorageVersionWatch | None = None
        self.silent: set[str] = set()
        """Servers whose silence was logged."""

    @property
    def wants_storage_versions(self) -> bool:
        return self._options.source in {TriggerSource.AUTO, TriggerSource.STORAGE_VERSION}

    @property
    def lacks_watch(self) -> bool:
        """Whether StorageVersions are a source, and no watch provides them yet."""
        return self.wants_storage_versions and self._following is None

    def follow(self, watch: StorageVersionWatch) -> None:
        """Read StorageVersions from this watch, which the caller runs."""
        self._following = watch

    def check(self, found: Discovery) -> bool:
        """Raise SourceMissing if the trigger cannot work with the APIs in discovery.

        Return False while this is not known, because a needed group could not be read.
        """
        wanted = {STATES.group, STORAGE_VERSIONS.group, *(each.group for each in MIGRATION_APIS)}
        if any(each.group in wanted for each in found.failures):
            return False
        served = {each.resource for each in found.resources}
        needed = []
        if STATES not in served:
            needed.append(STATES)
        if not served_migration_apis(found):
            needed.append(MIGRATION_APIS[0])
        if needed:
            raise SourceMissing(
                f"the server does not serve {' and '.join(map(str, needed))}: install the custom "
                "resource definitions of migration.k8s.io first (restow controllers --install)"
            )
        if self._options.source is TriggerSource.STORAGE_VERSION and not has_storage_versions(
            found
        ):
            raise SourceMissing(
                f"the server does not serve {STORAGE_VERSIONS}: enable the feature gates "
                "StorageVersionAPI and APIServerIdentity, or choose another source"
            )
        return True

    async def count_servers(self) -> None:
        """Read the number of servers, if the source depends on it."""
        if (
            self._options.source is not TriggerSource.AUTO
            or self._options.is_local
            or self._is_many
        ):
            return
        if self._connect_to is None:
            return
        try:
            found = await self._addresses.get()
        except (NotFound, Forbidden) as error:
            level = logging.DEBUG if self._has_warned else logging.WARNING
            logger.log(level, "the number of servers cannot be read: %s", error)
            self._has_warned = True
            return
        self._is_many = len(found) > 1

    async def observer(self, resource: DiscoveredVersion) -> ServerObserver | None:
        """Return the observer of a resource; None if it has no source.

        Raises NotKnownYet before the first list of StorageVersions, and errors of the API.
        """
        name = resource.name.group_resource
        following = self._following
        if self.wants_storage_versions and following is not None:
            if not following.is_synced:
                raise NotKnownYet("the storage versions have not been listed yet")
            if following.has(name):
                return _OfStorageVersion(following, resource)
            if following.keeps_epochs:
                return None
        if self._options.source is TriggerSource.STORAGE_VERSION:
            return None
        if self._options.is_local:
            # KEP-2343 4.25: each server has its own controller, which reads that server only
            return self._local(resource)
        if self._options.source is TriggerSource.DISCOVERY_HA or self._is_many:
            return await self._of_all_servers(resource)
        return _OfDiscovery(self, resource)

    async def close(self) -> None:
        """Close the connections to single servers."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    # Discovery of one server, and of each.

    def _local(self, resource: DiscoveredVersion) -> ServerObserver:
        return _Local(
            sources=self,
            resource=resource,
            reporter_id=self._options.reporter_id,
            is_leader=self._is_leader,
        )

    async def _of_all_servers(self, resource: DiscoveredVersion) -> ServerObserver:
        addresses = await self._addresses.get()
        if not addresses:
            raise NotKnownYet("the service default/kubernetes has no endpoints")
        await self._forget_others(addresses)
        return _OfAllServers(sources=self, resource=resource, addresses=addresses)

    async def _read_addresses(self) -> tuple[str, ...]:
        return await read_addresses(self._client)

    async def _forget_others(self, addresses: tuple[str, ...]) -> None:
        self.silent.intersection_update(addresses)
        gone = self._clients.keys() - set(addresses)
        for address in gone:
            for place in [each for each in self._documents if each[0] == address]:
                del self._documents[place]
            await self._clients.pop(address).close()

    async def shown_hash(self, resource: GroupVersionResource, *, address: str = "") -> str:
        """Return the storage version hash that a server shows; empty if it shows none."""
        place = (address, resource.group_version)
        document = self._documents.get(place)
        if document is None:
            document = self._documents[place] = SharedReading(
                f"discovery {resource.group_version} {address}",
                lambda: self._read_document(*place),
                tasks=self._tasks,
            )
        found = (await document.get()).get(resource.resource)
        return "" if found is None else found.storage_version_hash

    async def _read_document(
        self, address: str, group_version: GroupVersion
    ) -> dict[str, ApiResource]:
        client = self._client if not address else self._client_of(address)
        try:
            found = await client.resources(group_version)
        except NotFound:
            return {}
        return {each.name: each for each in found}

    def _client_of(self, address: str) -> ApiClient:
        client = self._clients.get(address)
        if client is None:
            assert self._connect_to is not None
            client = self._clients[address] = self._connect_to(address)
        return client


def has_storage_versions(found: Discovery) -> bool:
    return any(
        each.resource == STORAGE_VERSIONS and each.verbs >= _WATCH_VERBS for each in found.resources
    )


@dataclass(frozen=True, slots=True)
class _OfStorageVersion:
    following: StorageVersionWatch
    resource: DiscoveredVersion

    @property
    def name(self) -> str:
        return TriggerSource.STORAGE_VERSION

    async def read(self) -> Reading:
        return await self.following.read(self.resource.name.group_resource, self.resource.kind)


@dataclass(frozen=True, slots=True)
class _OfDiscovery:
    sources: Sources
    resource: DiscoveredVersion

    @property
    def name(self) -> str:
        return TriggerSource.DISCOVERY

    async def read(self) -> Reading:
        return DiscoveryReading(hash=await self.sources.shown_hash(self.resource.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Local:
    """The server next to this controller; each server has its own."""

    sources: Sources
    resource: DiscoveredVersion
    reporter_id: str
    is_leader: Callable[[], bool]

    @property
    def name(self) -> str:
        return _reporter_name(self.reporter_id)

    async def read(self) -> Reading:
        found = await self.sources.shown_hash(self.resource.name)
        return LocalReading(
            reporter_id=self.reporter_id, hash=found, is_leader=self.is_leader(), is_sole=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfAllServers:
    """Reads all servers concurrently, so that many take no longer than one."""

    sources: Sources
    resource: DiscoveredVersion
    addresses: tuple[str, ...]

    @property
    def name(self) -> str:
        return TriggerSource.DISCOVERY_HA

    async def read(self) -> Reading:
        async with asyncio.TaskGroup() as group:
            reads = [
                group.create_task(self._hash_of(each), name=f"discovery of {each}")
                for each in self.addresses
            ]
        found = (each.result() for each in reads)
        return ServersReading(servers=tuple(map(ServerHash, self.addresses, found)))

    async def _hash_of(self, address: str) -> str:
        """The hash; empty if the server cannot be read: then its reports stop, as the rules see."""
        silent = self.sources.silent
        try:
            found = await self.sources.shown_hash(self.resource.name, address=address)
        except (StatusError, ConnectionFailed) as error:
            level = logging.DEBUG if address in silent else logging.INFO
            logger.log(level, "discovery of %s could not be read: %s", address, error)
            silent.add(address)
            return ""
        silent.discard(address)
        return found


def _reporter_name(reporter_id: str) -> str:
    return f"{TriggerSource.DISCOVERY_HA}/{reporter_id}"
