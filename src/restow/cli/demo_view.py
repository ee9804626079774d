"""The state of the demo's cluster, read by watches through the API, with its history.

    Observer     watches StorageVersions, StorageStates, migrations, leases, and keeps their history
    DemoState    the current state: what each server writes, persisted versions, migration

A single read cannot show that something did *not* happen. So the observer keeps every migration of
widgets and every list of persisted versions that a watch delivered, and the steps check them.

Not here: the steps, and how the state is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from restow.aio import Backoff, Tasks
from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupResource, GroupVersion
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.internal_v1alpha1 import StorageVersion
from restow.apis.migration_v1alpha1 import persisted_hashes
from restow.apis.names import (
    ADDRESS_ANNOTATION,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    LEASE_NAMESPACE,
)
from restow.apis.resources import LEASES, STATES, STORAGE_VERSIONS
from restow.client import (
    ApiClient,
    Informer,
    ListOptions,
    Object,
    ObjectChange,
    ObjectKey,
    key_of,
    uid_of,
)
from restow.localcluster.messages import ProcessOverview
from restow.migration import migration_objects
from restow.migration.migration_values import MigrationPhase
from restow.migration.overview_reader import migration_seen
from restow.migration.overview_values import MigrationRow
from restow.migration.trigger.values import UNKNOWN

WIDGETS: Final = GroupResource("example.com", "widgets")
KIND: Final = "Widget"
REPORT: Final = ObjectKey("", f"{WIDGETS.group}.{WIDGETS.resource}")
STATE: Final = ObjectKey("", str(WIDGETS))
HASHES: Final = {
    storage_version_hash(GroupVersion(WIDGETS.group, version).with_kind(KIND)): version
    for version in ("v1", "v2")
}
"""The versions of widgets, by their storage version hashes."""
_SOON: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=2, jitter=0.5)


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server."""

    number: int
    state: str
    release: str
    writes: str
    """The version in which it writes widgets; empty if it has not reported one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoState:
    """The state of the cluster at one moment, as far as it concerns widgets."""

    servers: tuple[ServerRow, ...] = ()
    agreed: str = ""
    """The version that all servers write; empty if they disagree."""
    persisted: tuple[str, ...] = ()
    """The versions in which widgets may be stored."""
    migration: MigrationRow | None = None

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(each.writes for each in self.servers)

    def __str__(self) -> str:
        """The state in one line, for error messages."""
        migration = self.migration
        return (
            f"servers write {', '.join(each or '?' for each in self.writes)}; agreed on"
            f" {self.agreed or 'nothing'}; may be stored as {', '.join(self.persisted) or '?'};"
            f" migration {'none' if migration is None else f'{migration.name} {migration.phase}'}"
        )


@dataclass(slots=True)
class MigrationHistory:
    """A migration of widgets, with its history."""

    name: str
    latest: Object
    is_deleted: bool = False
    phases: set[MigrationPhase] = field(default_factory=set)

    @property
    def is_proven(self) -> bool:
        return MigrationPhase.SUCCEEDED in self.phases and migration_objects.is_proven(self.latest)

    @property
    def is_aborted(self) -> bool:
        """Whether the migrator failed it, or the trigger deleted it; either can happen first."""
        return MigrationPhase.SUCCEEDED not in self.phases and (
            self.is_deleted or MigrationPhase.FAILED in self.phases
        )


class Observer:
    """Follows the cluster, and keeps its history."""

    def __init__(self, client: ApiClient) -> None:
        self.migrations: dict[str, MigrationHistory] = {}
        """Every migration of widgets so far, by uid, oldest first."""
        self.persisted_seen: list[tuple[str, ...]] = []
        """Every list of persisted versions of widgets, oldest first."""
        self._old_migrations: frozenset[str] = frozenset()
        self._old_states = 0
        self.updated: EventChannel[[]] = EventChannel()
        self._changed = asyncio.Event()
        selector = f"{IDENTITY_LABEL}={IDENTITY_LABEL_VALUE}"
        self._leases = Informer(
            client,
            LEASES,
            namespace=LEASE_NAMESPACE,
            options=ListOptions(label_selector=selector),
            backoff=_SOON,
        )
        self._reports = Informer(client, STORAGE_VERSIONS, backoff=_SOON)
        self._states = Informer(client, STATES, backoff=_SOON)
        self._migrations = Informer(client, migration_objects.MIGRATION_APIS[0], backoff=_SOON)
        self._states.on_change(self._on_state)
        self._migrations.on_change(self._on_migration)
        for each in self._informers:
            each.on_change(self._on_change)

    @property
    def _informers(self) -> tuple[Informer, ...]:
        return self._leases, self._reports, self._states, self._migrations

    async def start(self, tasks: Tasks) -> None:
        """Begin to watch; returns when the caches are synced."""
        for each in self._informers:
            tasks.spawn(f"informer of {each.resource.resource}", each.run())
        for each in self._informers:
            await each.wait_synced()

    def reset_view(self) -> None:
        """Ignore the migrations and states so far in `new_migrations` and `new_states`."""
        self._old_migrations = frozenset(self.migrations)
        self._old_states = len(self.persisted_seen)

    @property
    def new_migrations(self) -> list[str]:
        """The uids of migrations since `reset_view`, oldest first."""
        return [uid for uid in self.migrations if uid not in self._old_migrations]

    @property
    def new_states(self) -> list[tuple[str, ...]]:
        """The lists of persisted versions since `reset_view`, oldest first."""
        return self.persisted_seen[self._old_states :]

    async def changed(self) -> None:
        """Wait for the next change."""
        self._changed.clear()
        await self._changed.wait()

    @property
    def unknown(self) -> list[str]:
        """The resources whose persisted versions are unknown."""
        return sorted(
            key_of(state).name for state in self._states.objects() if UNKNOWN in _persisted(state)
        )

    @property
    def is_migrating(self) -> bool:
        """Whether any migration is running or pending, of any resource."""
        ended = (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED)
        return any(
            migration_objects.phase_of(each) not in ended for each in self._migrations.objects()
        )

    def board(self, overview: ProcessOverview) -> DemoState:
        """The current state. The supervisor's overview has the release of each process."""
        report = _report(self._reports.get(REPORT))
        written = {} if report is None else _written(report, self._leases.objects())
        return DemoState(
            servers=tuple(
                ServerRow(each.index or 0, each.state, each.release, written.get(each.port, ""))
                for each in overview.servers
            ),
            agreed=_short(report.status.common_encoding_version or "") if report else "",
            persisted=_versions(self._states.get(STATE)),
            migration=self._migration(),
        )

    def _migration(self) -> MigrationRow | None:
        """The newest migration since `reset_view`, unless it was deleted."""
        found = [self.migrations[uid] for uid in self.new_migrations]
        there = [each for each in found if not each.is_deleted]
        return migration_seen(there[-1].latest) if there else None

    def _on_state(self, change: ObjectChange) -> None:
        if change.key == STATE:
            found = _versions(change.new)
            if self.persisted_seen[-1:] != [found]:
                self.persisted_seen.append(found)

    def _on_migration(self, change: ObjectChange) -> None:
        for found in (change.old, change.new):
            if found is None or migration_objects.resource_of(found) != WIDGETS:
                continue
            seen = self.migrations.setdefault(
                uid_of(found), MigrationHistory(key_of(found).name, found)
            )
            seen.latest = found
            seen.phases.add(migration_objects.phase_of(found))
            # A name can be reused; the object that had it before is deleted then.
            seen.is_deleted = change.new is None or uid_of(change.new) != uid_of(found)

    def _on_change(self, _change: ObjectChange) -> None:
        self._changed.set()
        self.updated.emit()


def _written(report: StorageVersion, leases: Sequence[Object]) -> dict[int | None, str]:
    """The version that the server at each port writes."""
    encodings = {
        each.api_server_id: each.encoding_version for each in report.status.storage_versions
    }
    found: dict[int | None, str] = {}
    for lease in leases:
        address = migration_objects.marks_of(lease).get(ADDRESS_ANNOTATION, "")
        port = address.rpartition(":")[2]
        version = encodings.get(key_of(lease).name)
        if port.isdecimal() and version:
            found[int(port)] = _short(version)
    return found


def _report(found: Object | None) -> StorageVersion | None:
    return None if found is None else msgspec.convert(found, StorageVersion)


def _persisted(state: Object | None) -> tuple[str, ...]:
    if state is None:
        return ()
    return persisted_hashes(
        migration_objects.mapping(state, "status").get("persistedStorageVersionHashes")
    )


def _versions(state: Object | None) -> tuple[str, ...]:
    return tuple(HASHES.get(each, each) for each in _persisted(state))


def _short(version: str) -> str:
    """The version without its group, which is always the same here."""
    return version.rpartition("/")[2]
