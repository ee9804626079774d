"""Mutants of replaced stores: how servers detect a replacement, and what they do then.

Each of these is detected by a scenario (`tests.support.sim.advice.scenarios`), not by a seed: if it
depends on an exact moment, by one of many plans that differ in it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from restow.apiserver import store_guard
from restow.apiserver.store_guard import StoreGuard
from restow.registry.caches import Caches
from restow.storage import restore
from restow.storage.continuity import Continuity
from restow.storage.identity import Mark, Seen
from restow.storage.interface import Revision
from tests.support.sim.mutants.mutant import Mutant, Patch

# Modules do not re-export their imports; here those are replaced where they are used.
_store_guard: Any = store_guard
_restore: Any = restore


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def _ignores_revisions(patch: Patch) -> None:
    noted = Continuity._note

    def note(self: Continuity, header: Any, *, before: Revision, **_: Any) -> Revision:
        return noted(self, header, before=before, lowest=0)

    patch(Continuity, "_note", note)


def _ignores_revisions_of_writes(patch: Patch) -> None:
    def note_commit(self: Continuity, header: Any, _: Any, *, before: Revision) -> Revision:
        return self.note(header, before=before)

    patch(Continuity, "note_commit", note_commit)


def _forgets_watched_revisions(patch: Patch) -> None:
    patch(Continuity, "saw", lambda *_: None)


def _ignores_cluster_ids(patch: Patch) -> None:
    def check_cluster(self: Continuity, header: Any) -> None:
        self.cluster_id = header.cluster_id

    patch(Continuity, "check_cluster", check_cluster)


def _compares_no_identity(patch: Patch) -> None:
    """A store is identified by its cluster id and its revision."""
    compared = _store_guard.difference

    def difference(mark: Mark, seen: Seen, *, address: str) -> str | None:
        if seen.record is not None and not seen.record.accepted:
            mark = msgspec.structs.replace(mark, id=seen.record.id)
        found: str | None = compared(mark, seen, address=address)
        return found

    patch(_store_guard, "difference", difference)
    patch(Continuity, "check_identity", lambda *_, **__: None)


def _starts_without_mark(patch: Patch) -> None:
    started = StoreGuard.start
    patch(StoreGuard, "start", lambda self, _mark: started(self, None))


def _forgets_suspicion(patch: Patch) -> None:
    """A store is accepted again as soon as its revision is high enough."""
    compared = _store_guard.difference

    def difference(mark: Mark, seen: Seen, *, address: str) -> str | None:
        mark = msgspec.structs.replace(mark, suspect="")
        found: str | None = compared(mark, seen, address=address)
        return found

    patch(_store_guard, "difference", difference)


def _unblocks_after_any_look(patch: Patch) -> None:
    """A replacement that the driver detects during a check is undone by the reply."""
    stepped = StoreGuard.step

    async def step(self: StoreGuard) -> bool:
        storage: Any = self._storage
        before, looked = storage.blocked, storage.look

        async def look() -> Seen:
            seen: Seen = await looked()
            if before is None and storage.blocked is not None and seen.revision >= storage.newest:
                storage.unblock(seen)
            return seen

        storage.look = look
        try:
            return await stepped(self)
        finally:
            del storage.look

    patch(StoreGuard, "step", step)


def _expires_nothing(patch: Patch) -> None:
    """Resource versions of a store that was replaced stay valid."""
    patch(_store_guard, "expire_revisions", _nothing)


def _expires_own_revisions(patch: Patch) -> None:
    """An accepted store begins above what the first server has seen, not above what others have."""
    made = StoreGuard.__init__

    def init(self: StoreGuard, *args: Any, **options: Any) -> None:
        made(self, *args, **{**options, "ahead": 0})

    patch(StoreGuard, "__init__", init)


def _keeps_caches(patch: Patch) -> None:
    """Caches are served although the store is not the one that they were filled from."""
    patch(Caches, "_block", lambda *_: None)


def _restores_silently(patch: Patch) -> None:
    """A restored store has an identity like any other."""
    patch(_restore, "accept", _nothing)


MUTANTS: Final = (
    Mutant("older-revision-taken", "S7", "a reply with an older revision is accepted", _ignores_revisions),
    Mutant("repeated-revision-taken", "S7", "a write may have a revision that was seen before", _ignores_revisions_of_writes),
    Mutant("watched-revision-forgotten", "S7", "revisions seen only by a watch do not count", _forgets_watched_revisions),
    Mutant("other-cluster-taken", "S7", "replies of another etcd cluster are accepted", _ignores_cluster_ids),
    Mutant("identity-ignored", "S7", "a store with another identity is accepted", _compares_no_identity),
    Mutant("mark-ignored", "S7", "a starting server accepts any store", _starts_without_mark),
    Mutant("suspicion-forgotten", "S7", "a store that went back is accepted when it has grown", _forgets_suspicion),
    Mutant("unblocked-by-look", "S7", "a check undoes what the driver detects meanwhile", _unblocks_after_any_look),
    Mutant("revisions-not-expired", "S8", "clients resume from revisions of the replaced store", _expires_nothing),
    Mutant("own-revisions-expired", "S7 S8", "clients resume from revisions that only other servers saw", _expires_own_revisions),
    Mutant("caches-kept", "S7", "caches of a replaced store are served", _keeps_caches),
    Mutant("restored-not-accepted", "S4", "servers refuse a store that was restored", _restores_silently),
)  # fmt: skip
CAUGHT_BY: Final = {
    "older-revision-taken": "store-rolled-back",
    "watched-revision-forgotten": "store-loses-one-revision",
    "other-cluster-taken": "store-bumped",
    "identity-ignored": "store-other",
    "mark-ignored": "store-restarted",
    "suspicion-forgotten": "store-grows-again",
    "revisions-not-expired": "store-accepted-before-restart",
    "caches-kept": "store-grows-again",
    "restored-not-accepted": "backup-restored",
}
"""The scenario that detects each mutant."""
SHOWN_IN: Final = {
    "repeated-revision-taken": ("loses-revisions-under-writes", 6),
    "unblocked-by-look": ("rolled-back-while-paused", 15),
    "own-revisions-expired": ("rolled-back-while-paused", 103),
}
"""For each other mutant: the varied scenario that detects it, and the index of its plan."""
