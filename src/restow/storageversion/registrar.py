"""Registration: a server reports how it writes a resource before it writes it.

There is one transaction per resource: read, compute, and commit, guarded by everything that was
read; if a guard fails, read again and repeat. The transactions of different resources run
concurrently. A resource is opened for writing by the line that follows its commit.

A server that cannot read every version that may be stored does not register, and so never writes:
it would lose the data that it cannot read. Not here: the later removal of entries of expired
servers (`garbage_collector`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from restow.aio import Backoff, Runtime
from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash, version_text
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.encryption.interface import Keys
from restow.registry.encoding import Encoding
from restow.registry.resource import Resource
from restow.storage.checks import holds
from restow.storage.interface import (
    Done,
    Guard,
    Present,
    Refused,
    Revision,
    Storage,
    Transaction,
)
from restow.storageversion.changes import MirrorView
from restow.storageversion.encoding_table import EncodingTable
from restow.storageversion.errors import (
    DefinitionMoved,
    KeyUnsupported,
    MembershipLost,
    NotSettled,
    VersionUnsupported,
)
from restow.storageversion.identity import server_key
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.participants import Participants
from restow.storageversion.raw_scan import PLACES_MAX, UNREADABLE, Scan, Unopened, scan
from restow.storageversion.records import name_of
from restow.storageversion.registration_planner import Planned, RegistrationPlanner
from restow.storageversion.rules import UNFENCED, UNKNOWN_HASH, undecodable

ATTEMPTS_MAX: Final = 100
CATCH_UP_SECONDS: Final = 2.0
BACKOFF: Final = Backoff(initial_seconds=0.002, factor=1.6, max_seconds=0.25, jitter=1.0)

logger = logging.getLogger(__name__)


class Registrar:
    """Registers the resources of one server."""

    def __init__(
        self,
        storage: Storage,
        mirror: Mirror,
        membership: Membership,
        *,
        planner: RegistrationPlanner,
        table: EncodingTable,
        runtime: Runtime,
        opened: EventChannel[[Resource, Revision]],
        keys: Keys | None = None,
    ) -> None:
        """`opened` is emitted for each resource that was opened for writing, with the revision of
        its registration."""
        self._storage = storage
        self._mirror = mirror
        self._participants = Participants(mirror)
        self._membership = membership
        self._planner = planner
        self._table = table
        self._runtime = runtime
        self._keys = keys
        self._scanned: dict[str, tuple[str, str, str]] = {}
        """By root: the server id, the unreported server and the CRD uid at the last scan of the raw
        values. While this server is a member, others store only values that it can read, unless
        they do not report, or the CRD is recreated."""
        self._opened = opened
        self.conflicts = 0

    async def register(
        self, resource: Resource, *, opened: Callable[[], None] = lambda: None
    ) -> None:
        """Report how this server writes a resource, then open it for writing.

        `opened` is called in the same step. Raises `VersionUnsupported`, `MembershipLost`,
        `NotSettled`, `DefinitionMoved` or a StorageError; the resource is unchanged then.
        """
        name = name_of(resource.kind.group_resource)
        for failures in range(ATTEMPTS_MAX):
            view = MirrorView.of(self._mirror, name)
            await self._check_readable(resource, view)
            planned = self._planner.registration(resource, view)
            _check_store(resource, planned)
            self._check_understood(resource, planned)
            # KEP-2339 3.9: the entry is stored before the server writes
            outcome = await self._storage.commit(self._first_step(resource, planned))
            if isinstance(outcome, Done):
                # KEP-2339 3.24: a server that crashes before this line has written nothing
                revision = await self._last_step(resource, planned, outcome.revision)
                # KEP-2339 3.23: only now writes of the resource are accepted
                # KEP-1201 0.12: only now writes of the resource are accepted
                self._table.open(resource, planned.encoding)
                self._table.note_report(resource, revision)
                opened()
                self._opened.emit(resource, revision)
                return
            await self._catch_up(outcome.revision if isinstance(outcome, Refused) else None)
            if isinstance(outcome, Refused) and outcome.guard == Present(
                server_key(self._membership.id)
            ):
                raise MembershipLost(f"the membership record of {self._membership.id} was removed")
            if isinstance(outcome, Refused) and _is_of_definition(outcome.guard, resource):
                raise DefinitionMoved(f"the CRD of {name} has changed meanwhile")
            self.conflicts += 1
            clock = self._runtime.clock
            await clock.sleep(BACKOFF.delay_seconds(failures, self._runtime.randomness))
        raise NotSettled(f"registration of {name} met {ATTEMPTS_MAX} concurrent changes: try again")

    def would_change_keys(self, resource: Resource) -> bool:
        """Return whether this server would use other encryption keys than it has reported. Raises
        the same errors as `register`."""
        view = MirrorView.of(self._mirror, name_of(resource.kind.group_resource))
        own = [e for e in view.report.entries if e.server_id == self._membership.id]
        use = self._planner.key_use(resource, view.report.entries)
        preferred = None if use.preferred == use.key_id else use.preferred
        use_now = (use.key_id, use.readable, preferred)
        return any((e.key_id, e.readable_keys, e.preferred_key) != use_now for e in own)

    # Steps that a server with its own store overrides (`remote_registration`).

    def _first_step(self, _resource: Resource, planned: Planned) -> Transaction:
        """Return the first transaction to commit: here, the complete registration."""
        return planned.change.transaction

    async def _last_step(
        self, _resource: Resource, _planned: Planned, revision: Revision
    ) -> Revision:
        """Return the revision of the registration, after the steps that precede the opening."""
        return revision

    async def settled(self, resource: Resource) -> None:
        """Wait until no registration of a resource is in progress."""

    def is_waiting_for_key(self, resource: Resource) -> bool:
        """Return whether this server has reported that it waits for its preferred key."""
        report = MirrorView.of(self._mirror, name_of(resource.kind.group_resource)).report
        own = [e for e in report.entries if e.server_id == self._membership.id]
        return any(e.preferred_key is not None for e in own)

    async def check_keys(self, resource: Resource, keys: Keys, *, is_recorded: bool = True) -> None:
        """Raise `KeyUnsupported` when a resource may be stored under other keys than these."""
        readable = keys.readable(resource.kind.group_resource)
        view = MirrorView.of(self._mirror, name_of(resource.kind.group_resource))
        if is_recorded and view.state is not None and UNKNOWN_HASH not in view.persisted:
            _check_listed(resource, view.state.state.keys, readable)
        else:
            recorded = () if view.state is None else view.state.state.keys
            found = await scan(self._storage, resource.root, keys, readable, recorded=recorded)
            _check_opened(resource, found)

    async def still_holds(self, encoding: Encoding) -> bool:
        """Return whether the guards of an encoding hold now."""
        for guard in encoding.guards:
            if not holds(guard, await self._storage.get(guard.key)):
                return False
        return True

    async def _catch_up(self, revision: Revision | None) -> None:
        if revision is None:
            revision = await self._storage.revision()
        await self._mirror.reach(revision, seconds=CATCH_UP_SECONDS)

    def _check_understood(self, resource: Resource, planned: Planned) -> None:
        """Raise `VersionUnsupported` when running servers could not read each other's writes."""
        own, version = self._membership.id, planned.encoding.api_version
        readable = {*resource.decodable, version}
        keys = self._readable_keys(resource)
        for entry in planned.change.after.entries:
            if entry.server_id == own:
                continue
            # KEP-1201 0.16: all running servers support what is written
            if version not in entry.decodable_versions:
                raise VersionUnsupported(
                    f"{entry.server_id} cannot read {version}, in which this server would write"
                    f" {resource.kind.group_resource}: go up or down by one release at a time"
                )
            if foreign := [version for version in entry.written if version not in readable]:
                raise VersionUnsupported(
                    f"{entry.server_id} writes {resource.kind.group_resource} in"
                    f" {', '.join(foreign)}, which this server cannot read: go up or down by"
                    " one release at a time"
                )
            if entry.location not in ("", resource.location):
                raise VersionUnsupported(
                    f"{entry.server_id} stores {resource.kind.group_resource} at {entry.location},"
                    f" this server at {resource.location}: neither finds the objects of the other."
                    " Run releases in which the resource has the same scope"
                )
            if not is_readable(entry.key_id, keys):
                raise KeyUnsupported(
                    f"{entry.server_id} writes {resource.kind.group_resource} with encryption key"
                    f" {entry.key_id or IDENTITY}, which this server cannot read: give it that key"
                )

    async def _check_readable(self, resource: Resource, view: MirrorView) -> None:
        """Raise `VersionUnsupported` when a value may be stored that this server cannot read.

        A custom resource whose CRD is being deleted is closed whatever is stored, because no server
        writes it.
        """
        if resource.origin is not None and resource.origin.is_closing:
            return
        kind = resource.kind.store.kind
        versions = (*resource.decodable, resource.storage_api_version)
        readable = {
            storage_version_hash(GroupVersionKind.of(version, kind)) for version in versions
        }
        persisted = self._persisted(view)
        foreign = undecodable(persisted, readable)
        listed = (IDENTITY,) if view.state is None else view.state.state.keys
        keys = self._readable_keys(resource)
        foreign_keys = [key_id for key_id in listed if not is_readable(key_id, keys)]
        # A CRD that was recreated under the same name may have other versions: objects of the old
        # CRD were deleted with it, or the scan finds them.
        is_listed = UNKNOWN_HASH not in persisted and not (foreign and resource.origin is not None)
        # KEP-1201 0.28: a server that cannot read the stored data does not start to write
        # KEP-2343 4.7: a server refuses persisted versions that it does not support
        if is_listed and foreign:
            raise VersionUnsupported(
                f"{resource.kind.group_resource} may be stored in versions that this server cannot"
                f" read: {', '.join(map(version_text, foreign))}."
                " Let a release that knows them migrate it"
            )
        if is_listed:
            _check_listed(resource, listed, keys)
        is_placed = view.epoch is not None and view.epoch.location == resource.location
        if is_listed and is_placed:
            return
        # No server adds values that were stored before the persisted versions were recorded, so one
        # scan is enough for them; listed versions and another scope can still be written.
        scanned_for = (
            self._membership.id,
            view.unreported,
            "" if resource.origin is None else resource.origin.uid,
        )
        was_scanned = self._scanned.get(resource.root) == scanned_for
        if foreign or foreign_keys or not is_placed or not was_scanned:
            self._check_writers(resource, view)
            await self._check_stored(resource, listed)
            self._scanned[resource.root] = scanned_for

    def _persisted(self, view: MirrorView) -> tuple[str, ...]:
        """Return the persisted hashes, with "Unknown" while a server writes without a fence,
        whether or not the state lists it already."""
        obstacle = self._participants.obstacle(view.report.entries)
        is_unfenced = obstacle is not None and obstacle.reason == UNFENCED
        return (UNKNOWN_HASH, *view.persisted) if is_unfenced else view.persisted

    def _readable_keys(self, resource: Resource) -> tuple[str, ...]:
        if self._keys is None or resource.kind.pinned:
            return (IDENTITY,)
        return self._keys.readable(resource.kind.group_resource)

    def _check_writers(self, resource: Resource, view: MirrorView) -> None:
        """Raise `VersionUnsupported` while a server writes a version that this one cannot read:
        then a scan proves nothing."""
        readable = {*resource.decodable, resource.storage_api_version}
        written = {v for entry in view.report.entries for v in entry.written} - readable
        if written:
            raise VersionUnsupported(
                f"{resource.kind.group_resource} is written in versions that this server cannot"
                f" read ({', '.join(sorted(written))}): go up or down by one release at a time"
            )

    async def _check_stored(self, resource: Resource, listed: tuple[str, ...]) -> None:
        """Scan the stored values, because the record of them is incomplete. `listed`: the recorded
        keys."""
        scanned = await scan(
            self._storage,
            resource.root,
            self._keys,
            self._readable_keys(resource),
            has_key=resource.has_key,
            recorded=listed,
        )
        _check_placed(resource, scanned)
        _check_opened(resource, scanned)
        found = scanned.versions
        known = {*resource.decodable, resource.storage_api_version, UNREADABLE}
        foreign = {version: count for version, count in found.items() if version not in known}
        if foreign:
            raise VersionUnsupported(
                f"{resource.kind.group_resource} is stored in versions that this server cannot"
                f" read ({_counted(foreign, 'in')}): let a release that knows them migrate it"
            )
        own_kind = resource.kind.store.kind
        kinds = {kind: count for kind, count in scanned.kinds.items() if kind != own_kind}
        if kinds:
            raise VersionUnsupported(
                f"{resource.kind.group_resource} is kind {own_kind} on this server, and objects of"
                f" other kinds are stored in its place ({_counted(kinds, 'of kind')}): delete them"
                " with a release or CRD that has that kind"
            )
        if found[UNREADABLE]:
            logger.warning("%d values under %s are not objects", found[UNREADABLE], resource.root)


