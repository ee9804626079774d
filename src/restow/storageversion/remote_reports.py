"""Adds the entries of servers with their own store to the StorageVersions of this store.

Those servers have their keys in their own store, so nothing here fences them: they close a resource
before they report a change, and open it when the change is accepted (`remote_registration`). The
accepted entry is like all others, in one transaction with its effect on the agreement.

Reports may arrive late and twice. Each has a *sequence*, the revision of the other store at which
it was made: a report older than the recorded entry is rejected, so it changes nothing that was
opened since.

Not here: the HTTP endpoint (`restow.endpoints.handlers.storage_version_report`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from restow.aio import Backoff, Runtime
from restow.storage.interface import Absent, Done, Guard, Refused, Storage
from restow.storageversion.changes import MirrorView, change
from restow.storageversion.errors import NotSettled, ReportRefused
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.mirror import Mirror
from restow.storageversion.participants import Participants
from restow.storageversion.remote_registration import forget_advice
from restow.storageversion.rules import (
    StorageVersionEntries,
    StorageVersionEntry,
    with_entry,
    without,
)

ENTRIES_MAX: Final = 64
"""Maximum number of servers that report one resource from another store: one object lists all."""
ATTEMPTS_MAX: Final = 20
CATCH_UP_SECONDS: Final = 2.0
BACKOFF: Final = Backoff(initial_seconds=0.002, factor=1.6, max_seconds=0.25, jitter=1.0)

Entries = tuple[StorageVersionEntry, ...]


class RemoteReports:
    """Accepts and withdraws entries of servers with another store."""

    def __init__(self, storage: Storage, mirror: Mirror, runtime: Runtime) -> None:
        self._storage = storage
        self._mirror = mirror
        self._participants = Participants(mirror)
        self._runtime = runtime

    async def report(
        self, name: str, kind: str, entry: StorageVersionEntry
    ) -> StorageVersionEntries:
        """Record how a server writes a resource, whose objects are of kind `kind`.

        A report may be repeated. Raises `ReportRefused`, `NotSettled` or a StorageError.
        """
        assert entry.store
        assert not entry.definition
        is_not_member = Absent(server_key(entry.server_id))

        def entries_of(view: MirrorView) -> Entries:
            check_report(view, kind, entry)
            # KEP-2339 3.40: the main servers keep the entry like all others
            return with_entry(view.report.entries, entry)

        return await self._change(name, kind, entries_of, (is_not_member,))

    async def withdraw(
        self, name: str, *, server_id: ServerId, store: str, sequence: int
    ) -> StorageVersionEntries:
        """Remove a server's entry if its sequence is not above the given one.

        The caller has read in that store that the server can write neither under that entry, nor in
        any other way before its next report. A missing entry counts as removed. Raises `NotSettled`
        or a StorageError.
        """

        def entries_of(view: MirrorView) -> Entries:
            entries = view.report.entries
            known = _entry_of(entries, server_id)
            if known is None or known.store != store or known.sequence > sequence:
                return entries
            return without(entries, [server_id])

        return await self._change(name, "", entries_of, ())

    async def _change(
        self,
        name: str,
        kind: str,
        entries_of: Callable[[MirrorView], Entries],
        guards: tuple[Guard, ...],
    ) -> StorageVersionEntries:
        """Commit the entries that `entries_of` computes from the current ones."""
        # A stale mirror would lead to wrong rejections and wrong confirmations.
        now = await self._storage.revision()
        if not await self._mirror.reach(now, seconds=CATCH_UP_SECONDS):
            raise NotSettled("the mirror of this server is not up to date: try again")
        clock = self._runtime.clock
        for failures in range(ATTEMPTS_MAX):
            view = MirrorView.of(self._mirror, name)
            entries = entries_of(view)
            noted = "" if view.epoch is None else view.epoch.kind
            made = change(
                view,
                entries,
                kind=kind or noted,
                obstacle=self._participants.obstacle(entries),
                now=clock.wall(),
                new_uid=self._runtime.ids.uid,
                guards=guards,
                aggregated=self._participants.aggregated(),
            )
            if made.is_empty:
                return made.after  # The entries are already as requested.
            outcome = await self._storage.commit(made.transaction)
            if isinstance(outcome, Done):
                return made.after
            if isinstance(outcome, Refused) and outcome.guard in guards:
                raise ReportRefused("the id belongs to a server that keeps its keys in this store")
            revision = (
                outcome.revision if isinstance(outcome, Refused) else await self._storage.revision()
            )
            await self._mirror.reach(revision, seconds=CATCH_UP_SECONDS)
            await clock.sleep(BACKOFF.delay_seconds(failures, self._runtime.randomness))
        raise NotSettled(f"the report of {name} met {ATTEMPTS_MAX} concurrent changes: try again")


def check_report(view: MirrorView, kind: str, entry: StorageVersionEntry) -> None:
    """Check a new entry against the recorded ones. Raises `ReportRefused`."""
    entries = view.report.entries
    own = [other.server_id for other in entries if not other.store]
    if own:
        raise ReportRefused(
            f"{view.name} is reported by servers that keep it in the store of this cluster"
            f" ({', '.join(own)})"
        )
    stores = {other.store for other in entries} - {entry.store}
    if stores:
        raise ReportRefused(
            f"{view.name} is reported by servers that keep it in another store"
            f" ({', '.join(sorted(stores))}): servers cannot agree on a resource in two stores;"
            f" {forget_advice(sorted(stores))}"
        )
    known = _entry_of(entries, entry.server_id)
    if known is None:
        if len(entries) >= ENTRIES_MAX:
            raise ReportRefused(f"{ENTRIES_MAX} servers report {view.name} already")
    elif known.sequence > entry.sequence:
        raise ReportRefused(
            f"{entry.server_id} has reported a newer entry (sequence {known.sequence}, this"
            f" report has {entry.sequence})"
        )
    elif known.sequence == entry.sequence and known != entry:
        raise ReportRefused(
            f"{entry.server_id} has reported another entry with sequence {entry.sequence}"
        )
    others = without(entries, [entry.server_id])
    if others and view.epoch is not None and view.epoch.kind != kind:
        raise ReportRefused(
            f"other servers report kind {view.epoch.kind} for {view.name}, not {kind}"
        )


def _entry_of(entries: Entries, server_id: ServerId) -> StorageVersionEntry | None:
    return next((entry for entry in entries if entry.server_id == server_id), None)
