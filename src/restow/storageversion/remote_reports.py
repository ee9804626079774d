"""What servers with a store of their own say, taken into the reports of this store.

They have their keys in their store, so nothing here fences them: they close themselves before they
say anything new, and open when it was taken (`remote_registration`). Here it becomes an entry like
all others, in one transaction, with what follows from it for the agreement.

Words may arrive late and twice. Each has a *sequence*, the revision of the other store at which it
was said: what is older than what is known is refused, and so changes nothing that was opened since.

Not here: how it comes over the wire (`restow.endpoints.handlers.storage_version_report`).
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
"""Servers that report one resource from another store: all of them are in one object."""
ATTEMPTS_MAX: Final = 20
CATCH_UP_SECONDS: Final = 2.0
BACKOFF: Final = Backoff(initial_seconds=0.002, factor=1.6, max_seconds=0.25, jitter=1.0)

Entries = tuple[StorageVersionEntry, ...]


class RemoteReports:
    """Takes reports of servers with another store, and takes them back."""

    def __init__(self, storage: Storage, mirror: Mirror, runtime: Runtime) -> None:
        self._storage = storage
        self._mirror = mirror
        self._roster = Participants(mirror)
        self._runtime = runtime

    async def report(
        self, name: str, kind: str, entry: StorageVersionEntry
    ) -> StorageVersionEntries:
        """Note how a server writes a resource, whose objects are called `kind`.

        The same may be said again. Raises `ReportRefused`, `NotSettled` or a StorageError.
        """
        assert entry.store
        assert not entry.definition
        stranger = Absent(server_key(entry.server_id))

        def entries_of(view: MirrorView) -> Entries:
            check_report(view, kind, entry)
            return with_entry(view.report.entries, entry)

        return await self._change(name, kind, entries_of, (stranger,))

    async def withdraw(
        self, name: str, *, server_id: ServerId, store: str, sequence: int
    ) -> StorageVersionEntries:
        """Take out what a server has said, if it has said it up to then.

        Whoever asks for it has seen in that store that the server cannot write any more: neither
        by what it has said, nor by anything else before it says something new. What is not there
        is taken out already. Raises `NotSettled` or a StorageError.
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
        """Commit the entries that follow from those that are there."""
        # Nobody is refused because of what is long gone, or told of it that it is so.
        now = await self._storage.revision()
        if not await self._mirror.reach(now, seconds=CATCH_UP_SECONDS):
            raise NotSettled("this server does not know what is reported now")
        clock = self._runtime.clock
        for failures in range(ATTEMPTS_MAX):
            view = MirrorView.of(self._mirror, name)
            entries = entries_of(view)
            noted = "" if view.epoch is None else view.epoch.kind
            made = change(
                view,
                entries,
                kind=kind or noted,
                obstacle=self._roster.obstacle(entries),
                now=clock.wall(),
                new_uid=self._runtime.ids.uid,
                guards=guards,
                aggregated=self._roster.aggregated(),
            )
            if made.is_empty:
                return made.after  # it is so already, and was when this was asked for
            outcome = await self._storage.commit(made.transaction)
            if isinstance(outcome, Done):
                return made.after
            if isinstance(outcome, Refused) and outcome.guard in guards:
                raise ReportRefused("it is the id of a server that keeps its keys here")
            revision = (
                outcome.revision if isinstance(outcome, Refused) else await self._storage.revision()
            )
            await self._mirror.reach(revision, seconds=CATCH_UP_SECONDS)
            await clock.sleep(BACKOFF.delay_seconds(failures, self._runtime.randomness))
        raise NotSettled(f"the report of {name} was overtaken {ATTEMPTS_MAX} times")


def check_report(view: MirrorView, kind: str, entry: StorageVersionEntry) -> None:
    """Whether a server may say so beside what others say. Raises `ReportRefused`."""
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
            f" ({', '.join(sorted(stores))}): what is in two stores cannot be agreed on;"
            f" {forget_advice(sorted(stores))}"
        )
    known = _entry_of(entries, entry.server_id)
    if known is None:
        if len(entries) >= ENTRIES_MAX:
            raise ReportRefused(f"{ENTRIES_MAX} servers report {view.name} already")
    elif known.sequence > entry.sequence:
        raise ReportRefused(
            f"{entry.server_id} has said something newer (at {known.sequence}, this is of"
            f" {entry.sequence})"
        )
    elif known.sequence == entry.sequence and known != entry:
        raise ReportRefused(
            f"{entry.server_id} has said something else at the same time ({entry.sequence})"
        )
    others = without(entries, [entry.server_id])
    if others and view.epoch is not None and view.epoch.kind != kind:
        raise ReportRefused(
            f"others report that the objects of {view.name} are called {view.epoch.kind}, not"
            f" {kind}"
        )


def _entry_of(entries: Entries, server_id: ServerId) -> StorageVersionEntry | None:
    return next((entry for entry in entries if entry.server_id == server_id), None)
