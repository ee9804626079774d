"""Bytes that watchers share, and bytes that they must not share."""

from __future__ import annotations

from typing import cast

from restow.aio import Runtime, SimulatedClock
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.watch import FanOut, WatchResponse
from restow.registry.watch_cache import WatchCache


class Cache:
    """The parts of a cache that a fan-out needs."""

    root = "/registry/things/"
    is_closed = False

    def listen(self, listener: object) -> None:
        self.listener = listener

    def unlisten(self, listener: object) -> None:
        del self.listener


class Hosted:
    def __init__(self, clock: SimulatedClock) -> None:
        self.runtime = Runtime.simulated(1, clock=clock)
        self.fan_outs: dict[str, FanOut] = {}


class Reader:
    """A watcher whose cursor never moves."""

    def __init__(self, fan_out: FanOut, made: list[bytes]) -> None:
        self._fan_out = fan_out
        self._made = made
        self.seen: list[bytes] = []

    def flush(self) -> None:
        def make() -> bytes:
            self._made.append(b"%d" % len(self._made))
            return self._made[-1]

        self.seen.append(self._fan_out.shared(7, "form", make))


async def test_bytes_are_shared_within_one_flush_only() -> None:
    """A watcher that starts between two flushes gets all changes, not the bytes that another one at
    the same position got before the last change."""
    clock, cache = SimulatedClock(), Cache()
    fan_out = FanOut(cast("Server", Hosted(clock)), cast("WatchCache", cache))
    made: list[bytes] = []
    readers = [Reader(fan_out, made) for _ in range(3)]
    for reader in readers:
        reader.flush()  # as a new watcher does
        fan_out.add(cast("WatchResponse", reader))
    assert [reader.seen for reader in readers] == [[b"0"], [b"1"], [b"2"]]
    fan_out._changed()
    await clock.advance(0)
    assert [reader.seen[-1] for reader in readers] == [b"3", b"3", b"3"]
    readers[0].flush()
    assert readers[0].seen[-1] == b"4"


async def test_a_fan_out_is_kept_while_it_has_watchers() -> None:
    """No state is kept for a kind without watchers, which may have been deleted."""
    server, cache = Hosted(SimulatedClock()), Cache()
    fan_out = FanOut(cast("Server", server), cast("WatchCache", cache))
    reader = cast("WatchResponse", Reader(fan_out, []))
    fan_out.add(reader)
    assert server.fan_outs == {cache.root: fan_out}
    fan_out.discard(reader)
    assert server.fan_outs == {}
