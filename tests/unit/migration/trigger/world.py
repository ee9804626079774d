"""A model for the trigger's rules: servers, objects, migrations, one StorageState, controllers.

Controllers read and act step by step, so that any event can occur between two steps, and they act
on what they read before. There are two variants: in one the servers *keep* the state, as restow
does
(a version is in the state before a server writes it, with an epoch); in a *bare* one only the
trigger
writes the state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from restow.apimachinery.names import GroupVersionResource
from restow.apis.encryption_keys import IDENTITY
from restow.migration.migration_values import MigrationPhase, MigrationRef, MigrationSeen
from restow.migration.trigger.actions import (
    Action,
    CreateMigration,
    CreateState,
    DeleteMigration,
    Narrow,
    Nothing,
    Precondition,
    UpdateState,
    Wait,
)
from restow.migration.trigger.decide import decide
from restow.migration.trigger.hashes import age_seconds
from restow.migration.trigger.values import (
    UNKNOWN,
    CensusReading,
    DiscoveryReading,
    LocalReading,
    Memory,
    Now,
    Reading,
    Settings,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)

START = datetime(2024, 1, 1, tzinfo=UTC)
RESOURCE = GroupVersionResource("example.org", "v1", "widgets")
MIGRATION_API = "migration.k8s.io/v1alpha1"


@dataclass
class Job:
    """A migration and its remaining objects."""

    seen: MigrationSeen
    left: list[str]


class World:
    def __init__(self, *, source: str, kept: bool, settings: Settings | None = None) -> None:
        self.source = source
        self.kept = kept
        self.settings = settings or Settings()
        self.seconds = 0.0
        self.state: StateSeen | None = None
        self.jobs: dict[str, Job] = {}
        self.servers: dict[str, str] = {}
        self.server_keys: dict[str, str] = {}
        """The encryption key of each server; only if servers keep the state."""
        self.objects: dict[str, str] = {}
        self.sealed: dict[str, str] = {}
        """The encryption key of each stored object."""
        self.epoch = 0
        self.version_uid = ""
        self.version_number = 0
        self.history: list[frozenset[str]] = []
        self.controllers: dict[str, Controller] = {}
        self.log: list[Action] = []
        self.narrowed = 0
        self._number = 0

    # Time and numbers.

    @property
    def now(self) -> Now:
        return Now(self.seconds, START + timedelta(seconds=int(self.seconds)))

    def fresh(self) -> str:
        self._number += 1
        return str(self._number)

    # Servers.

    @property
    def agreed(self) -> str:
        """The version that all servers write; empty if their keys differ."""
        return self.agreement[0]

    @property
    def agreement(self) -> tuple[str, str]:
        found = {(version, self.key_of(server)) for server, version in self.servers.items()}
        return found.pop() if len(found) == 1 else ("", "")

    def key_of(self, server: str) -> str:
        return self.server_keys.get(server, IDENTITY)

    def serve(self, server: str, version: str | None, *, key: str = "") -> None:
        """A server starts to write a version, with a key, or stops (None)."""
        before = self.agreement
        if key and self.kept:
            self.server_keys[server] = key
        if version is None:
            self.servers.pop(server, None)
        else:
            self.servers[server] = version
        if not self.servers:
            self.version_uid = ""
        elif not self.version_uid:
            self.version_uid = f"version-{self.fresh()}"
        self.version_number = int(self.fresh())
        self.history.append(frozenset(self.servers.values()))
        if self.kept:
            self._keep(before)

    def _keep(self, before: tuple[str, str]) -> None:
        """Updates the state as restow servers do, in the transaction of the server entry."""
        moved = self.agreement != before
        self.epoch += moved
        old = self.state
        status = StateStatus(persisted=(UNKNOWN,), heartbeat=self.now.wall)
        if old is not None:
            status = old.status
        new = [each for each in self.servers.values() if each not in status.persisted]
        status = replace(
            status,
            persisted=tuple(dict.fromkeys((*status.persisted, *new))),
            keys=tuple(dict.fromkeys((*status.keys, *map(self.key_of, self.servers)))),
            current=self.agreed or status.current,
        )
        if old is None:
            self.state = StateSeen(
                uid=f"state-{self.fresh()}",
                resource_version=self.fresh(),
                status=status,
                epoch=str(self.epoch),
            )
        elif moved or status != old.status:
            self.state = replace(
                old, resource_version=self.fresh(), status=status, epoch=str(self.epoch)
            )
        self.check()

    def may_change(self, server: str) -> bool:
        """Whether operators may change the server: if servers do not keep the state, the trigger
        must have
        read the last change."""
        if self.kept or self.source == "storageversion" or server not in self.servers:
            return True
        if self.state is None:
            return False
        version = self.servers[server]
        if self.source == "discovery":
            return self.state.status.current == version
        reporter = self.controllers[server].reporter_id
        return any(
            each.reporter_id == reporter and each.hash == version
            for each in self.state.status.reports
        )

    def write(self, server: str, obj: str) -> None:
        if server in self.servers:
            self.objects[obj] = self.servers[server]
            self.sealed[obj] = self.key_of(server)
            self.check()

    # The migrator.

    def rewrite(self, server: str, *, all_of_it: bool = False) -> None:
        """Rewrites the next object of each migration in progress through a server."""
        for job in self.jobs.values():
            if not job.seen.is_open or server not in self.servers:
                continue
            while job.left:
                self.write(server, job.left.pop())
                if not all_of_it:
                    break
            phase = MigrationPhase.RUNNING if job.left else MigrationPhase.SUCCEEDED
            self._to_phase(job, phase)

    def fail(self) -> None:
        for job in self.jobs.values():
            if job.seen.is_open:
                self._to_phase(job, MigrationPhase.FAILED)

    def _to_phase(self, job: Job, phase: MigrationPhase) -> None:
        ended = phase in (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED)
        job.seen = replace(job.seen, phase=phase, finished_at=self.now.wall if ended else None)

    # Reads of controllers.

    def migrations(self) -> tuple[MigrationSeen, ...]:
        return tuple(job.seen for job in self.jobs.values())

    @property
    def open(self) -> list[str]:
        """The targets of the migrations in progress."""
        found = [job.seen.record for job in self.jobs.values() if job.seen.is_open]
        return [each.target if each is not None else "?" for each in found]

    # Writes of controllers.

    def apply(self, action: Action, *, crash_between: bool = False) -> bool:
        """Returns whether the action was carried out."""
        done = self._apply(action, crash_between=crash_between)
        if done:
            self.log.append(action)
            self.check()
        return done

    def _apply(self, action: Action, *, crash_between: bool) -> bool:
        match action:
            case CreateState():
                if self.state is not None:
                    return False
                self.state = StateSeen(
                    uid=f"state-{self.fresh()}",
                    resource_version=self.fresh(),
                    status=action.status,
                )
            case UpdateState():
                if not self._is_met(action.precondition):
                    return False
                assert self.state is not None
                if action.change is not None:
                    self.state = replace(
                        self.state, resource_version=self.fresh(), change=action.change
                    )
                    if crash_between:
                        return False
                self.state = replace(
                    self.state, resource_version=self.fresh(), status=action.status
                )
            case Narrow():
                if not self._is_met(action.precondition):
                    return False
                assert self.state is not None
                self.narrowed += 1
                self.state = replace(
                    self.state, resource_version=self.fresh(), status=action.status
                )
            case CreateMigration():
                if action.name in self.jobs:
                    return False
                ref = MigrationRef(MIGRATION_API, action.name, f"migration-{self.fresh()}")
                seen = MigrationSeen(ref=ref, phase=MigrationPhase.PENDING, record=action.record)
                self.jobs[action.name] = Job(seen, sorted(self.objects))
            case DeleteMigration():
                job = self.jobs.get(action.ref.name)
                if job is not None and job.seen.ref == action.ref:
                    del self.jobs[action.ref.name]
            case Wait() | Nothing():
                pass
        return True

    def _is_met(self, wanted: Precondition) -> bool:
        return self.state is not None and Precondition.of(self.state) == wanted

    # Invariants.

    def check(self) -> None:
        if self.state is None:
            return
        persisted = self.state.status.persisted
        assert len(persisted) == len(set(persisted)), persisted
        if UNKNOWN in persisted:
            return
        listed = set(persisted)
        if not self.kept:
            if self.source == "storageversion":
                return  # only after all controllers have read everything, see `check_all_recorded`
            # Changes not read yet: a window of one polling period, by the KEP.
            listed |= set(self.servers.values())
        assert set(self.objects.values()) <= listed, (self.objects, self.state, self.servers)
        # M17: the encryption key is recorded like the version.
        assert set(self.sealed.values()) <= set(self.state.status.keys), (self.sealed, self.state)

    def check_all_recorded(self) -> None:
        """M4 without exceptions, after all controllers have read everything."""
        assert self.state is not None
        persisted = self.state.status.persisted
        assert UNKNOWN in persisted or set(self.objects.values()) <= set(persisted)
        assert UNKNOWN in persisted or set(self.sealed.values()) <= set(self.state.status.keys)


@dataclass
class Controller:
    """One controller: its incarnation and its current step."""

    name: str
    world: World
    server: str
    is_leader: bool = True
    incarnation: int = 0
    memory: Memory | None = None
    stage: int = 0
    state: StateSeen | None = None
    migrations: tuple[MigrationSeen, ...] = ()
    reading: Reading | None = None
    stored: frozenset[str] = frozenset()
    """The stored versions when the servers were read."""
    sealed: frozenset[str] = frozenset()
    """The encryption keys then."""
    read_at: int = 0
    said: tuple[int, frozenset[str]] = (0, frozenset())
    """When the servers were read for its last report, and the versions stored then."""
    todo: list[Action] = field(default_factory=list)
    position: int | None = None
    census: CensusReading | None = None
    seen: list[Action] = field(default_factory=list)
    """All its decisions."""

    @property
    def reporter_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def crash(self) -> None:
        """Loses its memory and restarts at once."""
        self.incarnation += 1
        self.memory, self.stage, self.todo, self.position = None, 0, [], None

    def lose_watch(self) -> None:
        self.position = None

    def step(self, *, crash_between: bool = False) -> None:
        """One of: read the state, the migrations, the servers; decide; one action."""
        match self.stage:
            case 0:
                self.state = self.world.state
            case 1:
                self.migrations = self.world.migrations()
            case 2:
                self.reading = self.read()
                self.stored = frozenset(self.world.objects.values())
                self.sealed = frozenset(self.world.sealed.values())
                self.read_at = int(self.world.fresh())
            case 3:
                self.decide()
            case _:
                action = self.todo.pop(0)
                done = self.world.apply(action, crash_between=crash_between)
                if done and isinstance(action, CreateState | UpdateState):
                    self.said = (self.read_at, self.stored)
                if done and isinstance(action, Narrow):
                    self.check_narrow(action)
                if not done:
                    self.todo = []
                if crash_between:
                    self.crash()
                    return
        self.stage += 1
        if self.stage >= 4 and not self.todo:
            self.stage = 0

    def cycle(self) -> None:
        """Restarts the cycle and runs it until no immediate action remains."""
        for _ in range(8):
            self.stage, self.todo = 0, []
            for _ in range(4):
                self.step()
            idle = all(isinstance(each, Wait | Nothing) for each in self.todo)
            while self.stage:
                self.step()
            if idle:
                return
        raise AssertionError("it never ends")

    def decide(self) -> None:
        assert self.reading is not None
        world, was_new = self.world, self.memory is None
        view = TriggerView(
            resource=RESOURCE,
            state=self.state,
            migrations=self.migrations,
            reading=self.reading,
            census=self.census,
        )
        actions, self.memory = decide(view, self.memory, now=world.now, settings=world.settings)
        self.todo = list(actions)
        self.seen.extend(actions)
        self.check_decision(view, was_new=was_new)

    def read(self) -> Reading:
        world = self.world
        match world.source:
            case "storageversion":
                passed = [] if self.position is None else world.history[self.position :]
                reading = StorageVersionReading(
                    uid=world.version_uid,
                    resource_version=str(world.version_number) if world.version_uid else "",
                    epoch=str(world.epoch) if world.kept and world.version_uid else "",
                    common=world.agreed,
                    key=world.agreement[1] or IDENTITY,
                    keys=frozenset(map(world.key_of, world.servers)) - {IDENTITY},
                    written=frozenset().union(*passed, world.servers.values()),
                    follows=self.position is not None,
                )
                self.position = len(world.history)
                return reading
            case "discovery":
                return DiscoveryReading(hash=world.servers.get(self.server, ""))
            case _:
                return LocalReading(
                    reporter_id=self.reporter_id,
                    hash=world.servers.get(self.server, ""),
                    is_leader=self.is_leader,
                )

    # Invariants of every decision.

    def check_decision(self, view: TriggerView, *, was_new: bool) -> None:
        """M6 and M7, and that a decision writes to the state once, after all deletions."""
        writes = [
            each for each in self.todo if isinstance(each, CreateState | UpdateState | Narrow)
        ]
        assert len(writes) <= 1
        old = None if view.state is None else view.state.status
        for each in writes:
            new = each.status
            assert new.heartbeat == self.world.now.wall
            if old is not None and new.current != old.current:
                assert new.current in new.persisted or UNKNOWN in new.persisted
            if old is not None and not isinstance(each, Narrow):
                lost = set(old.persisted) - set(new.persisted)
                assert not lost or UNKNOWN in new.persisted
                assert set(old.keys) <= set(new.keys)  # only a migration removes a key
            if isinstance(each, UpdateState | Narrow):
                assert view.state is not None
                assert each.precondition == Precondition.of(view.state)
        if was_new and old is not None and old.heartbeat is not None:
            stale = age_seconds(old.heartbeat, self.world.now) > self.world.settings.poll_seconds
            if stale and self.world.source == "discovery" and self.world.servers:
                assert [each.status.persisted for each in writes] == [(UNKNOWN,)]

    def check_narrow(self, action: Narrow) -> None:
        """M5: the state lists what was stored when the servers were read.

        By reports, that is the earliest of the last readings: all others have followed it, and no
        server had changed before its own.
        """
        stored = self.stored
        if self.world.source == "discovery-ha":
            names = {each.reporter_id for each in action.status.reports}
            said = [e.said for e in self.world.controllers.values() if e.reporter_id in names]
            stored = min(said, key=lambda each: each[0])[1]
        assert len(action.status.persisted) == 1
        assert stored <= set(action.status.persisted), (stored, action)
        if self.world.source == "storageversion":
            assert len(action.status.keys) == 1
        assert self.sealed <= set(action.status.keys), (self.sealed, action)
