"""Registers custom resources of one server, and evaluates the entries that all servers report.

Not here: when to register a resource (`custom_resources`), and how its entry is computed
(`registration_planner`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableSet
from contextlib import suppress

from restow.apimachinery.names import GroupResource, GroupVersion
from restow.registry.resource import Resource
from restow.storage.errors import StorageError
from restow.storageversion.changes import MirrorView
from restow.storageversion.encoding_table import EncodingTable
from restow.storageversion.errors import MembershipLost
from restow.storageversion.garbage_collector import StorageVersionGarbageCollector
from restow.storageversion.identity import COMPONENT
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.participants import Participants
from restow.storageversion.records import name_of
from restow.storageversion.registrar import Registrar
from restow.storageversion.rules import StorageVersionEntry


class CustomRegistration:
    """Registers the custom resources of one server. Implements
    `custom_resources.CustomRegistrar`."""

    def __init__(
        self,
        mirror: Mirror,
        membership: Membership,
        *,
        registrar: Registrar,
        collector: StorageVersionGarbageCollector,
        table: EncodingTable,
        hosted: MutableSet[str],
    ) -> None:
        """`hosted` are the names that this server claims to serve; others are withdrawn."""
        self._mirror = mirror
        self._membership = membership
        self._registrar = registrar
        self._collector = collector
        self._table = table
        self._hosted = hosted
        self._is_off = membership.options.mode == "off"
        self._on_change: Callable[[str, str], None] | None = None

    def wake(self, on_change: Callable[[str, str], None] | None) -> None:
        """Set the callback for changed entries of a resource (group, plural); None removes it."""
        self._on_change = on_change

    def report_changed(self, resource: GroupResource) -> None:
        if self._on_change is not None:
            self._on_change(resource.group, resource.resource)

    async def register(self, resource: Resource, *, opened: Callable[[], None]) -> bool:
        if self._is_off:
            opened()
            return True
        assert resource.origin is not None
        own = self._own_entry(resource)
        if own is not None and (
            own.definition != resource.origin.uid or own.encoding_version not in resource.decodable
        ):
            # The entry belongs to a deleted CRD or to a version that the CRD no longer has. Remove
            # it, so that no server waits for an entry that this server cannot update.
            await self.withdraw(resource)
        self._hosted.add(name_of(resource.kind.group_resource))
        try:
            # KEP-2339 3.39: one registration for built-in and custom resources
            await self._registrar.register(resource, opened=opened)
        except MembershipLost:
            with suppress(StorageError):
                await self._membership.check()
            raise
        encoding = self._table.find(resource)
        return encoding is not None and encoding.api_version == resource.storage_api_version

    async def withdraw(self, resource: Resource, *, error: str = "", is_gone: bool = False) -> None:
        name = name_of(resource.kind.group_resource)
        self._hosted.discard(name)
        self._table.close(resource, error=error)
        if self._is_off:
            return
        await self._collector.collect_resource(name)
        if is_gone:
            await self._collector.forget_state(name)

    def served_by_all(self, group: str, plural: str, uid: str) -> bool:
        """Return whether all participating servers serve a custom resource as one CRD defines
        it."""
        found = {e.server_id for e in self._entries(group, plural) if e.definition == uid}
        # Servers in mode "off" report nothing and follow the CRDs themselves. Aggregated servers
        # serve only their own groups.
        return all(
            server_id in found
            for server_id, record in Participants(self._mirror).servers().items()
            if record is not None
            and record.component == COMPONENT
            and record.mode != "off"
            and record.settled
        )

    def closed_by_all(self, group: str, plural: str, uid: str) -> bool:
        """Return whether all servers have stopped creating objects of a CRD.

        This server's own entry must be closing too: then every earlier report is mirrored.
        """
        if self._is_off:
            return True
        closing = {e.server_id: e for e in self._entries(group, plural)}
        own = closing.get(self._membership.id)
        if own is None or own.definition != uid:
            return False
        return all(entry.is_closing for entry in closing.values())

    def hosted_otherwise(self, group: str, plural: str) -> bool:
        """Return whether aggregated servers host the resource, without a CRD."""
        return any(not entry.definition for entry in self._entries(group, plural))

    def written(self, group: str, plural: str) -> frozenset[str]:
        """Return the versions, without the group, that the entries list as written."""
        written = [version for e in self._entries(group, plural) for version in e.written]
        return frozenset(GroupVersion.parse(version).version for version in written)

    def _own_entry(self, resource: Resource) -> StorageVersionEntry | None:
        entries = self._entries(resource.group, resource.plural)
        return next((e for e in entries if e.server_id == self._membership.id), None)

    def _entries(self, group: str, plural: str) -> tuple[StorageVersionEntry, ...]:
        return MirrorView.of(self._mirror, name_of(GroupResource(group, plural))).report.entries
