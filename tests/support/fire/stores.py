"""The stores under test, and the faults that each supports.

| | sqlite | etcd1, etcd3 |
|---|---|---|
| cut off | another process takes the write lock and keeps it | a proxy drops all messages |
| slow | another process takes the write lock repeatedly | the proxy delays all messages |
| full | a small file system, filled | the quota of the members, reached |

There is no network between a server and a file, so no server can be cut off from it alone: the
closest fault is that no server can write.

Not here: when a fault is injected, and its expected effects (`store_faults`).
"""

from __future__ import annotations

import asyncio
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from restow.aio import Clock, Runtime, SystemClock
from tests.support.etcd_process import (
    EtcdCluster,
    EtcdFailed,
    EtcdMember,
    find_binary,
    start_etcd,
)
from tests.support.fire.lock_holder import LockHolder
from tests.support.tcp_proxy import TcpProxy

STORES: Final = ("sqlite", "etcd1", "etcd3")
DISK_BYTES: Final = 96 * 1024 * 1024
BALLAST_ROOT: Final = "/ballast/"
"""Keys that fill an etcd, without objects."""
QUOTA_BYTES: Final = 48 * 1024 * 1024
_BALLAST_BYTES: Final = 1_000_000
_BALLAST_MAX: Final = 200
_POLL_SECONDS: Final = 0.05
_SECONDS_MAX: Final = 30.0


class CannotBeMade(Exception):
    """This machine does not permit this fault; the text has the reason."""


class FireStore(ABC):
    """A store, and methods to make it faulty."""

    address: str
    """Its direct address, without proxies."""
    delays: int = 0
    """Number of delayed messages."""

    @abstractmethod
    async def open(self) -> None:
        """Start the store."""

    @abstractmethod
    async def close(self) -> None:
        """End everything that was started here."""

    def address_for(self, server: int) -> str:
        """The address of the store for one server, which may be that of a proxy."""
        del server
        return self.address

    def check(self) -> list[str]:
        """Problems of the store's files, regardless of its contents."""
        return []

    @abstractmethod
    async def cut_off(self, server: int) -> None:
        """Drop the messages between a server and the store."""

    @abstractmethod
    async def slow_down(self, seconds: float) -> None:
        """Delay every request by this time."""

    @abstractmethod
    async def heal(self) -> None:
        """End the faults of `cut_off` and `slow_down`."""

    @abstractmethod
    async def fill(self) -> None:
        """Use all space."""

    @abstractmethod
    async def free(self) -> None:
        """Free the space."""


