"""The graph of owner references: in memory only for objects with owners, and only keys and UIDs.

Not here: whether an owner still exists, which is read from the store.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import NamedTuple

from restow.controllers.object_keys import OwnerReference


class Ties(NamedTuple):
    """The UIDs of one object's owners."""

    blocking: tuple[str, ...]
    """Owners that wait for this object in foreground deletion."""
    others: tuple[str, ...]

    @classmethod
    def of(cls, owners: Iterable[OwnerReference], *, own_uid: str) -> Ties:
        """Return the owners of an object; a reference to itself is ignored."""
        # Many objects have the same owner: share one string.
        known = {
            sys.intern(owner.uid): bool(owner.block_owner_deletion)
            for owner in owners
            if owner.uid != own_uid
        }
        return cls(
            tuple(uid for uid, blocks in known.items() if blocks),
            tuple(uid for uid, blocks in known.items() if not blocks),
        )


class OwnerGraph:
    """All objects with owners, by key and by the UID of each owner."""

    def __init__(self) -> None:
        self._ties: dict[str, Ties] = {}
        self._dependents: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._ties)

    def __contains__(self, key: str) -> bool:
        return key in self._ties

    def tie(self, key: str, ties: Ties) -> Ties | None:
        """Set the owners of an object; return its previous owners, if any."""
        before = self._ties.get(key)
        if before == ties:
            return before
        if before is not None:
            self.drop(key)
        self._ties[key] = ties
        for uid in ties.blocking + ties.others:
            self._dependents.setdefault(uid, set()).add(key)
        return before

    def drop(self, key: str) -> Ties | None:
        """Remove an object; return its owners."""
        ties = self._ties.pop(key, None)
        if ties is None:
            return None
        for uid in ties.blocking + ties.others:
            keys = self._dependents[uid]
            keys.discard(key)
            if not keys:
                del self._dependents[uid]
        return ties

    def clear(self) -> None:
        self._ties.clear()
        self._dependents.clear()

    def dependents_of(self, uid: str) -> Collection[str]:
        """Return the keys of all objects that reference this owner."""
        return self._dependents.get(uid, ())

    def under(self, root: str) -> list[str]:
        """Return the keys with this prefix; checks every object in the graph."""
        return [key for key in self._ties if key.startswith(root)]

    def is_blocked(self, uid: str) -> bool:
        """Whether an object blocks the foreground deletion of this owner."""
        return any(uid in self._ties[key].blocking for key in self._dependents.get(uid, ()))
