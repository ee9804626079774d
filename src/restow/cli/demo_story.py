"""The steps of `restow demo`: a rolling upgrade with a rollback during the migration.

It follows the walk-through of KEP-2343's extension for HA API servers, row by row, with releases of
restow: x+1 stores widgets as v1, x+2 stores them as v2, and both read both.

Each step prints what it does, does it, waits for the result, prints it, checks it, and explains why
it matters. It also checks what must not have happened: the observer records every migration and
every intermediate state. A failed check ends the demo.

Not here: the operations (`demo_stage`) and the output (`demo_narrator`).
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
"""Created through each server while they write different versions."""
READ_SECONDS: Final = 3.5
"""Pause after each step, for the reader."""

RATE: Final = 5
PAGE: Final = 5
SLOWLY: Final = MigratorPace((f"--rate={RATE}", f"--page-objects={PAGE}"))
"""At least a minute for all widgets: long enough to restart a server during the migration."""
FULL_SPEED: Final = MigratorPace()
SCANNED_MIN: Final = 2 * PAGE
"""Objects scanned when the rollback begins."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Choices that depend on the seed."""

    flaky: int = SERVERS - 1
    """The server that is rolled back."""

    @classmethod
    def drawn(cls, randomness: Randomness) -> Plot:
        return cls(randomness.randrange(SERVERS))


