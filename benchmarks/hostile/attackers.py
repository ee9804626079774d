"""Hostile clients of one or several kinds: `... attackers STAGE N NICENESS [KIND...]`.

Each kind holds its share of N connections, and reconnects whenever one is closed. Where time is
measured, the process runs at a low priority, so that its own CPU use does not count as the
server's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.api.target import on_other_cores
from benchmarks.hostile import authenticated, unauthenticated
from benchmarks.hostile.opening import opened
from benchmarks.hostile.stage import Stage

AGAIN_SECONDS: Final = 0.05
"""Delay before a closed connection is opened again."""
CONNECT_SECONDS: Final = 5.0
"""How long the measurement waits for all to connect; a server may be too busy for that."""

Attack = Callable[[Stage, int], Awaitable[None]]
ATTACKS: Final[dict[str, Attack]] = {
    each.__name__: each for each in (*unauthenticated.ATTACKS, *authenticated.ATTACKS)
}


async def attack(stage: Stage, connections: int, names: list[str]) -> None:
    """Attack until the process is terminated."""

    async def go_on(one: Attack, number: int) -> None:
        while True:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
                await one(stage, number)
            await asyncio.sleep(AGAIN_SECONDS)

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            one = ATTACKS[names[number % len(names)]]
            group.create_task(go_on(one, number // len(names)))
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                while len(opened) < connections:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(AGAIN_SECONDS)
        print("ready", flush=True)


def main() -> None:
    stage, connections, niceness, *names = sys.argv[1:]
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # independent of the parent
    os.setpriority(os.PRIO_PROCESS, 0, int(niceness))
    on_other_cores()
    asyncio.run(attack(Stage.read(Path(stage)), int(connections), names or list(ATTACKS)))


if __name__ == "__main__":
    main()
