"""The measured clients: an administrator and an ordinary user, with small gets and creates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import quantiles
from typing import Final

from benchmarks.api.connection import Connection
from benchmarks.api.requests import COLLECTION
from benchmarks.api.target import Target
from benchmarks.hostile.stage import Stage

ITEMS: Final = 200
PAUSE_SECONDS: Final = 0.002
"""Pause between the requests, which must not overload the server."""
ADDRESS: Final = "127.0.0.2"
"""Not that of the attackers, with which it would share what an address may have."""
REFUSED: Final = frozenset({429, 503})
SECONDS_MAX: Final = 10.0
"""A request that takes longer is given up, counts with this time, and ends the round."""

_numbers = count()


@dataclass(slots=True)
class Samples:
    """Seconds that requests took, and how many were refused or failed, by who sent what."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: int = 0
    failed: int = 0

    def of(self, what: str) -> tuple[float, float]:
        """p50 and p99 in milliseconds."""
        taken = self.seconds.get(what, [SECONDS_MAX])
        if len(taken) == 1:
            taken = taken * 2  # of one there are no quantiles
        cuts = quantiles(taken, n=100, method="inclusive")
        return cuts[49] * 1e3, cuts[98] * 1e3


async def measure(
    stage: Stage, seconds: float, into: Samples, *, clock: Callable[[], float]
) -> None:
    """Send requests for some seconds, each kind of each client in turn, one at a time."""
    users = {"admin": stage.target.token, "user": stage.ordinary}
    clients = {name: Client(replace(stage.target, token=token)) for name, token in users.items()}
    for client in clients.values():
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(SECONDS_MAX):
                await client.send("get")  # which connects
    kinds = [(name, verb) for name in users for verb in ("get", "create")]
    end = time.perf_counter() + seconds
    is_over = False
    while not is_over:
        for name, verb in [*kinds, ("admin", "connect")]:
            if verb == "connect":
                clients[name].close()
            begin = clock()
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    code = await clients[name].send(verb)
            except (OSError, EOFError, TimeoutError):
                code, is_over = 0, True
                clients[name].close()
            taken = clock() - begin
            if code in {200, 201}:
                into.seconds.setdefault(f"{name} {verb}", []).append(taken)
            elif code in REFUSED:
                into.refused += 1
            elif code == 0:
                into.failed += 1
                into.seconds.setdefault(f"{name} {verb}", []).append(SECONDS_MAX)
            else:
                raise SystemExit(f"the well-behaved client got {code}")
            await asyncio.sleep(PAUSE_SECONDS)
        is_over |= time.perf_counter() > end
    for client in clients.values():
        client.close()


class Client:
    """A client with one connection, which it opens when it needs it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection: Connection | None = None

    async def send(self, verb: str) -> int:
        if self._connection is None:
            self._connection = await Connection.open(self._target, address=ADDRESS)
        number = next(_numbers)
        if verb == "create":
            body = {"metadata": {"name": f"new-{number}"}, "data": {"a": "b"}}
            code, _ = await self._connection.send("POST", COLLECTION, body)
        else:
            path = f"{COLLECTION}/item-{number % ITEMS:06d}"
            code, _ = await self._connection.send("GET", path)
        return code

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
