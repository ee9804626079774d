"""Greetings: who comes waits its turn, and nobody holds up another."""

from __future__ import annotations

import asyncio

import pytest

from restow.runtime import SimulatedClock
from restow.serving.listener.greeting import BUSY_SECONDS, SPOILT_SECONDS, Greetings
from restow.serving.listener.limits import Limits
from restow.testing.certificates import CertificateFiles
from tests.unit.serving.listener.conftest import Harness, client_context, short, until
from tests.unit.serving.listener.test_tls import material

COUNT = 40


class Line:
    """Some who wait to be greeted, on a clock that stands still."""

    def __init__(self) -> None:
        self.requests = self.gone = 0
        self.clock = SimulatedClock()
        self.limits = Limits()
        self.greetings = Greetings(
            limits=self.limits,
            clock=self.clock,
            requests_total=lambda: self.requests,
            strangers_gone=lambda: self.gone,
        )
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, count: int) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self.greetings.wait_for_turn()))

    async def greeted(self) -> int:
        """How many have been, when all was done that can be without time."""
        for _ in range(COUNT * 3):
            await asyncio.sleep(0)
        return sum(task.done() for task in self.tasks)


@pytest.mark.parametrize(("requests", "gone"), [(0, 0), (5, 0), (0, 5)])
async def test_nobody_waits_for_nothing(requests: int, gone: int) -> None:
    """While no request is answered, or all who come stay, there is no pause between greetings."""
    line = Line()
    line.requests, line.gone = requests, gone
    line.come(COUNT)
    assert await line.greeted() == COUNT


async def test_requests_come_in_between() -> None:
    """While requests are answered and strangers leave, each greeting waits for the pause behind the
    one before."""
    line = Line()
    line.requests = line.gone = 1
    line.come(COUNT)
    assert await line.greeted() == 1
    for number in range(2, 10):
        line.requests += 1
        await line.clock.advance(line.limits.greeting_seconds)
        assert await line.greeted() == number
    await line.clock.advance(BUSY_SECONDS + line.limits.greeting_seconds)
    assert await line.greeted() == COUNT  # nobody asks any more


async def test_strangers_are_forgotten() -> None:
    """A while after the last one has left there is no pause any more."""
    line = Line()
    line.requests = line.gone = 1
    line.come(2)
    assert await line.greeted() == 1
    await line.clock.advance(SPOILT_SECONDS)
    line.requests += 1
    line.come(COUNT)
    assert await line.greeted() == 2 + COUNT


async def test_a_pause_is_for_whoever_comes_next() -> None:
    """Those who come one by one are not quicker than those who come together."""
    line = Line()
    for number in range(1, 4):
        line.requests += 1
        line.gone += 1
        line.come(1)
        assert await line.greeted() == number
        line.come(1)
        assert await line.greeted() == number
        line.tasks.pop().cancel()  # who gives up takes nobody's turn
        await line.clock.advance(line.limits.greeting_seconds)


async def test_a_server_that_leaves_does_not_pause() -> None:
    """Whoever was accepted is greeted at once."""
    line = Line()
    line.requests = line.gone = 1
    line.come(COUNT)
    assert await line.greeted() == 1
    line.greetings.stop_pausing()
    assert await line.greeted() == COUNT


async def test_the_silent_hold_up_nobody(harness: Harness, certificates: CertificateFiles) -> None:
    """Connections that do not begin a handshake stand in no line, and are cut in the end."""
    await harness.start(tls=material(certificates), limits=short(handshake_seconds=1.0))
    silent = [await harness.connect() for _ in range(COUNT)]
    client = await harness.connect(context=client_context(certificates.ca_file))
    client.get()
    assert (await client.answer()).status == 200
    for each in silent:
        assert await each.rest() == b""
    client.get()
    assert (await client.answer()).status == 200


@pytest.mark.parametrize("begun", [b"\x16\x03\x01\x02\x00\x01", b"\x00\xff" * 250])
async def test_the_broken_hold_up_nobody(
    harness: Harness, certificates: CertificateFiles, begun: bytes
) -> None:
    """Neither do half a handshake and what is none, and all of them are gone in the end."""
    listener = await harness.start(tls=material(certificates), limits=short(handshake_seconds=1.0))
    broken = [await harness.connect() for _ in range(COUNT)]
    for each in broken:
        each.send(begun)
    client = await harness.connect(context=client_context(certificates.ca_file))
    client.get()
    assert (await client.answer()).status == 200
    for each in broken:
        await each.rest()
    await client.close()
    await until(lambda: listener.counters.connections_open == 0)


async def test_who_comes_together_ends_together(
    harness: Harness, certificates: CertificateFiles
) -> None:
    """Many that are overdue at once are all sent away, though only some in a turn."""
    listener = await harness.start(tls=material(certificates), limits=short(linger_seconds=0.05))
    context = client_context(certificates.ca_file)
    many = [await harness.connect(context=context) for _ in range(COUNT)]
    for each in many:
        each.send(b"\x00" * 2_000)
    for each in many:
        assert (await each.answer()).status == 400
        assert await each.rest() == b""
    assert listener.counters.requests_refused == COUNT


async def test_long_heads_of_strangers_are_read_in_turns(harness: Harness) -> None:
    """Each gets its answer, the requests behind it too, and a short one comes through."""
    await harness.start()
    long = f"X-Long: {'x' * 700_000}"
    many = [await harness.connect() for _ in range(8)]
    for each in many:
        each.get("/long", long)
        each.get("/behind")
    client = await harness.connect()
    client.get("/short")
    assert (await client.answer()).body == b"/short|"
    for each in many:
        assert (await each.answer()).body == b"/long|"
        assert (await each.answer()).body == b"/behind|"
