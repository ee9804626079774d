"""Mutants of membership: joining, renewal, collection of expired servers, and reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from restow.registry import ownership
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Key,
    Transaction,
)
from restow.storageversion import changes, membership, registration_planner
from restow.storageversion.changes import MirrorView
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.garbage_collector import StorageVersionGarbageCollector
from restow.storageversion.identity import SERVERS_PREFIX, server_key, server_of
from restow.storageversion.membership import Membership
from restow.storageversion.object_codec import lease_key
from restow.storageversion.participants import Participants
from restow.storageversion.registration_planner import ReportPlanner
from restow.storageversion.write_lease import WriteLease
from tests.support.sim.mutants.mutant import Mutant, Patch

# Modules do not re-export their imports; here those are replaced where they are used.
_membership: Any = membership

LIST_IS_GOOD_FOR: Final = 50
"""Number of lookups for which a list is used."""


def _registers_without_membership(patch: Patch) -> None:
    patch(ReportPlanner, "_own_guard", lambda _self: Absent(Key("/restow/nothing")))


def _collects_by_a_list(patch: Patch) -> None:
    """Participation is taken from a list that was read before, and not checked on removal."""
    changed = changes._encoder_changes
    lists: dict[int, tuple[int, set[str]]] = {}

    def has(self: Participants, server_id: Any) -> bool:
        asked, known = lists.get(id(self), (0, set()))
        if asked % LIST_IS_GOOD_FOR == 0:
            known = {str(each) for each in self.servers()}
        lists[id(self)] = asked + 1, known
        return server_id in known

    patch(Participants, "has", has)

    def encoder_changes(*args: Any, **options: Any) -> Any:
        _, found = changed(*args, **options)
        return [], found

    patch(changes, "_encoder_changes", encoder_changes)


def _changes_without_precondition(patch: Patch) -> None:
    patch(MirrorView, "guards", lambda _self: [])


def _removes_reports_without_precondition(patch: Patch) -> None:
    made = changes.change

    def change(view: Any, entries: Any, **options: Any) -> Any:
        found = made(view, entries, **options)
        if entries or not found.transaction.writes:
            return found
        return replace(found, transaction=Transaction((), found.transaction.writes))

    patch(registration_planner, "change", change)


def _removes_a_server_without_check(patch: Patch) -> None:
    """A server with an old lease is removed, even if it has just renewed it."""

    async def end(self: StorageVersionGarbageCollector, server_id: Any, _revision: Any) -> None:
        writes = (Delete(server_key(server_id)), Delete(lease_key(server_id)))
        outcome = await self._storage.commit(Transaction((), writes))
        if isinstance(outcome, Done):
            await self._mirror.reach(outcome.revision, seconds=2.0)

    patch(StorageVersionGarbageCollector, "_remove_server", end)


def _error_is_absence(patch: Patch) -> None:
    """A server whose key cannot be read is taken for expired."""
    step = StorageVersionGarbageCollector.step

    async def looking(self: StorageVersionGarbageCollector) -> float:
        for item in list(self._mirror.under(SERVERS_PREFIX)):
            if server_of(item.key) == self._membership.id:
                continue
            try:
                found = await self._storage.get(item.key)
            except StorageError:
                found = None
            if found is None:
                lease = lease_key(server_of(item.key))
                await self._storage.commit(Transaction((), (Delete(item.key), Delete(lease))))
        return await step(self)

    patch(StorageVersionGarbageCollector, "step", looking)


def _expiry_by_the_time_of_day(patch: Patch) -> None:
    def expired(self: StorageVersionGarbageCollector) -> Any:
        found = []
        for key, (revision, _) in self._seen.items():
            item = self._mirror.get(lease_key(server_of(key)))
            if item is None or server_of(key) == self._membership.id:
                continue
            spec = orjson.loads(item.value)["spec"]
            renewed = datetime.fromisoformat(spec["renewTime"])
            if self._clock.wall() - renewed > timedelta(seconds=spec["leaseDurationSeconds"]):
                found.append((server_of(key), revision))
        return found

    patch(StorageVersionGarbageCollector, "_expired", expired)


def _expired_entries_stay(patch: Patch) -> None:
    patch(Participants, "is_garbage", lambda *_: False)


def _leases_of_an_hour(patch: Patch) -> None:
    patch(StorageVersionGarbageCollector, "_lease_seconds", lambda *_: 3600.0)


def _one_identity_for_a_host(patch: Patch) -> None:
    made = _membership.make_server_id
    patch(
        membership,
        "make_server_id",
        lambda host, component, _nonce: made(host, component, "the same"),
    )


def _renewal_creates_the_key(patch: Patch) -> None:
    touch = Membership._touch

    async def touching(self: Membership, guard: Any, extra: Any = ()) -> bool:
        if isinstance(guard, Absent):
            return await touch(self, guard, extra)
        return await touch(self, Absent(Key("/restow/nothing")), extra)

    patch(Membership, "_touch", touching)


def _never_registers_again(patch: Patch) -> None:
    """A server that has lost its identity continues without one."""
    settle = Coordinator._try_to_settle

    async def try_to_settle(self: Coordinator) -> bool:
        if self._has_begun and not self.membership.is_member:
            return True
        return await settle(self)

    patch(Coordinator, "_try_to_settle", try_to_settle)


def _writes_without_renewal(patch: Patch) -> None:
    """A server that was paused writes what was queued in it before it renews its lease."""
    patch(WriteLease, "check", lambda _self: None)


def _leaves_encoder_keys(patch: Patch) -> None:
    changed = changes._encoder_changes

    def encoder_changes(*args: Any, **options: Any) -> Any:
        guards, found = changed(*args, **options)
        return guards, [each for each in found if not isinstance(each, Delete)]

    patch(changes, "_encoder_changes", encoder_changes)


def _clients_write_reports(patch: Patch) -> None:
    for name in ("check_create", "check_update", "check_delete"):
        patch(ownership, name, lambda *_: None)


MUTANTS: Final = (
    Mutant("register-first", "G6", "registers without being a member", _registers_without_membership),
    Mutant("collect-by-list", "G2", "expiry is not checked on removal", _collects_by_a_list),
    Mutant("no-precondition", "G2 G10", "reports change without a precondition", _changes_without_precondition),
    Mutant("report-removed-blindly", "G4", "an empty report is deleted without a precondition", _removes_reports_without_precondition),
    Mutant("lease-renewed-between", "G2", "a server that has renewed its lease is removed", _removes_a_server_without_check),
    Mutant("error-is-absence", "G2", "a key that cannot be read counts as expired", _error_is_absence),
    Mutant("wall-clock-expiry", "G2", "leases expire by the wall clock", _expiry_by_the_time_of_day),
    Mutant("expired-entries-stay", "G7 L7", "expired entries are not removed", _expired_entries_stay),
    Mutant("lease-of-an-hour", "G7 L7", "leases expire after an hour", _leases_of_an_hour),
    Mutant("identity-of-host", "R4", "one identity for all servers of a host", _one_identity_for_a_host),
    Mutant("renewal-creates", "G6", "a deleted key is created again", _renewal_creates_the_key),
    Mutant("never-registers-again", "G6 L1", "continues without an identity", _never_registers_again),
    Mutant("writes-without-renewal", "G12", "writes are sent after the lease has expired", _writes_without_renewal),
    Mutant("encoder-keys-stay", "E1", "entries are removed, encoder keys are not", _leaves_encoder_keys),
    Mutant("clients-report", "R3", "clients write reports", _clients_write_reports),
)  # fmt: skip
