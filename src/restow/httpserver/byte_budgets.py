"""Byte budgets: memory that unfinished requests may use, one budget for each class of connections.

Inside a class every key (an address, a user) has a share. An authenticated client over a limit gets
a 503. In the unauthenticated class a new client must not depend on what others hold: there, the
oldest holder of the key with the most is aborted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from restow.httpserver.connection_classes import ClassMember
from restow.httpserver.limits import Limits

End = Callable[[], None]


class ByteBudget:
    """Bytes that the connections of one class may hold together, with a share for each key."""

    __slots__ = ("_holders", "bytes_held", "bytes_max", "displaced", "share_bytes_max")

    def __init__(self, bytes_max: int, share_bytes_max: int) -> None:
        self.bytes_max: Final = bytes_max
        self.share_bytes_max: Final = share_bytes_max
        self.bytes_held = 0
        self.displaced = 0
        """How many holders were aborted in favor of others."""
        self._holders: Final[dict[str, dict[Share, End | None]]] = {}
        """For each key the shares that hold bytes, the oldest first, and what aborts them."""

    def take(self, share: Share, nbytes: int, end: End | None) -> bool:
        """Hold more bytes; with `end`, by which this holder can be aborted, at the expense of
        older holders that have one."""
        while not self._has_room(share.key, nbytes):
            if end is None or not self._displace(share, nbytes):
                return False
        self.bytes_held += nbytes
        self._holders.setdefault(share.key, {})[share] = end
        return True

    def remove(self, share: Share) -> None:
        """Return all bytes of a holder."""
        self.bytes_held -= share.bytes_held
        of_key = self._holders[share.key]
        del of_key[share]
        if not of_key:
            del self._holders[share.key]

    def bytes_of(self, key: str) -> int:
        return sum(share.bytes_held for share in self._holders.get(key, ()))

    @property
    def keys(self) -> tuple[str, ...]:
        """Those that hold bytes."""
        return tuple(self._holders)

    def _has_room(self, key: str, nbytes: int) -> bool:
        if self.bytes_held + nbytes > self.bytes_max:
            return False
        if self.bytes_held + nbytes <= self.share_bytes_max:
            return True  # so has every key
        return self.bytes_of(key) + nbytes <= self.share_bytes_max

    def _displace(self, taker: Share, nbytes: int) -> bool:
        """Abort the oldest other holder of the key that has used up its share, or else of the key
        with the most; whether there was one."""
        key = taker.key
        if self.bytes_of(key) + nbytes <= self.share_bytes_max:
            key = max(self._holders, key=self.bytes_of)
        for share, end in self._holders.get(key, {}).items():
            if share is not taker and end is not None:
                share.release()
                self.displaced += 1
                end()
                return True
        return False


class Share:
    """The bytes that one connection holds, in the share of its key."""

    __slots__ = ("_budget", "bytes_held", "key")

    def __init__(self, budget: ByteBudget, key: str) -> None:
        self._budget: Final = budget
        self.key: Final = key
        self.bytes_held = 0

    def take(self, nbytes: int, end: End | None = None) -> bool:
        """Hold more bytes; whether the budget allows it. `end` aborts the connection."""
        if nbytes and not self._budget.take(self, nbytes, end):
            return False
        self.bytes_held += nbytes
        return True

    def release(self) -> None:
        """Return all bytes. They may have been returned before, if the connection was aborted."""
        if self.bytes_held:
            self._budget.remove(self)
            self.bytes_held = 0


class Budgets:
    """The byte budgets of a listener."""

    __slots__ = ("authenticated", "privileged", "unauthenticated")

    def __init__(self, limits: Limits) -> None:
        self.unauthenticated: Final = ByteBudget(
            limits.unauthenticated_bytes_max, limits.unauthenticated_address_bytes_max
        )
        self.authenticated: Final = ByteBudget(limits.bodies_bytes_max, limits.user_bytes_max)
        self.privileged: Final = ByteBudget(
            limits.privileged_bytes_max, limits.privileged_bytes_max
        )

    def share_of(self, peer: ClassMember) -> Share:
        """The share of a connection in the budget of its class."""
        if peer.is_privileged:
            return Share(self.privileged, peer.key)
        return Share(self.authenticated if peer.is_known else self.unauthenticated, peer.key)

    @property
    def bytes_held(self) -> int:
        """Bytes held by all connections together."""
        classes = (self.unauthenticated, self.authenticated, self.privileged)
        return sum(each.bytes_held for each in classes)
