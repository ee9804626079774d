"""Addresses of the servers of a cluster: each server publishes its own and renews it.

The addresses are separate keys in the store, and no API objects. A key that was not renewed for the
whole duration, as observed by a peer with its own clock, is removed by that peer; if its server is
running, it creates the key again. So the existing keys are the addresses to use, and all servers
agree on them. Not here: the API objects made from them (`endpoints`), and membership in the
cluster.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

import orjson

from restow.aio import Runtime
from restow.controllers.key_observations import KeyObservations
from restow.registry.stored_bytes import to_keep
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Item,
    Key,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
)

ADDRESSES_PREFIX: Final = "/restow/addresses/"
ADDRESS_SECONDS: Final = 15.0
RENEWALS_PER_LEASE: Final = 3
_ATTEMPTS_MAX: Final = 3


class EndpointAddress(NamedTuple):
    """An IP address and a port."""

    ip: str
    port: int

    @property
    def family(self) -> str:
        """`IPv4` or `IPv6`. Raises ValueError if the text is not an IP address."""
        return f"IPv{ipaddress.ip_address(self.ip).version}"


class EndpointAddresses:
    """The addresses of all servers, and the one of this server."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        *,
        server_id: str,
        own: EndpointAddress,
        seconds: float = ADDRESS_SECONDS,
    ) -> None:
        self._storage = storage
        self._key = Key(ADDRESSES_PREFIX + server_id)
        self._own = own
        self._seconds = seconds
        self._observations = KeyObservations(runtime.clock)
        self._revision: Revision | None = None
        self._renewals = 0
        _ = own.family  # raise now if the address cannot be published

    @property
    def renew_seconds(self) -> float:
        return self._seconds / RENEWALS_PER_LEASE

    async def publish(self) -> None:
        """Create or renew the address of this server."""
        self._renewals += 1
        ip, port = self._own
        value = to_keep({"address": ip, "port": port, "beat": self._renewals})
        for _ in range(_ATTEMPTS_MAX):
            outcome = await self._storage.commit(
                Transaction((self._guard(),), (Put(self._key, value),))
            )
            if isinstance(outcome, Done):
                self._revision = outcome.revision
            elif isinstance(outcome, Refused):
                # Only this server writes the key: continue from its current state.
                self._revision = None if outcome.current is None else outcome.current.revision
                continue
            return

    async def withdraw(self) -> None:
        """Remove the address of this server, at a clean shutdown."""
        for _ in range(_ATTEMPTS_MAX):
            outcome = await self._storage.commit(
                Transaction((self._guard(),), (Delete(self._key),))
            )
            if not isinstance(outcome, Refused) or outcome.current is None:
                return
            self._revision = outcome.current.revision

    def _guard(self) -> Guard:
        if self._revision is None:
            return Absent(self._key)
        return RevisionIs(self._key, self._revision)

    async def predecessors(self) -> frozenset[str]:
        """Return the IDs of servers that used this address before.

        A port belongs to one process at a time, so all of them have ended.
        """
        page = await self._storage.range(Span.of_prefix(ADDRESSES_PREFIX))
        return frozenset(
            item.key[len(ADDRESSES_PREFIX) :]
            for item in page.items
            if item.key != self._key and _read(item) == self._own
        )

    async def live(self) -> list[EndpointAddress]:
        """Return the addresses in use, sorted; expired ones are removed first."""
        page = await self._storage.range(Span.of_prefix(ADDRESSES_PREFIX))
        self._observations.keep_only({item.key for item in page.items})
        found: set[EndpointAddress] = set()
        for item in page.items:
            is_expired = self._observations.unchanged_seconds(item) >= self._seconds
            address = _read(item)
            if is_expired or address is None:
                guard = RevisionIs(item.key, item.revision)
                outcome = await self._storage.commit(Transaction((guard,), (Delete(item.key),)))
                if isinstance(outcome, Done):
                    continue
            if address is not None:
                found.add(address)
        return sorted(found)


def _read(item: Item) -> EndpointAddress | None:
    try:
        value = orjson.loads(item.value)
        address = EndpointAddress(value["address"], int(value["port"]))
        _ = address.family
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return address