def _counted(found: Mapping[str, int], preposition: str) -> str:
    return ", ".join(f"{count} {preposition} {name}" for name, count in found.items())


def _check_store(resource: Resource, planned: Planned) -> None:
    """Raise `NotSettled` when servers with another store report a resource: an agreement covers one
    store only."""
    others = [entry.server_id for entry in planned.change.after.entries if entry.store]
    if others:
        raise NotSettled(
            f"{resource.kind.group_resource} is reported by servers that keep it in their own store"
            f" ({', '.join(others)}): stop them first, or do not host it here"
        )


def _check_placed(resource: Resource, found: Scan) -> None:
    """Raise `VersionUnsupported` when values are stored under keys of another scope."""
    misplaced = found.misplaced
    if misplaced.count:
        more = misplaced.count - len(misplaced.places)
        listed = ", ".join(misplaced.places) + (f" and {more} more" if more else "")
        raise VersionUnsupported(
            f"{resource.kind.group_resource} has {misplaced.count} values under keys of another"
            f" scope ({listed}; this server reads {resource.location}): delete them with a release"
            " that has that scope"
        )


def _check_listed(resource: Resource, listed: Iterable[str], readable: tuple[str, ...]) -> None:
    foreign = [key_id for key_id in listed if not is_readable(key_id, readable)]
    if foreign:
        raise KeyUnsupported(
            f"{resource.kind.group_resource} may be stored under encryption keys that this server"
            f" could not read ({', '.join(foreign)}): give it these keys, or have it migrated by"
            " servers that have them"
        )


def _check_opened(resource: Resource, found: Scan) -> None:
    """Raise `KeyUnsupported` when a key is missing or wrong; damaged values are only logged, and
    each read of one fails."""
    if found.unopened:
        listed = ", ".join(map(str, found.unopened))
        raise KeyUnsupported(
            f"{resource.kind.group_resource} has values that no key of this server opens"
            f" ({listed}), such as {_places(found.unopened)}: give it these keys"
        )
    for each in found.damaged:
        logger.warning(
            "%d values of %s are damaged: %s opens others, and not these: %s",
            each.count,
            resource.kind.group_resource,
            each.name,
            _places([each]),
        )


def _places(found: Sequence[Unopened]) -> str:
    """Return the keys of values, first the first one per encryption key."""
    places = [place for row in zip_longest(*(each.places for each in found)) for place in row]
    named = [place for place in places if place is not None][:PLACES_MAX]
    more = sum(each.count for each in found) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _is_of_definition(guard: Guard, resource: Resource) -> bool:
    return resource.origin is not None and guard.key == resource.origin.key
