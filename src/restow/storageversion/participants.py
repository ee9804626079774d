"""The participating servers, read from the mirror, and which entries are garbage."""

from __future__ import annotations

from restow.storageversion.identity import (
    COMPONENT,
    SERVERS_PREFIX,
    Mode,
    ServerId,
    ServerRecord,
    decode_record,
    server_key,
    server_of,
)
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import LEASES_PREFIX, is_foreign_lease, lease_key
from restow.storageversion.records import encoder_key
from restow.storageversion.rules import Obstacle, StorageVersionEntry, obstacle_to


class Participants:
    """The servers of the cluster, as recorded in this server's mirror."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._unfenced: frozenset[str] = frozenset()
        self._unfenced_at = (-1, -1)

    def servers(self) -> dict[ServerId, ServerRecord | None]:
        """Return all members. None: the record is unreadable, as another release wrote it."""
        # KEP-1201 0.4: the list of participating servers is in the store
        found = self._mirror.under(SERVERS_PREFIX)
        return {server_of(item.key): decode_record(item.value) for item in found}

    def earlier_than(self, server_id: ServerId) -> list[ServerId]:
        """Return the members that joined before this one; all of them if it has not joined."""
        own = self._mirror.get(server_key(server_id))
        return [
            server_of(item.key)
            for item in self._mirror.under(SERVERS_PREFIX)
            if own is None or item.created < own.created
        ]

    def has(self, server_id: ServerId) -> bool:
        return self._mirror.get(server_key(server_id)) is not None

    def modes(self) -> dict[ServerId, Mode]:
        return {
            server_id: "off" if record is None else record.mode
            for server_id, record in self.servers().items()
        }

    def aggregated(self) -> frozenset[ServerId]:
        """Return the aggregated servers that store their objects in this store."""
        return frozenset(
            server_id
            for server_id, record in self.servers().items()
            if record is not None and record.component != COMPONENT
        )

    def unfenced(self) -> frozenset[str]:
        """Return servers that have an identity Lease but do not participate: no fence guards their
        writes."""
        changes = self._mirror.changes_under
        now = (changes(LEASES_PREFIX), changes(SERVERS_PREFIX))
        if self._unfenced_at != now:
            self._unfenced_at = now
            self._unfenced = frozenset(
                server_id
                for item in self._mirror.under(LEASES_PREFIX)
                if not self.has(server_id := ServerId(item.key.removeprefix(LEASES_PREFIX)))
                and is_foreign_lease(item)
            )
        return self._unfenced

    def is_garbage(self, name: str, entry: StorageVersionEntry) -> bool:
        """Return whether an entry belongs to an expired server.

        An entry without a server key and without an encoder key belongs to a server that does not
        participate, such as a kube-apiserver. It counts until that server's Lease is deleted. An
        entry from another store has its keys there, and the servers of that store remove it.
        """
        if entry.store:
            return False
        # KEP-2339 3.18: compare entries with the participating servers
        if self.has(entry.server_id):
            return False
        if self._mirror.get(encoder_key(entry.server_id, name)) is not None:
            return True
        return self._mirror.get(lease_key(entry.server_id)) is None

    def obstacle(self, entries: tuple[StorageVersionEntry, ...]) -> Obstacle | None:
        """Return the reason that prevents an agreement, or None."""
        return obstacle_to(entries, self.modes(), self.unfenced())
