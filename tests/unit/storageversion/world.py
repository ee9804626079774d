"""Servers of several releases on one audited in-memory store, with simulated time.

A server consists of its coordination and its object store, without HTTP. It can be killed, and
paused
at any time: its requests to the store are delayed until it resumes. With `custom` it also hosts
CRDs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.encryption.decrypted_storage import DecryptedStorage
from restow.kinds.releases import load_release
from restow.registry.caches import Caches
from restow.registry.catalog import Catalog, release_catalog
from restow.registry.committer import Sealed
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.errors import DoAgain
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore, Written
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Batch,
    Item,
    Key,
    Outcome,
    RangePage,
    Revision,
    Span,
    Storage,
    Transaction,
    Watch,
)
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.custom_resources import CustomRegistrar, CustomResources
from restow.storageversion.identity import Mode
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.object_codec import decode_report, decode_state, report_key, state_key
from restow.storageversion.records import EpochRecord, decode_epoch, epoch_key, name_of
from restow.storageversion.remote_registration import Remote
from restow.storageversion.rules import PersistedVersions, StorageVersionEntries
from tests.support.storageversion_audit import AuditedStorage
from tests.unit.storageversion.named_keys import NamedKeys, open_any

GROUP = "example.com"
RELEASES = {"x": (["v1"], "v1"), "x+1": (["v1", "v2"], "v1"), "x+2": (["v1", "v2"], "v2"),
            "x+3": (["v2"], "v2")}  # fmt: skip
"""The releases of the voting scenario: decodable versions, and the storage version."""
ATTEMPTS_MAX = 8
"""Limit of the attempts of a request whose resource is replaced."""


def write_release(
    path: Path, name: str, *, kinds: Sequence[str] = ("Widget",), scope: str = "Namespaced"
) -> Path:
    """Writes a release file with data-only kinds and the versions of the table."""
    versions, storage = RELEASES[name]
    listed = [
        {"group": GROUP, "kind": kind, "plural": _plural(kind), "scope": scope,
         "versions": [{"name": version, "served": True, "decodable": True} for version in versions],
         "storage": storage, "conversion": "rename", "schema": "open"}
        for kind in kinds
    ]  # fmt: skip
    path.write_bytes(orjson.dumps({"release": name, "kinds": listed}))  # JSON is YAML
    return path


class Line(Storage):
    """A server's connection to the store; blocked while the server is paused."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._awake = asyncio.Event()
        self._awake.set()
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, prefix: str) -> None:
        """Delays the events of watches of a prefix."""
        self._flow(prefix).clear()

    def let_go(self, prefix: str) -> None:
        self._flow(prefix).set()

    def _flow(self, prefix: str) -> asyncio.Event:
        if prefix not in self._held:
            self._held[prefix] = asyncio.Event()
            self._held[prefix].set()
        return self._held[prefix]

    def pause(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        await self._awake.wait()
        return await self._storage.get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        await self._awake.wait()
        return await self._storage.range(
            span, limit=limit, revision=revision, with_total=with_total
        )

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self._storage.count(span, revision=revision)

    async def revision(self) -> Revision:
        await self._awake.wait()
        return await self._storage.revision()

    def revision_now(self) -> Revision | None:
        return self._storage.revision_now()

    async def commit(self, transaction: Transaction) -> Outcome:
        await self._awake.wait()
        return await self._storage.commit(transaction)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return _HeldWatch(self._storage.watch(span, after=after), self._flow(span.start))

    async def compact(self, revision: Revision) -> None:
        await self._storage.compact(revision)

    async def close(self) -> None:
        return None


class _HeldWatch:
    """A watch whose events can be delayed. Satisfies `Watch`."""

    def __init__(self, watch: Watch, flowing: asyncio.Event) -> None:
        self._watch = watch
        self._flowing = flowing
        self._batch: Batch | None = None

    def __aiter__(self) -> _HeldWatch:
        return self

    async def __anext__(self) -> Batch:
        if self._batch is None:
            self._batch = await self._watch.__anext__()
        await self._flowing.wait()
        batch, self._batch = self._batch, None
        return batch

    def expect(self, revision: Revision) -> None:
        self._watch.expect(revision)

    async def close(self) -> None:
        await self._watch.close()


class Server:
    """One incarnation of an API server, without HTTP."""

    def __init__(
        self,
        world: World,
        name: str,
        catalog: Catalog,
        *,
        custom: bool = False,
        keys: NamedKeys | None = None,
        **options: Any,
    ) -> None:
        """`custom`: it hosts CRDs in addition to its release. `keys`: it encrypts."""
        self.name = name
        self.catalog = catalog = Catalog(catalog, name=catalog.name) if custom else catalog
        self.clock = world.clock
        self.runtime = Runtime.simulated(f"{world.seed}/{name}", clock=world.clock)
        self.line = Line(world.storage)
        mode: Mode = options.pop("mode", "report")
        remote: Remote | None = options.pop("remote", None)
        membership = MembershipOptions(host=name, mode=mode)
        self.keys = keys
        opened: Storage = self.line if keys is None else DecryptedStorage(self.line, keys)

        def make_custom(registration: CustomRegistrar) -> CustomResources:
            return CustomResources(
                opened, catalog, self.runtime, registration=registration, make=custom_resource
            )

        self.coordinator = Coordinator(
            self.line,
            catalog,
            self.runtime,
            CoordinatorOptions(membership=membership, **options),
            keys=keys,
            remote=remote,
            custom=make_custom if custom else None,
        )
        self.caches = Caches(opened, self.runtime)
        self.store = ResourceStore(
            opened,
            self.caches,
            self.coordinator.policy,
            self.runtime,
            sealed=None if keys is None else Sealed(self.line, keys),
        )
        if self.coordinator.custom is not None:
            self.coordinator.custom.replaced.subscribe(self.store.forget)

    @property
    def custom(self) -> CustomResources | None:
        return self.coordinator.custom

    @property
    def id(self) -> str:
        return self.coordinator.membership.id

    def resource(self, kind: str = "Widget") -> Resource:
        found = self.catalog.of_kind(GROUP, kind)
        assert found is not None
        return found

    async def start(self) -> None:
        await self.caches.start()
        await self.start_coordination()

    async def start_coordination(self) -> None:
        """Joins, reads the CRDs, registers; a server that cannot read them stops."""
        if self.custom is None:
            await self.coordinator.start()
            return
        await self.coordinator.join()
        try:
            await self.custom.start()
        except StorageError:
            await self.stop()
            raise
        await self.coordinator.register()
        await self.custom.wait_for_first()

    async def write(self, name: str, *, kind: str = "Widget", **fields: Any) -> Written:
        """Creates or updates an object."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._write(name, kind, fields)
            except DoAgain as error:
                await error.settle()
        raise status.unavailable(f"{kind} is replaced again and again", retry_after_seconds=1)

    async def _write(self, name: str, kind: str, fields: dict[str, Any]) -> Written:
        resource = self.catalog.of_kind(GROUP, kind)
        if resource is None:
            raise status.not_found(GroupResource(GROUP, _plural(kind)), name)
        version, path = resource.served[0], f"ns/{name}"
        if await self.line.get(resource.key_of(path)) is None:
            return await self.create(name, kind=kind, **fields)
        return await self.store.update(
            resource, version, path, lambda obj: {**obj, **fields}, is_patch=True
        )

    async def create(self, name: str, *, kind: str = "Widget", **fields: Any) -> Written:
        """Creates an object without a read before: a server that is paused now was paused when it
        had sent the transaction."""
        resource = self.resource(kind)
        obj = {"metadata": {"name": name, "namespace": "ns"}, **fields}
        return await self.store.create(resource, resource.served[0], obj, namespace="ns")

    async def kill(self) -> None:
        """Ends at once: entries are not withdrawn, and no more requests are sent."""
        self.line.pause()
        if self.custom is not None:
            await self.custom.close()
        await self.coordinator.abandon()
        await self.caches.close()

    async def stop(self) -> None:
        if self.custom is not None:
            await self.custom.close()  # otherwise it would register while it leaves
        await self.coordinator.close()
        await self.caches.close()


class World:
    """A cluster on one store."""

    def __init__(
        self, directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int = 1
    ) -> None:
        self.clock = SimulatedClock()
        self.seed = seed
        self.catalogs = {
            name: release_catalog(
                load_release(write_release(directory / f"{name}.yaml", name, kinds=kinds))
            )
            for name in RELEASES
        }
        self.storage = AuditedStorage(self.catalogs.values(), opens=open_any)
        self.servers: list[Server] = []
        self._made = 0

    def server(self, release: str, **options: Any) -> Server:
        self._made += 1
        server = Server(self, f"s{self._made}", self.catalogs[release], **options)
        self.servers.append(server)
        return server

    async def started(self, release: str, **options: Any) -> Server:
        server = self.server(release, **options)
        await self.run(server.start())
        return server

    async def run(self, work: Any, *, seconds_max: float = 60.0) -> Any:
        return await self.clock.run_until_done(work, seconds_max=seconds_max)

    async def report(self, kind: str = "Widget") -> StorageVersionEntries | None:
        item = await self.storage.get(report_key(self._name(kind)))
        return None if item is None else decode_report(item).report

    async def common(self, kind: str = "Widget") -> str | None:
        report = await self.report(kind)
        return None if report is None else report.common_version

    async def state(self, kind: str = "Widget") -> PersistedVersions:
        item = await self.storage.get(state_key(self._name(kind)))
        assert item is not None
        return decode_state(item).state

    async def epoch(self, kind: str = "Widget") -> EpochRecord:
        item = await self.storage.get(epoch_key(self._name(kind)))
        assert item is not None
        return decode_epoch(item.value)

    async def stored(self, name: str, kind: str = "Widget") -> str:
        """Returns the version in which an object is stored."""
        item = await self.storage.get(Key(f"/registry/{GROUP}/{_plural(kind)}/ns/{name}"))
        assert item is not None
        return str(orjson.loads(open_any(item.value).value)["apiVersion"]).partition("/")[2]

    async def key_of(self, name: str, kind: str = "Widget") -> str:
        """Returns the encryption key of a stored object."""
        item = await self.storage.get(Key(f"/registry/{GROUP}/{_plural(kind)}/ns/{name}"))
        assert item is not None
        return open_any(item.value).key_id

    def _name(self, kind: str) -> str:
        return name_of(GroupResource(GROUP, _plural(kind)))


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


@asynccontextmanager
async def open_world(
    directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int = 1
) -> AsyncIterator[World]:
    """Yields a cluster without servers; any broken invariant is raised at the end."""
    world = World(directory, kinds=kinds, seed=seed)
    try:
        yield world
        world.storage.check()
    finally:
        for server in world.servers:
            await server.kill()
        await world.storage.close()