class Story:
    """The steps of the demo; runs once. Raises StoryFailed, and errors of the operations."""

    def __init__(self, stage: Stage, narrator: Narrator, *, plot: Plot, is_fast: bool) -> None:
        self._stage = stage
        self._say = narrator
        self._plot = plot
        self._read_seconds = 0.0 if is_fast else READ_SECONDS
        self._first_uid = ""
        """The migration that is aborted by the rollback."""

    async def run(self) -> None:
        steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            (f"Start three servers of release {OLD}", self._begin),
            (f"Create {WIDGETS_FIRST} widgets", self._write),
            (f"Upgrade server 0 to {NEW}: the servers disagree", self._upgrade_first),
            (f"Upgrade server 1 to {NEW}: still no agreement", self._upgrade_second),
            (f"Upgrade server 2 to {NEW}: the migration starts", self._upgrade_third),
            (
                f"Roll back server {self._plot.flaky} during the migration",
                self._roll_back,
            ),
            (f"Upgrade server {self._plot.flaky} to {NEW} again", self._go_forward),
            ("The migration completes", self._complete),
        )
        for number, (title, step) in enumerate(steps, 1):
            self._say.step(number, len(steps), title)
            await step()
            await self._stage.pause(self._read_seconds)
        self._sum_up()

    # Steps.

    async def _begin(self) -> None:
        stage, observer = self._stage, self._stage.observer
        self._say.command(
            f"restow up --servers {SERVERS} --release {OLD} --no-controllers --data-dir $D"
        )
        self._say.command(FULL_SPEED.command)
        with self._say.watching(stage.board):
            await stage.until(
                "the persisted versions of all resources are known",
                lambda: not (observer.unknown or observer.is_migrating),
            )
            await self._see(writes=("v1",) * 3, agreed="v1", persisted={"v1"})
        self._say.check("all three write v1, and no object is stored in another version")
        self._say.why(
            "the content of the store is verified, not assumed: the controllers have migrated every"
            " resource once, because the store was new to them"
        )

    async def _write(self) -> None:
        self._say.command(f"kubectl create -f widgets.yaml      # {WIDGETS_FIRST} objects")
        await self._stage.write(WIDGETS_FIRST)
        await self._census(v1=WIDGETS_FIRST)
        self._say.why(f"{OLD} reads v1 and v2 and writes v1; {NEW} reads both and writes v2")

    async def _upgrade_first(self) -> None:
        stage = self._stage
        stage.observer.reset_view()
        self._command_upgrade(0)
        with self._say.watching(stage.board):
            await stage.roll(0, NEW)
            await self._see(writes=("v2", "v1", "v1"), agreed="", persisted={"v1", "v2"})
        self._check_no_migration()
        self._say.why(
            "a migration now would be useless: two servers still write v1. But objects may be"
            " stored as v2 from now on, and that was recorded before the first such write"
        )

    async def _upgrade_second(self) -> None:
        stage = self._stage
        self._command_upgrade(1)
        self._say.command(f"{SLOWLY.command}      # slow: leaves time for the rollback")
        with self._say.watching(stage.board):
            await asyncio.gather(stage.roll(1, NEW), stage.controllers.set_pace(SLOWLY))
            await self._see(writes=("v2", "v2", "v1"), agreed="", persisted={"v1", "v2"})
        self._say.say(f"create {WIDGETS_PER_SERVER} more widgets through each server")
        for server in range(SERVERS):
            await stage.write(WIDGETS_PER_SERVER, server=server)
        await self._census(v1=WIDGETS_FIRST + WIDGETS_PER_SERVER, v2=2 * WIDGETS_PER_SERVER)
        self._check_no_migration()
        self._say.why("both versions are written at the same time, as recorded before")

    async def _upgrade_third(self) -> None:
        stage, observer = self._stage, self._stage.observer
        self._command_upgrade(2)
        with self._say.watching(stage.board):
            await stage.roll(2, NEW)
            await self._see(writes=("v2",) * 3, agreed="v2", persisted={"v1", "v2"})
            await stage.until("the migration is running", self._is_under_way)
        self._first_uid = self._only_new_migration()
        self._say.check("the servers agree on v2, and one migration was created")
        counts = await stage.census()
        self._say.census(counts)
        self._judge(counts["v1"] > 0, f"the migration ended too early: {dict(counts)}")
        phases = observer.migrations[self._first_uid].phases
        self._judge(MigrationPhase.SUCCEEDED not in phases, "the migration has already ended")
        self._say.why(
            "when the last server that wrote v1 has stopped, the others agree: no server writes v1"
            " any more, so a rewritten object stays in the new version"
        )

    async def _roll_back(self) -> None:
        stage, flaky = self._stage, self._plot.flaky
        request = stage.observer.migrations[self._first_uid]
        writes = tuple("v1" if number == flaky else "v2" for number in range(SERVERS))
        self._say.command(f"restow upgrade --rollback --server {flaky} --data-dir $D")
        with self._say.watching(stage.board):
            await stage.roll(flaky, OLD, is_rollback=True)
            await self._see(writes=writes, agreed="", persisted={"v1", "v2"})
            await stage.until("the migration is aborted", lambda: request.is_aborted)
        self._say.check("the migration is aborted, and did not succeed")
        self._check_nothing_narrowed()
        counts = await stage.census()
        self._say.census(counts)
        self._judge(
            counts["v1"] > 0 and counts["v2"] > 2 * WIDGETS_PER_SERVER,
            f"the migration was not aborted midway: {dict(counts)}",
        )
        self._say.check("some widgets are rewritten, others are not")
        await self._preflight(is_safe=False)
        self._say.why(
            "the server writes v1 again, so the migration could never finish. If it continued and"
            " reported success, the next release could not read the objects written meanwhile"
        )

    async def _go_forward(self) -> None:
        stage = self._stage
        self._command_upgrade(self._plot.flaky)
        self._say.command(f"{FULL_SPEED.command}      # without a rate limit")
        with self._say.watching(stage.board):
            await asyncio.gather(
                stage.roll(self._plot.flaky, NEW), stage.controllers.set_pace(FULL_SPEED)
            )
            await self._see(writes=("v2",) * 3, agreed="v2")
            await stage.until("another migration is created", lambda: bool(self._later()))
        self._say.check("the servers agree again, and a new migration starts from the beginning")
        self._say.why(
            "the progress of the aborted migration does not count: v1 was written since. Each"
            " agreement has an epoch, and a migration belongs to one epoch"
        )

    async def _complete(self) -> None:
        stage = self._stage
        with self._say.watching(stage.board):
            await self._see(writes=("v2",) * 3, agreed="v2", persisted={"v2"})
            # The migrations have a watch of their own, which can be slightly behind.
            await stage.until("the migration is verified", self._is_verified)
        self._say.check("v1 was removed from the persisted versions only after verification")
        self._check_nothing_narrowed(last_is_v2=True)
        await self._census(v2=WIDGETS_FIRST + SERVERS * WIDGETS_PER_SERVER)
        await self._preflight(is_safe=True)
        self._say.why(f"{NEXT} reads only v2. It is safe now, because no object is stored as v1")

    def _sum_up(self) -> None:
        total = WIDGETS_FIRST + SERVERS * WIDGETS_PER_SERVER
        self._say.gap()
        self._say.title("All checks passed:")
        self._say.say(f"before: {WIDGETS_FIRST} widgets stored as v1; three servers write v1")
        self._say.say(f"after: {total} widgets stored as v2, none as v1; three servers write v2")
        self._say.say("in between: one rollback, one migration aborted, one completed and verified")

    # Checks.

    async def _see(
        self, *, writes: tuple[str, ...], agreed: str, persisted: set[str] | None = None
    ) -> None:
        """Wait for a state. It is read by several watches, which are independent."""
        stored = f" and widgets may be stored as {', '.join(sorted(persisted or ()))}"
        await self._stage.until(
            f"servers write {', '.join(writes)}, agree on {agreed or 'nothing'}"
            f"{stored if persisted else ''}",
            lambda: matches(self._stage.board(), writes=writes, agreed=agreed, persisted=persisted),
        )

    def _is_under_way(self) -> bool:
        migration = self._stage.board().migration
        if migration is None or migration.phase != MigrationPhase.RUNNING.value:
            return False
        scanned = migration.progress.get("scanned")
        return isinstance(scanned, int) and scanned >= SCANNED_MIN

    def _only_new_migration(self) -> str:
        found = self._stage.observer.new_migrations
        self._judge(len(found) == 1, f"{len(found)} migrations were created, expected one")
        return found[0]

    def _is_verified(self) -> bool:
        seen = self._stage.observer.migrations
        return any(seen[uid].is_proven for uid in self._later())

    def _later(self) -> list[str]:
        return [uid for uid in self._stage.observer.new_migrations if uid != self._first_uid]

    def _check_no_migration(self) -> None:
        found = [
            self._stage.observer.migrations[uid].name for uid in self._stage.observer.new_migrations
        ]
        self._judge(not found, f"a migration was created: {', '.join(found)}")
        self._say.check("no migration was created")

    def _check_nothing_narrowed(self, *, last_is_v2: bool = False) -> None:
        """Check that no persisted version was removed since the upgrade began.

        With `last_is_v2` the last state is exempt, and must contain only v2."""
        states = self._stage.observer.new_states
        if last_is_v2:
            self._judge(states[-1:] == [("v2",)], f"persisted versions were {states}")
            states = states[:-1]
        check_nothing_narrowed(states)
        if not last_is_v2:
            self._say.check("no persisted version was removed: objects may be stored as v1 and v2")

    async def _census(self, **expected: int) -> None:
        counts = await self._stage.census()
        self._say.command("restow census widgets.example.com --store sqlite:$D/store.db")
        self._say.census(counts)
        self._judge(dict(counts) == expected, f"census found {dict(counts)}, expected {expected}")

    async def _preflight(self, *, is_safe: bool) -> None:
        self._say.command(f"restow preflight --to {NEXT} --kubeconfig $D/kubeconfig")
        blockers = await self._stage.preflight(NEXT)
        self._judge(
            bool(blockers) != is_safe,
            f"preflight for {NEXT} found the blockers {[each.what for each in blockers]}",
        )
        self._say.check(f"{NEXT} {'is safe' if is_safe else 'is not safe'}")

    def _command_upgrade(self, server: int) -> None:
        self._say.command(f"restow upgrade --to {NEW} --server {server} --data-dir $D")

    def _judge(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - as an assert
        if not holds:
            raise StoryFailed(f"{otherwise} ({self._stage.board()})")


def matches(
    board: DemoState, *, writes: tuple[str, ...], agreed: str, persisted: set[str] | None
) -> bool:
    """Whether the state is as given; persisted None matches any persisted versions."""
    is_stored = persisted is None or set(board.persisted) == persisted
    return board.writes == writes and board.agreed == agreed and is_stored


def check_nothing_narrowed(states: list[tuple[str, ...]]) -> None:
    """Raise StoryFailed if a persisted version was removed between two states."""
    for before, after in pairwise(states):
        if not set(before) <= set(after):
            raise StoryFailed(
                f"persisted versions shrank from {', '.join(before)} to {', '.join(after)}"
                " too early"
            )
