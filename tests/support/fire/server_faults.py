"""Faults of servers: they die, stand still, have wrong clocks, and are replaced by other releases.

Not here: what goes wrong with their store (`store_faults`).
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
    """The server that is taken for dead is; the others agree, and migrate under the load."""

    NAME: ClassVar = "kill-one"
    SAYS: ClassVar = "kill -9 of one server until it is forgotten; started again"

    async def inject(self, stage: Stage, storage: Storage) -> None:
        old = (await stage.identities(storage))[VICTIM]
        stage.victim.kill()
        await stage.wait_forgotten(storage, old)

    async def heal(self, stage: Stage, storage: Storage) -> None:
        await stage.start(stage.victim)

    def missed(self, window: Window) -> list[str]:
        missed = [] if window.cuts else ["no watcher was cut off"]
        return missed + Fault.missed(self, window)


@dataclass(slots=True)
class KillAll(Fault):
    """Nobody is left."""

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
        return missed + ([] if window.cuts else ["no watcher was cut off"])


@dataclass(slots=True)
class Pause(Fault):
    """A server stands still until it is forgotten, with requests under way, and goes on."""

    NAME: ClassVar = "pause"
    SAYS: ClassVar = (
        "SIGSTOP of one server until its lease has run out and it is forgotten; SIGCONT"
    )

    _old: set[ServerId] = field(default_factory=set)

    async def inject(self, stage: Stage, storage: Storage) -> None:
        for _ in range(PAUSES_MAX):
            self._old = (await stage.identities(storage))[VICTIM]
            stage.victim.pause()
            # One that stands still inside a transaction of SQLite keeps everybody from writing:
            # nobody could be forgotten, and nothing could go wrong either.
            if await _goes_on(stage, storage):
                await stage.wait_forgotten(storage, self._old)
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
    """Whether the store is still written."""
    begin, deadline = await storage.revision(), stage.now() + PROBE_SECONDS_MAX
    while stage.now() < deadline:
        if await storage.revision() >= begin + PROBE_REVISIONS:
            return True
        await stage.sleep(0.02)
    return False


@dataclass(slots=True)
class ClockSkew(Fault):
    """Two clocks jump an hour apart, one to each side, and one of them back again and again."""

    NAME: ClassVar = "clock-skew"
    NEEDS_SKEWS: ClassVar = True
    WRITES_MIN: ClassVar = 200
    SAYS: ClassVar = "wall clocks jump: one server +1 h, one -1 h; then right again"

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
    """Servers are upgraded one by one; one goes back in the middle; then all are, and migrate."""

    NAME: ClassVar = "rolling-upgrade"
    RELEASES: ClassVar = (OLD, OLD, OLD)
    SAYS: ClassVar = "three servers to the next release one by one, one of them back, and again"

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
        return [] if window.cuts or window.harmed() else ["nobody was cut off, nobody put off"]


async def _persisted(storage: Storage) -> tuple[str, ...]:
    item = await storage.get(state_key(WIDGETS.resource_name))
    return () if item is None else decode_state(item).state.persisted
