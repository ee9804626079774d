"""Which servers there are, read from the mirror, and which of their entries are garbage."""

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
    """The servers of the cluster as this one sees them."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._unfenced: frozenset[str] = frozenset()
        self._unfenced_at = (-1, -1)

    def servers(self) -> dict[ServerId, ServerRecord | None]:
        """All members. None: one whose record is not understood, from another release."""
        found = self._mirror.under(SERVERS_PREFIX)
        return {server_of(item.key): decode_record(item.value) for item in found}

    def earlier_than(self, server_id: ServerId) -> list[ServerId]:
        """The members that joined before this one; all of them if it has not joined."""
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
        """Aggregated servers that keep their objects in this store."""
        return frozenset(
            server_id
            for server_id, record in self.servers().items()
            if record is not None and record.component != COMPONENT
        )

    def unfenced(self) -> frozenset[str]:
        """Servers that say they live, by a lease, and do not take part: they write as they like."""
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
        """Whether an entry is that of a server which is gone.

        One without a server key and without an encoder key was written by someone who does not
        take part, such as a real kube-apiserver. It counts until that server's lease is gone. One
        with another store has its keys there, and whoever reads that store takes it out.
        """
        if entry.store:
            return False
        if self.has(entry.server_id):
            return False
        if self._mirror.get(encoder_key(entry.server_id, name)) is not None:
            return True
        return self._mirror.get(lease_key(entry.server_id)) is None

    def obstacle(self, entries: tuple[StorageVersionEntry, ...]) -> Obstacle | None:
        """What stands against an agreement."""
        return obstacle_to(entries, self.modes(), self.unfenced())
