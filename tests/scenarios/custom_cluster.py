"""Servers with custom resources on faulty connections, and scenario commands for gadgets.

    define v1 v2       create the CRD with the first version as storage version (no-op if it exists)
    store v2           change the storage version, adding it if necessary
    add v3             serve another version                 drop v3     remove one, if not stored
    trim               list only the storage version, if verified
    note               change only the status
    undefine           request the deletion
    finish s1          s1 deletes the instances, and the CRD when none is left; like its
                       finalizer only after all servers have closed it
    gadget s1 a        write a gadget, without waiting

A command that the API would reject does nothing, as scenarios are random. Not here: the scenarios
(`custom_chaos`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from restow.apimachinery.status_error import StatusError
from restow.controllers.crd_finalizer import delete_instances
from restow.registry.errors import DoAgain
from restow.storage.errors import StorageError
from restow.storageversion.errors import ModeRefused
from tests.scenarios.cluster import Cluster, Node
from tests.scenarios.crds import KIND, PLURAL, Gadgets
from tests.scenarios.runner import Runner
from tests.unit.storageversion.world import GROUP, Server


class CustomCluster(Cluster):
    """A cluster whose servers host custom resources."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        super().__init__(directory, seed=seed)
        self.gadgets = Gadgets(self.storage)

    def server(self, release: str, **options: Any) -> Server:
        return super().server(release, custom=True, **options)

    async def begin(self, node: Node) -> None:
        await node.server.caches.start()
        work = node.server.start_coordination()
        node.starting = asyncio.create_task(work, name=f"start {node.server.name}")


class CustomRunner(Runner):
    """Runs scenarios with CRDs."""

    cluster: CustomCluster

    @property
    def _gadgets(self) -> Gadgets:
        return self.cluster.gadgets

    async def _note_end_of_start(self, name: str, node: Node) -> None:
        """A server that cannot read the CRDs stops as well."""
        task = node.starting
        if task is not None and task.done() and not task.cancelled():
            error = task.exception()
            if isinstance(error, StorageError) and not isinstance(error, ModeRefused):
                await node.end()
                return
        await super()._note_end_of_start(name, node)

    async def do_define(self, *versions: str) -> None:
        if await self._gadgets.read() is None:
            await self._gadgets.create(versions)
        await self.cluster.clock.settle()

    async def do_store(self, version: str) -> None:
        if await self._is_open():
            await self._gadgets.store_in(version)
        await self.cluster.clock.settle()

    async def do_add(self, version: str) -> None:
        if await self._is_open():
            await self._gadgets.add(version)
        await self.cluster.clock.settle()

    async def do_drop(self, version: str) -> None:
        definition = await self._gadgets.read()
        if definition is None or version in (
            *definition.stored_versions,
            definition.storage_version,
        ):
            return
        await self._gadgets.drop(version)
        await self.cluster.clock.settle()

    async def do_trim(self) -> None:
        """Without a fence there is no verification: earlier requests may still commit."""
        if await self._gadgets.read() is not None and self.cluster.storage.is_fenced:
            await self._gadgets.trim()
        await self.cluster.clock.settle()

    async def do_note(self) -> None:
        if await self._gadgets.read() is not None:
            await self._gadgets.note(str(self.cluster.clock.monotonic()))
        await self.cluster.clock.settle()

    async def do_undefine(self) -> None:
        if await self._is_open():
            await self._gadgets.delete()
        await self.cluster.clock.settle()

    async def do_finish(self, name: str) -> None:
        """Starts in the background, concurrently with later commands, and may fail."""
        self.sent.append(asyncio.create_task(self._finish(name), name=f"finish {name}"))
        await self.cluster.clock.settle()

    async def _finish(self, name: str) -> None:
        server, definition = self.cluster.nodes[name].server, await self._gadgets.read()
        if definition is None or not definition.is_closing:
            return
        closed_by_all = server.coordinator.custom_registration.closed_by_all
        resource = server.catalog.named(GROUP, PLURAL)
        if resource is None or not closed_by_all(GROUP, PLURAL, definition.uid):
            return
        try:
            await delete_instances(server.store, resource)
        except (DoAgain, StatusError):
            return
        found = await self._gadgets.read()
        if found is None or found.uid != definition.uid or await self._gadgets.instances():
            return
        await self._gadgets.remove()

    async def do_gadget(self, name: str, obj: str) -> None:
        server = self.cluster.nodes[name].server

        async def write() -> None:
            try:
                await server.write(obj, kind=KIND, stamp=str(self.cluster.clock.monotonic()))
            except StatusError as error:
                self._refusals[name] = f"{error.code}: {error}"

        self.sent.append(asyncio.create_task(write(), name=f"write {obj}"))
        await self.cluster.clock.settle()

    async def _is_open(self) -> bool:
        definition = await self._gadgets.read()
        return definition is not None and not definition.is_closing


@asynccontextmanager
async def open_custom_cluster(directory: Path, *, seed: int) -> AsyncIterator[CustomCluster]:
    cluster = CustomCluster(directory, seed=seed)
    try:
        yield cluster
        cluster.storage.check()
    finally:
        await cluster.close()
