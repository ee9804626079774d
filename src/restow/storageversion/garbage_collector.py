"""Garbage collection of the entries of expired servers, and of StorageVersions without entries.

A server has expired when *this* process has seen no new revision of its key for the server's own
lease duration, measured on this process's monotonic clock; the measurement starts when this process
first sees the key. The collector then deletes the key, guarded by the last seen revision. All
further changes are guarded by the absence of the key, which is final, so that any server may make
and repeat them.

All servers watch; the unexpired server with the lowest id acts first, and the others act when it
does not. Not here: the reaction of a server whose own key was deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from restow.aio import Runtime
from restow.apimachinery.errors import InvalidName, MachineryError
from restow.apimachinery.names import GroupResource
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import definition_key
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Item,
    Key,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Write,
)
from restow.storageversion.changes import MirrorView
from restow.storageversion.identity import (
    SERVERS_PREFIX,
    ServerId,
    decode_record,
    server_key,
    server_of,
)
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import (
    LEASES_PREFIX,
    REPORTS_PREFIX,
    STATES_PREFIX,
    decode_state,
    encode_state,
    is_foreign_lease,
    lease_key,
    lease_seconds_of,
    report_key,
    state_key,
)
from restow.storageversion.participants import Participants
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    MODES_KEY,
    decode_epoch,
    epoch_key,
    name_of,
    parse_encoder_key,
    resource_of_name,
)
from restow.storageversion.registration_planner import RegistrationPlanner
from restow.storageversion.rules import UNKNOWN_HASH
from restow.storageversion.vote_objects import VOTES_PREFIX, name_of_vote

COLLECT_INTERVAL_SECONDS: Final = 30.0
"""Interval of full collections, which do not depend on the watches."""
STEP_IN_SECONDS: Final = 1.0
"""Additional delay of the servers that are not the first collector."""
PAUSE_SECONDS: Final = 0.05
"""Pause between two passes, so that one pass handles all changes of one transaction."""
CATCH_UP_SECONDS: Final = 2.0
AT_ONCE_MAX: Final = 8
COLLECT_ATTEMPTS_MAX: Final = 3
LEASE_SECONDS_MAX: Final = 24 * 3600.0
LEASE_SECONDS_UNKNOWN: Final = 60.0
"""Assumed for a record that cannot be decoded: longer than any configured lease duration."""

logger = logging.getLogger(__name__)


class StorageVersionGarbageCollector:
    """Removes the keys and entries of expired servers."""

    def __init__(
        self,
        storage: Storage,
        mirror: Mirror,
        membership: Membership,
        *,
        planner: RegistrationPlanner,
        catalog: Catalog,
        runtime: Runtime,
    ) -> None:
        self._storage = storage
        self._mirror = mirror
        self._membership = membership
        self._planner = planner
        self._participants = Participants(mirror)
        self._clock = runtime.clock
        self._kinds = {
            name_of(r.kind.group_resource): r.kind.store.kind for r in catalog.persisted()
        }
        self._seen: dict[Key, tuple[Revision, float]] = {}
        self._settled: dict[Key, bool] = {}
        self._foreign_leases: dict[Key, tuple[Revision, float]] = {}
        """Leases of servers that do not participate, with the time of their last change."""
        self._collected_at = self._clock.monotonic()
        self._changed = asyncio.Event()
        self._touched: set[str] = set()
        """Resources whose StorageVersion or votes have changed since their last collection."""
        self._is_all_touched = True
        """Whether the set of servers has changed, which can make any entry garbage."""
        self.servers_removed = 0
        self.entries_removed = 0
        mirror.changed.subscribe(self._note)

    async def run(self) -> None:
        """Collect until cancelled; the owner of the task handles the exceptions."""
        while True:
            wait_seconds = await self.step()
            self._changed.clear()
            try:
                async with self._clock.timeout(wait_seconds):
                    await self._changed.wait()
                await self._clock.sleep(PAUSE_SECONDS)
            except TimeoutError:
                pass

    async def step(self) -> float:
        """Remove expired servers, then collect their entries. Returns seconds until the next
        pass."""
        expired = self._expired()
        for server_id, revision in expired:
            await self._remove_server(server_id, revision)
        await self._remove_foreign_leases()
        # A server that has removed another one completes the work; all collect at the interval.
        now = self._clock.monotonic()
        is_due = bool(expired) or now - self._collected_at >= COLLECT_INTERVAL_SECONDS
        if self.collects_first or is_due:
            touched, self._touched = self._touched, set()
            if self._is_all_touched or is_due:
                self._is_all_touched = False
                self._collected_at = now
                await self.collect()
            else:
                await self._collect_all(touched)
        for name in self._planner.unfounded():
            await self.collect_resource(name)
        return self._next_pass_seconds()

    # Expired servers.

    def _note(self, key: Key, item: Item | None) -> None:
        """Record a change in the mirror, and wake the collector if it concerns entries."""
        if key.startswith(SERVERS_PREFIX):
            if item is None:
                self._seen.pop(key, None)
                self._settled.pop(key, None)
                # KEP-2339 3.34: a change of the participating servers starts a collection
                self._touch_all()
            else:
                self._seen[key] = (item.revision, self._clock.monotonic())
                record = decode_record(item.value)
                is_settled = record is not None and record.settled
                if self._settled.get(key) is not is_settled:
                    self._settled[key] = is_settled
                    self._touch_all()
        elif key.startswith(LEASES_PREFIX):
            self._note_lease(key, item)
        elif key.startswith(REPORTS_PREFIX):
            self._touched.add(key.removeprefix(REPORTS_PREFIX))
            self._changed.set()
        elif key.startswith(VOTES_PREFIX):
            self._touched.add(name_of_vote(key))
            self._changed.set()
        elif key == MODES_KEY:
            self._touch_all()

    def _touch_all(self) -> None:
        self._is_all_touched = True
        self._changed.set()

    def _note_lease(self, key: Key, item: Item | None) -> None:
        if item is not None and is_foreign_lease(item):
            if key not in self._foreign_leases:
                self._touch_all()
            self._foreign_leases[key] = (item.revision, self._clock.monotonic())
        elif self._foreign_leases.pop(key, None) is not None:
            self._touch_all()

    async def _remove_foreign_leases(self) -> None:
        """Remove expired leases of servers that do not participate."""
        now = self._clock.monotonic()
        for key, (revision, since) in list(self._foreign_leases.items()):
            item = self._mirror.get(key)
            if item is None or now - since < lease_seconds_of(item):
                continue
            logger.warning("lease %s of a non-participating server expired; removed it", key)
            guard = RevisionIs(key, revision)
            await self._storage.commit(Transaction((guard,), (Delete(key),)))

    def _expired(self) -> list[tuple[ServerId, Revision]]:
        now, extra = self._clock.monotonic(), 0.0 if self.collects_first else STEP_IN_SECONDS
        return [
            (server_of(key), revision)
            for key, (revision, since) in self._seen.items()
            # KEP-2339 3.16: a server participates as long as it renews, by this process's clock
            if now - since >= self._lease_seconds(key) + extra
            and server_of(key) != self._membership.id
        ]

    @property
    def collects_first(self) -> bool:
        """Whether this server has the lowest id of the unexpired participating servers."""
        unexpired = map(server_of, self._unexpired())
        own = self._membership.id
        # KEP-2339 3.34: one server acts first, without a lease for it
        return self._membership.is_member and own <= min(unexpired, default=own)

    def _unexpired(self) -> list[Key]:
        now = self._clock.monotonic()
        return [
            key
            for key, (_, since) in self._seen.items()
            if now - since < self._lease_seconds(key) and self._collects(key)
        ]

    def _collects(self, key: Key) -> bool:
        """Return whether a server collects garbage; one with an unreadable record may not."""
        item = self._mirror.get(key)
        record = None if item is None else decode_record(item.value)
        return record is not None and record.mode != "off"

    def _lease_seconds(self, key: Key) -> float:
        item = self._mirror.get(key)
        record = None if item is None else decode_record(item.value)
        if record is None:
            return LEASE_SECONDS_UNKNOWN
        return min(max(record.lease_seconds, 1.0), LEASE_SECONDS_MAX)

    def _next_pass_seconds(self) -> float:
        """Return the seconds until a lease expires, for the first collector or for the others."""
        now = self._clock.monotonic()
        ends = [
            since + self._lease_seconds(key) + extra - now
            for key, (_, since) in self._seen.items()
            for extra in (0.0, STEP_IN_SECONDS)
            if server_of(key) != self._membership.id
        ]
        return min(
            [COLLECT_INTERVAL_SECONDS, *(max(left, PAUSE_SECONDS) for left in ends if left > -1)]
        )

    async def _remove_server(self, server_id: ServerId, revision: Revision) -> None:
        """Delete an expired server's key, unless the server has renewed it since."""
        key = server_key(server_id)
        outcome = await self._storage.commit(
            Transaction((RevisionIs(key, revision),), (Delete(key), Delete(lease_key(server_id))))
        )
        if isinstance(outcome, Done):
            logger.warning("lease of %s expired; removed its membership record", server_id)
            self.servers_removed += 1
            await self._mirror.reach(outcome.revision, seconds=CATCH_UP_SECONDS)
        elif isinstance(outcome, Refused):
            await self._mirror.reach(outcome.revision, seconds=CATCH_UP_SECONDS)

    # Entries of expired servers.

    async def collect(self) -> None:
        """Recompute every StorageVersion from the members, and remove orphaned encoder keys."""
        await self._collect_all(self._planner.names())
        await self._remove_orphaned_encoders()
        await self._forget_states()

    async def _collect_all(self, names: Iterable[str]) -> None:
        names = list(names)
        waiting = iter(names)

        async def take() -> None:
            for name in waiting:
                await self._clock.sleep(0)  # Yield: there may be thousands of names.
                try:
                    await self.collect_resource(name)
                except (StorageError, MachineryError) as error:
                    # One unreadable StorageVersion must not prevent the collection of the others.
                    logger.warning("cannot remove expired entries of %s: %s", name, error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE_MAX, len(names))):
                group.create_task(take(), name="collector")

    async def collect_resource(self, name: str) -> None:
        """Remove expired entries from one StorageVersion; write nothing if it is up to date."""
        for _ in range(COLLECT_ATTEMPTS_MAX):
            # KEP-2339 3.33: both kinds of garbage: stale entries, and objects without entries
            made = self._planner.without_garbage(name, self._kind(name))
            # KEP-2339 3.66: write nothing when nothing has changed
            if made is None or made.is_empty:
                return
            outcome = await self._storage.commit(made.transaction)
            if isinstance(outcome, Done):
                self.entries_removed += len(made.before.entries) - len(made.after.entries)
                if not made.after.entries and any(e.definition for e in made.before.entries):
                    await self.forget_state(name)
                return
            if isinstance(outcome, Refused):
                await self._mirror.reach(outcome.revision, seconds=CATCH_UP_SECONDS)
        self._touched.add(name)
        self._changed.set()  # Other servers change it at the same time: try again soon.

    async def _forget_states(self) -> None:
        """Delete states of deleted custom resources, which a delayed write may have created
        again."""
        for item in self._mirror.under(STATES_PREFIX):
            try:
                name = name_of(GroupResource.parse(item.key.removeprefix(STATES_PREFIX)))
            except InvalidName:
                continue  # A client has created it under a name that no resource has.
            epoch = self._mirror.get(epoch_key(name))
            if epoch is None or self._mirror.get(report_key(name)) is not None:
                continue
            if decode_epoch(epoch.value).is_custom:
                await self.forget_state(name)

    async def forget_state(self, name: str) -> None:
        """Delete the StorageState of a custom resource whose CRD was deleted and that no server
        reports.

        A CRD that was removed by force (its finalizers patched away) leaves objects behind. Then
        the state stays and lists "Unknown", so that a new CRD of the same name, and every
        preflight, find them. The first collection after their deletion deletes it.
        """
        item = await self._storage.get(state_key(name))
        if item is None:
            return
        guards = (
            Absent(definition_key(str(resource_of_name(name)))),
            Absent(report_key(name)),
            RevisionIs(item.key, item.revision),
        )
        write: Write = Delete(item.key)
        if await self._storage.count(Span.of_prefix(_custom_root(name))):
            stored = decode_state(item)
            if UNKNOWN_HASH in stored.state.persisted:
                return
            persisted = (UNKNOWN_HASH, *stored.state.persisted)
            unknown = replace(stored, state=replace(stored.state, persisted=persisted))
            write = Put(item.key, encode_state(name, unknown))
        await self._storage.commit(Transaction(guards, (write,)))

    def _kind(self, name: str) -> str:
        """Return the kind of the resource's objects, as the catalog or the first registration gives
        it."""
        item = self._mirror.get(epoch_key(name))
        noted = "" if item is None else decode_epoch(item.value).kind
        return self._kinds.get(name) or noted

    async def _remove_orphaned_encoders(self) -> None:
        """Delete encoder keys of removed servers that no StorageVersion has an entry for."""
        for item in self._mirror.under(ENCODERS_PREFIX):
            server_id, name = parse_encoder_key(item.key)
            if self._participants.has(server_id):
                continue
            view = MirrorView.of(self._mirror, name)
            if any(entry.server_id == server_id for entry in view.report.entries):
                continue  # It is deleted together with its entry.
            guards = (Absent(server_key(server_id)), *view.guards())
            await self._storage.commit(Transaction(guards, (Delete(item.key),)))


def _custom_root(name: str) -> str:
    """Return the prefix of the keys of a custom resource's objects."""
    group, resource = resource_of_name(name)
    return f"{OBJECTS_PREFIX}{group}/{resource}/"
