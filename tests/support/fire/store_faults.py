"""Faults of the store: unreachable, slow, full, or without its leader.

Not here: how each store is made faulty (`stores`).
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import ClassVar, Final

from restow.storage.interface import Storage
from tests.support.etcd_process import EtcdMember
from tests.support.fire.fault import Fault, Window
from tests.support.fire.stage import VICTIM, Stage
from tests.support.fire.stores import EtcdStore

SLOW_SECONDS: Final = 0.1
PARTITION_SECONDS: Final = 4.0


@dataclass(slots=True)
class Partition(Fault):
    """A server cannot reach its store; SQLite's is unavailable for all writers."""

    NAME: ClassVar = "partition"
    SAYS: ClassVar = (
        "etcd: the messages between one server and the members are lost; sqlite has no network: a"
        " stopped process holds the write lock"
    )

    async def inject(self, stage: Stage, storage: Storage) -> None:
        await stage.store.cut_off(VICTIM)
        await stage.sleep(PARTITION_SECONDS)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.store.heal()
        await stage.wait_all_ready()


@dataclass(slots=True)
class SlowStore(Fault):
    """Every request to the store is delayed."""

    NAME: ClassVar = "slow-store"
    WRITES_MIN: ClassVar = 20
    SAYS: ClassVar = "etcd: every message is late; sqlite: the write lock is held most of the time"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        await stage.store.slow_down(SLOW_SECONDS)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.store.heal()
        if not stage.store.delays:
            self.notes.append("nothing was late")

    def missed(self, window: Window) -> list[str]:
        slowest = max((each.ended - each.began for each in window.operations), default=0.0)
        return [] if slowest >= SLOW_SECONDS else [f"everything was done within {slowest:.3f} s"]


@dataclass(slots=True)
class FullDisk(Fault):
    """The store has no space left; then space is freed."""

    NAME: ClassVar = "full-disk"
    NEEDS_SMALL_STORE: ClassVar = True
    SAYS: ClassVar = "sqlite: its file system is filled; etcd: the quota of its members is reached"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        await stage.store.fill()

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.store.free()
        await stage.wait_all_ready()

    def missed(self, window: Window) -> list[str]:
        return [] if window.harmed() else ["no write failed for lack of space"]


@dataclass(slots=True)
class LeaderKilled(Fault):
    """etcd must elect another leader."""

    NAME: ClassVar = "leader-killed"
    STORES: ClassVar = ("etcd1", "etcd3")
    SAYS: ClassVar = "kill -9 of the leader (or of the only member); started again"

    _killed: EtcdMember | None = None
    _begin: float = math.inf
    _end: float = math.inf
    """End of the interval without a leader, which starts at `_begin`."""

    async def inject(self, stage: Stage, storage: Storage) -> None:
        store = stage.store
        assert isinstance(store, EtcdStore)
        assert store.cluster is not None
        # Not in this thread: the proxies between servers and members run in it.
        self._killed = await asyncio.to_thread(store.cluster.leader)
        self._begin = stage.now()
        self._killed.kill()
        if len(store.members) > 1 and await asyncio.to_thread(store.cluster.leader) is self._killed:
            self.notes.append("the leader has not changed")
        if len(store.members) > 1:
            self._end = stage.now()

    async def heal(self, stage: Stage, storage: Storage) -> None:
        assert isinstance(stage.store, EtcdStore)
        assert self._killed is not None
        await stage.store.start_member(self._killed)
        self._end = min(self._end, stage.now())
        await stage.wait_all_ready()

    def missed(self, window: Window) -> list[str]:
        # Replies may only be late, as servers retry.
        waited = any(
            each.is_write and each.began < self._end and each.ended > self._begin
            for each in window.operations
        )
        return [] if waited else ["no write was delayed by the election"]
