"""Runs the trigger's scenario files: one command per line, `#` begins a comment.

    source discovery-ha [kept] [hold=0] [loose=90]   first of all; kept: servers write the state too
    at 10                       set the time to minute 10
    server s1 v1                a server starts to write a version; also an upgrade or a rollback
    server s1 gone              it stops
    controller c1 s1 [leader]   a controller of a server
    poll [c1 ...]               controllers read and act until nothing is left to do, alternating
    crash c1                    it loses its memory
    lose-watch c1               it may have missed changes
    write s1 a                  an object is written through a server
    late-write a v2             a write that was in flight commits late
    rewrite s1                  the migrator rewrites another object of each migration
    finish s1                   the migrator completes all migrations through a server
    fail                        the migrator fails all migrations
    request                     another client creates a migration
    forget-state                another client deletes the state
    census                      every stored object is scanned
    expect persisted v1 v2 | current v2 | heartbeat 10    of the state
    expect reports v2 v1 v1 | migrations v2 | stored a v2
    expect said c1 "text"       its last reasons contain a text
    expect waits c1 20          until minute 20

A failed expectation is reported with its position, the expected and the actual value.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from restow.migration.migration_values import MigrationPhase, MigrationRef, MigrationSeen
from restow.migration.trigger.actions import Action, Wait
from restow.migration.trigger.values import CensusReading, Settings
from tests.unit.migration.trigger.world import MIGRATION_API, START, Controller, Job, World

NONE = "none"


class ScenarioFailed(AssertionError):
    """An expectation of a scenario was not met."""


class Runner:
    """Runs one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = World(source="", kept=False)
        self.said: dict[str, list[Action]] = {}

    def play(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            words = shlex.split(line, comments=True)
            if not words:
                continue
            place = f"{self.path.name}:{number}: {line.strip()}"
            if words[0] == "expect":
                self._expect(place, words[1], words[2:])
            else:
                getattr(self, f"do_{words[0].replace('-', '_')}")(*words[1:])

    # Commands.

    def do_source(self, source: str, *options: str) -> None:
        chosen = Settings()
        for option in options:
            key, _, value = option.partition("=")
            if key == "hold":
                chosen = replace(chosen, hold_seconds=float(value))
            elif key == "loose":
                chosen = replace(chosen, loose_wait_seconds=float(value))
        self.world = World(source=source, kept="kept" in options, settings=chosen)

    def do_at(self, minute: str) -> None:
        seconds = float(minute) * 60
        assert seconds >= self.world.seconds or self.world.seconds == 0
        self.world.seconds = seconds

    def do_server(self, server: str, version: str) -> None:
        self.world.serve(server, None if version == "gone" else version)

    def do_controller(self, name: str, server: str, *leader: str) -> None:
        made = Controller(name, self.world, server, is_leader=bool(leader))
        self.world.controllers[name] = made

    def do_poll(self, *names: str) -> None:
        # The second round handles the events of the watches.
        chosen = names or tuple(self.world.controllers)
        self.said = {name: [] for name in chosen}
        for name in (*chosen, *chosen):
            controller = self.world.controllers[name]
            controller.seen = self.said[name]
            controller.cycle()

    def do_crash(self, name: str) -> None:
        self.world.controllers[name].crash()

    def do_lose_watch(self, name: str) -> None:
        self.world.controllers[name].lose_watch()

    def do_write(self, server: str, obj: str) -> None:
        self.world.write(server, obj)

    def do_late_write(self, obj: str, version: str) -> None:
        self.world.objects[obj] = version

    def do_rewrite(self, server: str) -> None:
        self.world.rewrite(server)

    def do_finish(self, server: str) -> None:
        self.world.rewrite(server, all_of_it=True)

    def do_fail(self) -> None:
        self.world.fail()

    def do_request(self) -> None:
        ref = MigrationRef(MIGRATION_API, "by-hand", f"migration-{self.world.fresh()}")
        seen = MigrationSeen(ref=ref, phase=MigrationPhase.PENDING)
        self.world.jobs["by-hand"] = Job(seen, sorted(self.world.objects))

    def do_forget_state(self) -> None:
        self.world.state = None

    def do_census(self) -> None:
        found = CensusReading(
            found=frozenset(self.world.objects.values()), begun_seconds=self.world.seconds
        )
        for controller in self.world.controllers.values():
            controller.census = found

    # Expectations.

    def _expect(self, place: str, what: str, wanted: list[str]) -> None:
        expected = " ".join(wanted)
        seen = EXPECTATIONS[what](self, wanted)
        if seen != expected:
            raise ScenarioFailed(f"{place}\n  expected {expected}\n  seen     {seen}")

    def persisted(self, wanted: list[str]) -> str:
        state = self.world.state
        return NONE if state is None else " ".join(state.status.persisted)

    def current(self, wanted: list[str]) -> str:
        state = self.world.state
        return NONE if state is None else state.status.current

    def reports(self, wanted: list[str]) -> str:
        state = self.world.state
        return NONE if state is None else " ".join(each.hash for each in state.status.reports)

    def heartbeat(self, wanted: list[str]) -> str:
        state = self.world.state
        if state is None or state.status.heartbeat is None:
            return NONE
        return f"{(state.status.heartbeat - START).total_seconds() / 60:g}"

    def migrations(self, wanted: list[str]) -> str:
        return " ".join(self.world.open) or NONE

    def stored(self, wanted: list[str]) -> str:
        return f"{wanted[0]} {self.world.objects[wanted[0]]}"

    def reasons(self, wanted: list[str]) -> str:
        name, text = wanted
        found = [each.reason for each in self.said[name]]
        return " ".join(wanted) if any(text in each for each in found) else f"{name} {found}"

    def waits(self, wanted: list[str]) -> str:
        name = wanted[0]
        found = [each for each in self.said[name] if isinstance(each, Wait)]
        return f"{name} {found[-1].until_seconds / 60:g}" if found else f"{name} {NONE}"


EXPECTATIONS: dict[str, Callable[[Runner, list[str]], str]] = {
    "persisted": Runner.persisted,
    "current": Runner.current,
    "reports": Runner.reports,
    "heartbeat": Runner.heartbeat,
    "migrations": Runner.migrations,
    "stored": Runner.stored,
    "said": Runner.reasons,
    "waits": Runner.waits,
}
