"""The story of `restow demo`: a rolling upgrade, with a rollback in the middle of the migration.

It is the case walk-through of KEP-2343's extension for several servers, row by row, with releases
of ours: x+1 stores widgets as v1, x+2 stores them as v2, and both read both.

Each step says what is done, does it, waits until it is seen, shows it, checks that it came out as
it should, and says why it matters. What did not happen is checked too: the witness has seen every
request and every state in between. A check that fails ends the story.

Not here: how things are done (`demo_stage`) and how they are said (`demo_narrator`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from restow.aio import Randomness
from restow.cli.demo_narrator import Narrator
from restow.cli.demo_stage import MigratorPace, Stage, StoryFailed
from restow.cli.demo_view import DemoState
from restow.migration.migration_values import MigrationPhase

OLD, NEW, NEXT = "x+1", "x+2", "x+3"
SERVERS: Final = 3
WIDGETS_FIRST: Final = 300
WIDGETS_PER_SERVER: Final = 10
"""Written through each server while they differ."""
READ_SECONDS: Final = 3.5
"""After each step, for the one who watches."""

RATE: Final = 5
PAGE: Final = 5
SLOWLY: Final = MigratorPace((f"--rate={RATE}", f"--page-objects={PAGE}"))
"""At least a minute for all widgets: long enough to start a server in the middle."""
FULL_SPEED: Final = MigratorPace()
SCANNED_MIN: Final = 2 * PAGE
"""So far the migration is when the rollback begins."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What may differ from one telling to another."""

    flaky: int = SERVERS - 1
    """The server that is rolled back."""

    @classmethod
    def drawn(cls, randomness: Randomness) -> Plot:
        return cls(randomness.randrange(SERVERS))


