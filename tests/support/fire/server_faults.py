"""Faults of servers: killed, paused, with skewed clocks, and replaced by other releases.

Not here: faults of their store (`store_faults`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from restow.storage.interface import Storage
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import decode_state, state_key
from tests.support.child_process import Started
from tests.support.fire.fault import Fault, Window
from tests.support.fire.objects import WIDGETS
from tests.support.fire.record import Operation
from tests.support.fire.skewed_server import SkewedServerProcess
from tests.support.fire.stage import NEW, OLD, VICTIM, Stage, StageFailed

SKEW_SECONDS: Final = 3600.0
PAUSES_MAX: Final = 40
PROBE_REVISIONS: Final = 5
PROBE_SECONDS_MAX: Final = 1.5
NARROWED_SECONDS_MAX: Final = 90.0


@dataclass(slots=True)
class KillOne(Fault):
    """A server is killed; its lease expires, and the others agree, and migrate under the load."""

    NAME: ClassVar = "kill-one"
    SAYS: ClassVar = "kill -9 of one server until its lease has expired; started again"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        old = (await stage.identities(storage))[VICTIM]
        stage.victim.kill()
        await stage.wait_removed(storage, old)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.start(stage.victim)

    def missed(self, window: Window) -> list[str]:
        missed = [] if window.cuts else ["no watcher was interrupted"]
        return missed + Fault.missed(self, window)


@dataclass(slots=True)
class KillAll(Fault):
    """All servers are killed."""

    NAME: ClassVar = "kill-all"
    SAYS: ClassVar = "kill -9 of all servers at once; all started again"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        for server in stage.servers:
            assert server.process is not None
            server.process.kill()
        for server in stage.servers:
            server.kill()

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.start(*stage.servers)

    def missed(self, window: Window) -> list[str]:
        servers = {each.server for each in window.operations}
        missed = [
            f"no request to server {n + 1} was harmed" for n in servers if not window.harmed(n)
        ]
        return missed + ([] if window.cuts else ["no watcher was interrupted"])


@dataclass(slots=True)
class Pause(Fault):
    """A server is paused with requests in flight until its lease has expired, and resumed."""

    NAME: ClassVar = "pause"
    SAYS: ClassVar = (
        "SIGSTOP of one server until its lease has expired and its entries are removed; SIGCONT"
    )

    _old: set[ServerId] = field(default_factory=set)

    async def inject(self, stage: Stage, storage: Storage) -> None:
        for _ in range(PAUSES_MAX):
            self._old = (await stage.identities(storage))[VICTIM]
            stage.victim.pause()
            # A server paused inside a SQLite transaction blocks all writes: no lease could be
            # collected, and nothing could go wrong either.
            if await _goes_on(stage, storage):
                await stage.wait_removed(storage, self._old)
                return
            stage.victim.resume()
            await stage.sleep(0.05)
        raise StageFailed("the victim is always in the middle of a transaction")

    async def heal(self, stage: Stage, storage: Storage) -> None:
        stage.victim.resume()
        await stage.wait_all_ready()
        if (await stage.identities(storage))[VICTIM] & self._old:
            self.notes.append("the victim has kept its identity")


async def _goes_on(stage: Stage, storage: Storage) -> bool:
    """Whether the store still accepts writes."""
    begin, deadline = await storage.revision(), stage.now() + PROBE_SECONDS_MAX
    while stage.now() < deadline:
        if await storage.revision() >= begin + PROBE_REVISIONS:
            return True
        await stage.sleep(0.02)
    return False


@dataclass(slots=True)
class ClockSkew(Fault):
    """Two clocks jump an hour apart, in both directions, and one of them back repeatedly."""

    NAME: ClassVar = "clock-skew"
    NEEDS_SKEWS: ClassVar = True
    WRITES_MIN: ClassVar = 200
    SAYS: ClassVar = "wall clocks jump: one server +1 h, one -1 h; then correct again"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        for server, seconds in zip(stage.servers, (SKEW_SECONDS, -SKEW_SECONDS), strict=False):
            assert isinstance(server, SkewedServerProcess)
            server.set_skew(seconds)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        for server in stage.servers:
            assert isinstance(server, SkewedServerProcess)
            server.set_skew(0)

    def missed(self, window: Window) -> list[str]:
        latest, earliest = _created(window, 0), _created(window, 1)
        if not latest or not earliest:
            return ["nothing was created by the servers whose clocks are wrong"]
        apart = (max(latest) - min(earliest)).total_seconds()
        return [] if apart > SKEW_SECONDS else [f"what they created is only {apart:.0f} s apart"]


def _created(window: Window, server: int) -> list[datetime]:
    def is_told(each: Operation) -> bool:
        return each.server == server and bool(each.created_at)

    return [datetime.fromisoformat(each.created_at) for each in window.operations if is_told(each)]


@dataclass(slots=True)
class RollingUpgrade(Fault):
    """Servers are upgraded one by one, with one rollback in between; then all migrate."""

    NAME: ClassVar = "rolling-upgrade"
    RELEASES: ClassVar = (OLD, OLD, OLD)
    SAYS: ClassVar = "three servers to the next release one by one, one rolled back, and again"

    _lives: list[Started] = field(default_factory=list)

    async def inject(self, stage: Stage, storage: Storage) -> None:
        await stage.change_release(0, NEW)
        await stage.change_release(1, NEW)
        await stage.change_release(0, OLD)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.change_release(2, NEW)
        await stage.change_release(0, NEW)
        deadline = stage.now() + NARROWED_SECONDS_MAX
        while len(await _persisted(storage)) != 1:
            if stage.now() > deadline:
                raise StageFailed(f"the migration does not end\n{stage.logs()}")
            await stage.sleep(0.1)

    def missed(self, window: Window) -> list[str]:
        return [] if window.cuts or window.harmed() else ["no watcher or request was affected"]


async def _persisted(storage: Storage) -> tuple[str, ...]:
    item = await storage.get(state_key(WIDGETS.resource_name))
    return () if item is None else decode_state(item).state.persisted
