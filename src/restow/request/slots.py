"""Slots of the in-flight limiter: how many each user holds, and whether another one is available.

Not here: which requests need a slot, and how many slots there are (`limits` describes both).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SCARCE_SECONDS: Final = 3.0
"""Longer than a rejected client waits before it retries."""
RESERVED_SHARE: Final = 8
"""One of this many slots is reserved for users below their share."""


class Slot:
    """One slot, held until `leave`, which is idempotent."""

    __slots__ = ("_pool", "user")

    def __init__(self, pool: SlotPool, user: str) -> None:
        self._pool: SlotPool | None = pool
        self.user = user

    def leave(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self.user)

    def move_to(self, pool: SlotPool | None, user: str) -> bool:
        """Exchange the slot for one of a user in a pool, if any. If that user may have none,
        release it and return False."""
        if self._pool is None or (pool is self._pool and user == self.user):
            return True
        self.leave()
        if pool is None:
            return True
        if not pool.has_slot_for(user):
            return False
        self._pool, self.user = pool, user
        pool.take_for(user)
        return True


class SlotPool:
    """Slots of one kind. `held` contains only users who hold some."""

    __slots__ = (
        "_free_max",
        "_monotonic",
        "_scarce_until",
        "held",
        "is_of_streams",
        "per_user_max",
        "refused",
        "slots_max",
        "taken",
    )

    def __init__(
        self,
        slots_max: int,
        monotonic: Callable[[], float],
        *,
        per_user_max: int = 0,
        is_of_streams: bool = False,
    ) -> None:
        self.slots_max = slots_max
        self.per_user_max = per_user_max
        self.is_of_streams = is_of_streams
        self.taken = 0
        self.held: dict[str, int] = {}
        self.refused = 0
        self._monotonic = monotonic
        # Up to this number the slots of a user are not checked.
        self._free_max = slots_max - slots_max // RESERVED_SHARE
        self._scarce_until = 0.0

    def has_slot_for(self, user: str) -> bool:
        """Whether a user may take a slot now. Changes nothing except the record of rejections."""
        per_user_max = self.per_user_max
        if per_user_max and self.held.get(user, 0) >= per_user_max:
            self.refused += 1
            return False
        if not self.slots_max:
            return True
        if self.taken < self._free_max and not self._scarce_until:
            return True
        return self._has_scarce_slot_for(user)

    def _has_scarce_slot_for(self, user: str) -> bool:
        if self._scarce_until and self._monotonic() >= self._scarce_until:
            self._scarce_until = 0.0
        is_scarce = self._scarce_until > 0.0 or self.taken >= self._free_max
        if self.taken < self.slots_max and not is_scarce:
            return True
        if self._is_below_share(user):
            if self.taken < self.slots_max:
                return True
            self._scarce_until = self._monotonic() + SCARCE_SECONDS
        self.refused += 1
        return False

    def _is_below_share(self, user: str) -> bool:
        has = self.held.get(user, 0)
        users = len(self.held) + (has == 0)
        if self._scarce_until or self.slots_max >= RESERVED_SHARE:
            users += 1  # reserved for a new user, except that one user may take all of few slots
        return has < max(1, self.slots_max // users)

    def take(self, user: str) -> Slot:
        """Take a slot right after `has_slot_for` has returned True."""
        self.take_for(user)
        return Slot(self, user)

    def take_for(self, user: str) -> None:
        self.taken += 1
        self.held[user] = self.held.get(user, 0) + 1

    def give_back(self, user: str) -> None:
        self.taken -= 1
        left = self.held[user] - 1
        if left:
            self.held[user] = left
        else:
            del self.held[user]
