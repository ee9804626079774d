"""Who depends on whom: in memory only for objects that have owners, and only keys and uids.

Not here: whether an owner still exists, which is asked of the store.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import NamedTuple

from restow.controllers.object_keys import OwnerReference


class Ties(NamedTuple):
    """The uids of one object's owners."""

    blocking: tuple[str, ...]
    """Owners that may not go before this object, if they are deleted in the foreground."""
    others: tuple[str, ...]

    @classmethod
    def of(cls, owners: Iterable[OwnerReference], *, own_uid: str) -> Ties:
        """The ties of an object; to be one's own owner ties to nothing."""
        # Many objects have the same owner: one text for all of them.
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
    """All objects with owners, by key, and by the uid of each owner."""

    def __init__(self) -> None:
        self._ties: dict[str, Ties] = {}
        self._dependents: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._ties)

    def __contains__(self, key: str) -> bool:
        return key in self._ties

    def tie(self, key: str, ties: Ties) -> Ties | None:
        """Note the owners of an object; those it had before, if it had any."""
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
        """Forget an object; the owners it had."""
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
        """The keys of all objects that name this owner."""
        return self._dependents.get(uid, ())

    def under(self, root: str) -> list[str]:
        """The keys of all objects that begin so; looks at every object there is."""
        return [key for key in self._ties if key.startswith(root)]

    def is_blocked(self, uid: str) -> bool:
        """Whether some object does not let this owner go before it."""
        return any(uid in self._ties[key].blocking for key in self._dependents.get(uid, ()))
