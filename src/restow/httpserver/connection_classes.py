"""Classes of connections: each has limits of its own, so that exhausting one does not touch others.

    unauthenticated   until a request of the connection was authenticated; shared by address
    authenticated     of any user; shared by user
    privileged        of `system:masters`, to which the servers themselves belong

A connection belongs to the most privileged class of its requests so far. Not here: who is
privileged, which the application decides.
"""

from __future__ import annotations

from typing import Final, Protocol

from restow.httpserver.limits import Limits

DISPLACE_CANDIDATES_MAX: Final = 16
"""Connections examined for one that can be replaced; those that cannot are moved to the end of the
queue."""


class ClassMember(Protocol):
    """The part of a connection's peer that its class depends on."""

    @property
    def user(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def is_known(self) -> bool: ...

    @property
    def is_privileged(self) -> bool: ...


class Displaceable(Protocol):
    """An unauthenticated connection, which can be aborted in favor of another one."""

    @property
    def is_served(self) -> bool:
        """Whether a response is pending or being sent."""

    def abort(self) -> None: ...


class ConnectionClasses:
    """The connections of a listener, by class: unauthenticated ones by address, and how many each
    user has of the others."""

    __slots__ = (
        *("_limits", "_unauthenticated", "authenticated", "by_user", "displaced", "privileged"),
        "unauthenticated",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._unauthenticated: Final[dict[str, dict[ClassMember, Displaceable]]] = {}
        """By address; those of an address in the order in which they are replaced."""
        self.unauthenticated = 0
        self.authenticated = 0
        self.privileged = 0
        self.displaced = 0
        self.by_user: Final[dict[str, int]] = {}
        """The authenticated connections of each user that has some."""

    def add(self, peer: ClassMember, connection: Displaceable) -> bool:
        """Add a new connection. At the limit it replaces another one; return whether it could."""
        if self.unauthenticated >= self._limits.unauthenticated_connections_max:
            if not self._displace():
                return False
            self.displaced += 1
        self._unauthenticated.setdefault(peer.key, {})[peer] = connection
        self.unauthenticated += 1
        return True

    def enter(self, user: str, *, is_privileged: bool) -> bool:
        """Count a connection of a user, if the limits of its class admit it."""
        limits = self._limits
        if is_privileged:
            if self.privileged >= limits.privileged_connections_max:
                return False
            self.privileged += 1
            return True
        of_user = self.by_user.get(user, 0)
        if (
            self.authenticated >= limits.connections_max
            or of_user >= limits.connections_per_user_max
        ):
            return False
        self.authenticated += 1
        self.by_user[user] = of_user + 1
        return True

    def leave(self, peer: ClassMember) -> None:
        """Count a connection that has ended, or is about to change its class."""
        if peer.is_privileged:
            self.privileged -= 1
        elif peer.is_known:
            self.authenticated -= 1
            left = self.by_user[peer.user] - 1
            if left:
                self.by_user[peer.user] = left
            else:
                del self.by_user[peer.user]
        else:
            self._remove(peer)

    def abort(self, peer: ClassMember) -> None:
        """Abort a connection, if it is still unauthenticated."""
        connection = self._unauthenticated.get(peer.key, {}).get(peer)
        if connection is not None:
            self._remove(peer)
            self.displaced += 1
            connection.abort()

    def _remove(self, peer: ClassMember) -> None:
        of_address = self._unauthenticated.get(peer.key, {})
        if peer not in of_address:
            return  # it was refused or displaced
        del of_address[peer]
        if not of_address:
            del self._unauthenticated[peer.key]
        self.unauthenticated -= 1

    def _displace(self) -> bool:
        """Abort the oldest connection of the address that has the most, of those that are not being
        served; whether there was one."""
        address = max(self._unauthenticated, key=lambda each: len(self._unauthenticated[each]))
        of_address = self._unauthenticated[address]
        for _ in range(min(DISPLACE_CANDIDATES_MAX, len(of_address))):
            peer, oldest = next(iter(of_address.items()))
            if oldest.is_served:
                of_address[peer] = of_address.pop(peer)  # try the others first
                continue
            self._remove(peer)
            oldest.abort()
            return True
        return False