class SqliteStore(FireStore):
    """A file that all servers share."""

    def __init__(self, directory: Path, *, is_small: bool = False) -> None:
        self._disk = directory / "disk"
        self._holder_directory = directory / "holder"
        self._holder: LockHolder | None = None
        self._is_small, self._is_mounted = is_small, False
        self._clock = SystemClock()
        self.file = self._disk / "store.db"
        self.address = f"sqlite:{self.file}"

    async def open(self) -> None:
        self._disk.mkdir(mode=0o700, parents=True)
        if self._is_small:
            words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "restow-fire"]
            if not await _run([*words, str(self._disk)]):
                raise CannotBeMade("a small file system needs the permission to mount one")
            self._is_mounted = True

    async def close(self) -> None:
        await self.heal()
        if self._is_mounted:
            await _run(["umount", "--lazy", str(self._disk)])

    def check(self) -> list[str]:
        return check_file(self.file)

    async def cut_off(self, server: int) -> None:
        del server  # the file can only be made unavailable for all servers
        await self._hold()

    async def slow_down(self, seconds: float) -> None:
        await self._hold("--seconds", str(seconds))

    async def _hold(self, *arguments: str) -> None:
        self._holder = LockHolder(self._holder_directory, self.file, arguments=arguments).launch()
        await wait_until(lambda: bool(self._holder and self._holder.times), self._clock)

    async def heal(self) -> None:
        if self._holder is not None:
            self.delays += self._holder.times
            self._holder.kill()
            self._holder = None

    @property
    def _ballast(self) -> Path:
        return self._disk / "ballast"

    async def fill(self) -> None:
        if not self._is_mounted:
            raise CannotBeMade("only a small file system can be filled")
        with self._ballast.open("wb", buffering=0) as file:
            size = 1024 * 1024
            while size >= 4096:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    async def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class EtcdStore(FireStore):
    """Members, and for each server a breakable connection to each of them."""

    def __init__(
        self, directory: Path, *, members: int, servers: int, is_small: bool = False
    ) -> None:
        self._directory = directory
        self._count, self._servers = members, servers
        self._is_small = is_small
        self.cluster: EtcdCluster | None = None
        self._ways: list[list[TcpProxy]] = []
        self._clock = SystemClock()

    @property
    def members(self) -> Sequence[EtcdMember]:
        assert self.cluster is not None
        return self.cluster.members

    async def open(self) -> None:
        quota = QUOTA_BYTES if self._is_small else 0
        self.cluster = start_etcd(self._directory / "etcd", members=self._count, quota_bytes=quota)
        self.address = self.cluster.url
        runtime = Runtime.system()
        for _ in range(self._servers):
            ways = [TcpProxy(member.client_port, runtime) for member in self.members]
            self._ways.append([await way.__aenter__() for way in ways])

    async def close(self) -> None:
        for way in (way for ways in self._ways for way in ways):
            await way.__aexit__(None, None, None)
        if self.cluster is not None:
            self.cluster.close()

    def address_for(self, server: int) -> str:
        return "etcd://" + ",".join(way.address for way in self._ways[server])

    async def cut_off(self, server: int) -> None:
        """First replies are dropped, and soon requests too."""
        for way in self._ways[server]:
            way.drops_replies = True
        await self._clock.sleep(1.0)
        for way in self._ways[server]:
            way.drops_requests = True

    async def slow_down(self, seconds: float) -> None:
        for way in (way for ways in self._ways for way in ways):
            way.delay_seconds = seconds

    async def heal(self) -> None:
        for way in (way for ways in self._ways for way in ways):
            was_lossy = way.drops_replies or way.drops_requests
            self.delays += way.delayed
            way.heal()
            if was_lossy:
                way.cut()  # streams have gaps where messages were dropped

    async def fill(self) -> None:
        """Write until the members raise their alarm."""
        assert self.cluster is not None
        if not self._is_small:
            raise CannotBeMade("only members with a quota can be filled")
        for number in range(_BALLAST_MAX):
            value = self._directory / "ballast"
            value.write_bytes(b"x" * _BALLAST_BYTES)
            put = ("put", f"{BALLAST_ROOT}{number}")
            if not await asyncio.to_thread(_put_file, self.cluster, put, value):
                return
        raise CannotBeMade("the quota is never reached")

    async def free(self) -> None:
        """Raise the quota of every member, one after the other, and disarm the alarm."""
        assert self.cluster is not None
        for member in self.members:
            member.arguments = [
                *(each for each in member.arguments if "quota" not in each),
                f"--quota-backend-bytes={8 * QUOTA_BYTES}",
            ]
            member.stop()
            # With an alarm no member is healthy; others may raise it again until they have more.
            await self.start_member(member, until=self._is_disarmed)
        await wait_until(self._is_disarmed, self._clock)

    def _is_disarmed(self) -> bool:
        """Disarm the alarm; whether all members then serve. Blocks."""
        assert self.cluster is not None
        try:
            self.cluster.etcdctl("alarm", "disarm")
        except EtcdFailed:
            return False
        return all(member.is_healthy() for member in self.members)

    async def start_member(
        self, member: EtcdMember, *, until: Callable[[], bool] | None = None
    ) -> None:
        """Start a member that has ended, and wait until it serves."""
        member.start()
        await wait_until(until or member.is_healthy, self._clock)


def check_file(file: Path) -> list[str]:
    """Problems of a SQLite file."""
    with closing(apsw.Connection(str(file))) as connection:
        [(said,)] = connection.execute("PRAGMA integrity_check")
    return [] if said == "ok" else [f"sqlite: {said}"]


def make_store(name: str, directory: Path, *, servers: int, is_small: bool) -> FireStore:
    """Create a store by its name."""
    if name == "sqlite":
        return SqliteStore(directory, is_small=is_small)
    members = {"etcd1": 1, "etcd3": 3}[name]
    return EtcdStore(directory, members=members, servers=servers, is_small=is_small)


async def wait_until(condition: Callable[[], bool], clock: Clock) -> None:
    """Wait for a condition that may block and soon holds."""
    deadline = clock.monotonic() + _SECONDS_MAX
    while not await asyncio.to_thread(condition):
        if clock.monotonic() > deadline:
            raise CannotBeMade("timeout: the store has not reached the wanted state")
        await clock.sleep(_POLL_SECONDS)


async def _run(words: list[str]) -> bool:
    """Whether a system command succeeded."""
    done = await asyncio.to_thread(
        subprocess.run, words, check=False, capture_output=True, timeout=30
    )
    return done.returncode == 0


def _put_file(cluster: EtcdCluster, words: tuple[str, ...], value: Path) -> bool:
    """Whether the put succeeded. The value is in a file, since it is too long for an argument."""
    command = [find_binary("etcdctl"), f"--endpoints={','.join(cluster.endpoints)}", *words]
    with value.open("rb") as file:
        done = subprocess.run(command, stdin=file, check=False, capture_output=True, timeout=30)
    return done.returncode == 0