class Story:
    """Told once. Raises StoryFailed, and what its acts raise."""

    def __init__(self, stage: Stage, narrator: Narrator, *, plot: Plot, is_fast: bool) -> None:
        self._stage = stage
        self._say = narrator
        self._plot = plot
        self._read_seconds = 0.0 if is_fast else READ_SECONDS
        self._first_uid = ""
        """The migration that is aborted."""

    async def tell(self) -> None:
        steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            (f"Three servers of release {OLD}", self._begin),
            (f"{WIDGETS_FIRST} widgets are written", self._write),
            (f"Server 0 goes to {NEW}: the servers disagree", self._upgrade_first),
            (f"Server 1 goes to {NEW}: still no agreement", self._upgrade_second),
            (f"Server 2 goes to {NEW}: agreement, and the migration starts", self._upgrade_third),
            (
                f"Server {self._plot.flaky} is rolled back in the middle of the migration",
                self._roll_back,
            ),
            (f"Server {self._plot.flaky} goes to {NEW} again", self._go_forward),
            ("The migration completes", self._complete),
        )
        for number, (title, step) in enumerate(steps, 1):
            self._say.step(number, len(steps), title)
            await step()
            await self._stage.pause(self._read_seconds)
        self._sum_up()

    # The steps.

    async def _begin(self) -> None:
        stage, witness = self._stage, self._stage.witness
        self._say.command(
            f"restow up --servers {SERVERS} --release {OLD} --no-controllers --data-dir $D"
        )
        self._say.command(FULL_SPEED.command)
        with self._say.watching(stage.board):
            await stage.until(
                "everything is known to be stored as it is written",
                lambda: not (witness.unknown or witness.is_migrating),
            )
            await self._see(writes=("v1",) * 3, agreed="v1", persisted={"v1"})
        self._say.check("all three write v1, and nothing is stored in another version")
        self._say.why(
            "what is in the store is not assumed but known: the controllers have looked at every"
            " kind once, since the store was new to them"
        )

    async def _write(self) -> None:
        self._say.command(f"kubectl create -f widgets.yaml      # {WIDGETS_FIRST} objects")
        await self._stage.write(WIDGETS_FIRST)
        await self._census(v1=WIDGETS_FIRST)
        self._say.why(f"{OLD} knows v1 and v2 and stores v1; {NEW} knows both and stores v2")

    async def _upgrade_first(self) -> None:
        stage = self._stage
        stage.witness.reset_view()
        self._command_upgrade(0)
        with self._say.watching(stage.board):
            await stage.roll(0, NEW)
            await self._see(writes=("v2", "v1", "v1"), agreed="", persisted={"v1", "v2"})
        self._check_no_request()
        self._say.why(
            "a migration now would be for nothing: two servers would go on writing v1. But v2 may"
            " be stored from now on, and that was noted before the first such write"
        )

    async def _upgrade_second(self) -> None:
        stage = self._stage
        self._command_upgrade(1)
        self._say.command(f"{SLOWLY.command}      # slowly, so that there is a middle to look at")
        with self._say.watching(stage.board):
            await asyncio.gather(stage.roll(1, NEW), stage.controllers.set_pace(SLOWLY))
            await self._see(writes=("v2", "v2", "v1"), agreed="", persisted={"v1", "v2"})
        self._say.say(f"{WIDGETS_PER_SERVER} more widgets are written through each server")
        for server in range(SERVERS):
            await stage.write(WIDGETS_PER_SERVER, server=server)
        await self._census(v1=WIDGETS_FIRST + WIDGETS_PER_SERVER, v2=2 * WIDGETS_PER_SERVER)
        self._check_no_request()
        self._say.why("both versions are being written at the same time, as was noted before")

    async def _upgrade_third(self) -> None:
        stage, witness = self._stage, self._stage.witness
        self._command_upgrade(2)
        with self._say.watching(stage.board):
            await stage.roll(2, NEW)
            await self._see(writes=("v2",) * 3, agreed="v2", persisted={"v1", "v2"})
            await stage.until("the migration is under way", self._is_under_way)
        self._first_uid = self._only_new_request()
        self._say.check("the servers agree on v2, and one migration was asked for")
        counts = await stage.census()
        self._say.census(counts)
        self._judge(counts["v1"] > 0, f"the migration was over too soon: {dict(counts)}")
        phases = witness.requests_seen[self._first_uid].phases
        self._judge(MigrationPhase.SUCCEEDED not in phases, "the migration has ended already")
        self._say.why(
            "the moment the last server that wrote v1 is gone, the others agree: nobody writes v1"
            " any more, so whatever is rewritten now stays rewritten"
        )

    async def _roll_back(self) -> None:
        stage, flaky = self._stage, self._plot.flaky
        request = stage.witness.requests_seen[self._first_uid]
        writes = tuple("v1" if number == flaky else "v2" for number in range(SERVERS))
        self._say.command(f"restow upgrade --rollback --server {flaky} --data-dir $D")
        with self._say.watching(stage.board):
            await stage.roll(flaky, OLD, is_rollback=True)
            await self._see(writes=writes, agreed="", persisted={"v1", "v2"})
            await stage.until("the migration is aborted", lambda: request.is_aborted)
        self._say.check("the migration is aborted, and has not succeeded")
        self._check_nothing_narrowed()
        counts = await stage.census()
        self._say.census(counts)
        self._judge(
            counts["v1"] > 0 and counts["v2"] > 2 * WIDGETS_PER_SERVER,
            f"the abort was not in the middle: {dict(counts)}",
        )
        self._say.check("some widgets are rewritten, some are not")
        await self._preflight(is_safe=False)
        self._say.why(
            "the server writes v1 again, so a migration could never be finished. Had it gone on"
            " and claimed success, the next release could not read what was stored meanwhile"
        )

    async def _go_forward(self) -> None:
        stage = self._stage
        self._command_upgrade(self._plot.flaky)
        self._say.command(f"{FULL_SPEED.command}      # at full speed")
        with self._say.watching(stage.board):
            await asyncio.gather(
                stage.roll(self._plot.flaky, NEW), stage.controllers.set_pace(FULL_SPEED)
            )
            await self._see(writes=("v2",) * 3, agreed="v2")
            await stage.until("another migration is asked for", lambda: bool(self._later()))
        self._say.check("agreement again, and another migration was asked for, from the start")
        self._say.why(
            "what the aborted migration has rewritten does not count: v1 was written since. Each"
            " agreement has a number of its own, and a migration is for one of them"
        )

    async def _complete(self) -> None:
        stage = self._stage
        with self._say.watching(stage.board):
            await self._see(writes=("v2",) * 3, agreed="v2", persisted={"v2"})
            # A watch of its own tells of the requests: it may be a moment late.
            await stage.until("the migration is proven complete", self._is_proven)
        self._say.check("the migration is proven complete, and only then was v1 struck out")
        self._check_nothing_narrowed(last_is_v2=True)
        await self._census(v2=WIDGETS_FIRST + SERVERS * WIDGETS_PER_SERVER)
        await self._preflight(is_safe=True)
        self._say.why(f"{NEXT} reads only v2. Going there is safe now, and it is known why")

    def _sum_up(self) -> None:
        total = WIDGETS_FIRST + SERVERS * WIDGETS_PER_SERVER
        self._say.gap()
        self._say.title("The story came out as told:")
        self._say.say(f"before: {WIDGETS_FIRST} widgets stored as v1; three servers that write v1")
        self._say.say(f"after: {total} widgets stored as v2, none as v1; three that write v2")
        self._say.say("in between: one rollback, one migration aborted, one completed and proven")

    # What is checked.

    async def _see(
        self, *, writes: tuple[str, ...], agreed: str, persisted: set[str] | None = None
    ) -> None:
        """Wait until the board is so. Several watches tell of it, each in its own time."""
        stored = f" and widgets may be stored as {', '.join(sorted(persisted or ()))}"
        await self._stage.until(
            f"servers write {', '.join(writes)}, agree on {agreed or 'nothing'}"
            f"{stored if persisted else ''}",
            lambda: is_so(self._stage.board(), writes=writes, agreed=agreed, persisted=persisted),
        )

    def _is_under_way(self) -> bool:
        migration = self._stage.board().migration
        if migration is None or migration.phase != MigrationPhase.RUNNING.value:
            return False
        scanned = migration.progress.get("scanned")
        return isinstance(scanned, int) and scanned >= SCANNED_MIN

    def _only_new_request(self) -> str:
        found = self._stage.witness.new_requests
        self._judge(len(found) == 1, f"{len(found)} migrations were asked for, not one")
        return found[0]

    def _is_proven(self) -> bool:
        seen = self._stage.witness.requests_seen
        return any(seen[uid].is_proven for uid in self._later())

    def _later(self) -> list[str]:
        return [uid for uid in self._stage.witness.new_requests if uid != self._first_uid]

    def _check_no_request(self) -> None:
        found = [
            self._stage.witness.requests_seen[uid].name for uid in self._stage.witness.new_requests
        ]
        self._judge(not found, f"a migration was asked for: {', '.join(found)}")
        self._say.check("no migration was asked for")

    def _check_nothing_narrowed(self, *, last_is_v2: bool = False) -> None:
        """Of all states that ever were since the upgrade began, only the last may be narrower."""
        states = self._stage.witness.new_states
        if last_is_v2:
            self._judge(states[-1:] == [("v2",)], f"persisted versions were {states}")
            states = states[:-1]
        check_nothing_narrowed(states)
        if not last_is_v2:
            self._say.check("nothing was narrowed: v1 and v2 may be stored")

    async def _census(self, **expected: int) -> None:
        counts = await self._stage.census()
        self._say.command("restow census widgets.example.com --store sqlite:$D/store.db")
        self._say.census(counts)
        self._judge(dict(counts) == expected, f"the census is {dict(counts)}, not {expected}")

    async def _preflight(self, *, is_safe: bool) -> None:
        self._say.command(f"restow preflight --to {NEXT} --kubeconfig $D/kubeconfig")
        blockers = await self._stage.preflight(NEXT)
        self._judge(
            bool(blockers) != is_safe,
            f"preflight for {NEXT} says {[each.what for each in blockers]}",
        )
        self._say.check(f"{NEXT} {'is safe to go to' if is_safe else 'is refused'}")

    def _command_upgrade(self, server: int) -> None:
        self._say.command(f"restow upgrade --to {NEW} --server {server} --data-dir $D")

    def _judge(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - as an assert
        if not holds:
            raise StoryFailed(f"{otherwise} ({self._stage.board()})")


def is_so(
    board: DemoState, *, writes: tuple[str, ...], agreed: str, persisted: set[str] | None
) -> bool:
    """Whether the board is as the story says; without persisted versions these may be any."""
    is_stored = persisted is None or set(board.persisted) == persisted
    return board.writes == writes and board.agreed == agreed and is_stored


def check_nothing_narrowed(states: list[tuple[str, ...]]) -> None:
    """Raises StoryFailed if a version was ever struck out between two states."""
    for before, after in pairwise(states):
        if not set(before) <= set(after):
            raise StoryFailed(
                f"{', '.join(before)} was narrowed to {', '.join(after)} before its time"
            )
