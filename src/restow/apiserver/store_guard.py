"""Checks the identity of a server's store at the start, and at each renewal of its lease.

    start  -> compare the store with `store.mark`; refuse to start with another one
    step   -> compare again; write the mark; block the storage when the store was replaced or rolled
              back, and unblock it when an operator has accepted the store or the right one is back
    confirm -> the same before this server joins. It writes nothing without a membership record, so
               a store whose keys were deleted gets no writes before it was compared

A blocked storage neither reads nor writes, so the caches above it are dropped. Not here: which
differences make it another store (`restow.storage.identity`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from restow.aio import Runtime, Tasks, in_own_thread
from restow.aio.events import EventChannel
from restow.endpoints.health import HealthChecks
from restow.storage.drivers import open_storage, place_name
from restow.storage.errors import OpenRefused, StorageError, StoreReplaced
from restow.storage.identity import (
    AHEAD,
    IDENTITY_KEY,
    IdentifiedStorage,
    Mark,
    Seen,
    decode_record,
    difference,
    ensure_identity,
    expire_revisions,
    explain,
)
from restow.storage.interface import Span, Storage
from restow.storage.store_mark import MARK_NAME, read_checked, with_former, write_mark

CHECK_SECONDS: Final = 1.0
"""Interval of the checks of a blocked store."""
NONCE_BYTES: Final = 4

logger = logging.getLogger(__name__)


async def open_guarded(
    address: str, runtime: Runtime, undo: AsyncExitStack, *, data_dir: Path
) -> tuple[Storage, StoreGuard | None]:
    """Open a store and check that it is the one this server used before; raises `OpenRefused`.

    `undo` closes it. A store in memory ends with its process, and needs no guard.
    """
    file = data_dir / MARK_NAME
    name = place_name(address)
    mark = await in_own_thread("store mark", partial(read_checked, file, name))
    storage = await open_storage(address, runtime)
    undo.push_async_callback(storage.close)
    if not isinstance(storage, IdentifiedStorage):
        return storage, None
    reopen = partial(open_storage, address, runtime)
    guard = StoreGuard(storage, runtime, name=name, file=file, reopen=reopen)
    await guard.start(mark)
    undo.push_async_callback(guard.close)
    return storage, guard


def keep_guard(
    guard: StoreGuard | None, health: HealthChecks, tasks: Tasks, *, interval_seconds: float
) -> None:
    """Check the store of a running server periodically, and report the result."""
    if guard is not None:
        health.add("store-identity", guard.check, "readyz")
        tasks.spawn_loop("store identity", guard.run(interval_seconds))
        tasks.spawn_loop("store identity watch", guard.follow())


class StoreGuard:
    """Compares one storage with the recorded identity and revision of this server's store."""

    def __init__(
        self,
        storage: IdentifiedStorage,
        runtime: Runtime,
        *,
        name: str,
        file: Path,
        reopen: Callable[[], Awaitable[Storage]],
        ahead: int = AHEAD,
    ) -> None:
        """`file` is the mark; `reopen` opens another handle on the same store; `ahead`: the
        distance between the newest revision seen and the first one of an accepted store."""
        self._storage = storage
        self._runtime = runtime
        self._name = name
        self._file = file
        self._reopen = reopen
        self._ahead = ahead
        self._mark: Mark | None = None
        """The recorded state; set from `start` on."""
        self._told = ""
        self._comparing = asyncio.Lock()
        self.accepted: Final = EventChannel[[]]()
        """Emitted when the server continues with another store than before."""

    def check(self) -> str | None:
        """The reason why the store must not be used, for the health check; None if it may."""
        blocked = self._storage.blocked
        return None if blocked is None else str(blocked)

    async def start(self, mark: Mark | None) -> None:
        """Compare the store with the recorded state; raises `OpenRefused` if it is another one."""
        seen = await self._storage.look()
        if seen.record is None and (mark is None or mark.address != self._name):
            await ensure_identity(self._storage, self._runtime.ids)
            seen = await self._storage.look()
        self._mark = mark
        if mark is not None:
            why = difference(mark, seen, address=self._name)
            if why is not None:
                raise OpenRefused(explain(self._name, why))
        self._storage.unblock(seen)  # from now on it must stay this store
        if mark is not None and _id_of(seen) != mark.id and mark.address == self._name:
            await expire_revisions(self._storage, upto=mark.revision + self._ahead)
        await self._remember(seen)

    async def run(self, interval_seconds: float) -> None:
        """Check at each renewal of the lease, and soon after the driver reports a problem."""
        clock = self._runtime.clock
        looked_at = clock.monotonic()
        while True:
            await clock.sleep(min(CHECK_SECONDS, interval_seconds))
            is_due = clock.monotonic() - looked_at >= interval_seconds
            if is_due or self._storage.blocked is not None:
                await self.step()
                looked_at = clock.monotonic()

    async def follow(self) -> None:
        """Check at once when the identity is changed or removed, as when all keys are deleted."""
        storage, clock = self._storage, self._runtime.clock
        while True:
            try:
                after = await storage.revision()
                watch = storage.watch(Span.of_key(IDENTITY_KEY), after=after)
                try:
                    await self.step()  # for earlier changes
                    async for batch in watch:
                        if any(self._is_other(event.value) for event in batch.events):
                            await self.step()
                finally:
                    await watch.close()
            except StorageError:  # it is blocked, unreachable, or was compacted
                await clock.sleep(CHECK_SECONDS)

    def _is_other(self, value: bytes | None) -> bool:
        """Whether a stored identity is not the recorded one. Servers that raise the revision write
        the same identity again."""
        record = decode_record(value)
        return record is None or self._mark is None or record.id != self._mark.id

    async def step(self) -> bool:
        """Check once; returns whether the store may be used."""
        try:
            await self.confirm()
        except StoreReplaced:
            return False
        except StorageError as error:
            logger.info("cannot compare the store with its mark: %s", error)
            return self.check() is None
        return True

    async def confirm(self) -> None:
        """Check once; raises `StoreReplaced` if the store must not be used, and another
        `StorageError` if it did not respond."""
        async with self._comparing:
            await self._compare()

    async def _compare(self) -> None:
        assert self._mark is not None
        storage, blocked = self._storage, self._storage.blocked
        mark = msgspec.structs.replace(
            self._mark, revision=max(storage.newest, self._mark.revision)
        )
        if blocked is not None:
            if not blocked.passes and not mark.suspect:
                mark = msgspec.structs.replace(mark, suspect=str(blocked))
            await self._keep(mark)
        try:
            seen = await storage.look()
            why = difference(mark, seen, address=self._name)
            if why is None and _id_of(seen) != mark.id:
                seen = await self._take_over(mark)
            found = storage.blocked
            if found is not None and found is not blocked:
                # Another read has seen newer writes than this check, which began before them.
                raise StoreReplaced(str(found), passes=found.passes)
        except StoreReplaced as error:
            await self._keep(mark)
            self._log_problem(str(error))
            raise
        if why is not None:
            problem = StoreReplaced(why if mark.suspect else explain(self._name, why))
            storage.block(problem)
            await self._keep(mark)
            self._log_problem(str(problem))
            raise problem
        is_other = _id_of(seen) != mark.id
        if is_other and storage.blocked is None:
            # Replaced and accepted before this server noticed: end watches and caches.
            storage.block(StoreReplaced(f"another store was accepted as {self._name}"))
        if storage.blocked is not None or is_other:
            storage.unblock(seen)
            logger.warning("continuing with the store %s: %s", self._name, _shown(seen))
            self._told = ""
            if is_other:  # without an await in between: no request may use the old caches
                self.accepted.emit()
        await self._remember(seen)

    async def _take_over(self, mark: Mark) -> Seen:
        """Prepare an accepted store before the first read; returns its state afterwards."""
        other = await self._reopen()
        try:
            await expire_revisions(other, upto=mark.revision + self._ahead)
        finally:
            await other.close()
        return await self._storage.look()

    async def close(self) -> None:
        """Record the newest revision that was seen, also of a blocked store, so that a copy without
        the last writes is not mistaken for the store."""
        if self._mark is not None:
            newest = max(self._mark.revision, self._storage.newest)
            await self._keep(msgspec.structs.replace(self._mark, revision=newest))

    async def _keep(self, mark: Mark) -> None:
        """Write the mark if it has changed."""
        if mark != self._mark:
            self._mark = mark
            await self._write(mark)

    async def _remember(self, seen: Seen) -> None:
        file, log = self._storage.places
        before = self._mark
        mark = Mark(
            id=_id_of(seen),
            revision=max(seen.revision, self._storage.newest),
            address=self._name,
            cluster_id=seen.cluster_id,
            file=file,
            log=log,
        )
        self._mark = mark if before is None else with_former(mark, before)
        await self._write(self._mark)

    async def _write(self, mark: Mark) -> None:
        nonce = self._runtime.ids.nonce(NONCE_BYTES)
        try:
            await in_own_thread("store mark", partial(write_mark, self._file, mark, nonce=nonce))
        except OSError as error:
            logger.warning("cannot write %s: %s", self._file, error.strerror)

    def _log_problem(self, text: str) -> None:
        if text != self._told:
            logger.error("%s", text)
        self._told = text


def _id_of(seen: Seen) -> str:
    return "" if seen.record is None else seen.record.id


def _shown(seen: Seen) -> str:
    return f"identity {_id_of(seen)}, revision {seen.revision}"
