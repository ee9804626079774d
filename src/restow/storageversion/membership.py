"""This server's membership: the key that it renews, and the identity Lease that clients read.

    =    join  -> create the key under an id that was never used
    =    renew -> write the key, guarded by its last revision
    =    leave -> delete the key

A deleted key is never created again: a server whose key was deleted is no member, and joins again
under another id. Not here: when another server counts as expired (`garbage_collector`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from restow.aio import Runtime
from restow.apis.names import (
    ADDRESS_ANNOTATION,
    HOSTNAME_LABEL,
    IDENTITY_LABEL,
    LEASE_NAMESPACE,
    MEMBER_ANNOTATION,
    RELEASE_ANNOTATION,
)
from restow.storage.errors import StorageError, Unavailable
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Item,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Storage,
    Transaction,
    Unknown,
    Write,
)
from restow.storageversion.identity import (
    COMPONENT,
    NONCE_BYTES,
    Mode,
    ServerId,
    ServerRecord,
    decode_record,
    encode_record,
    make_server_id,
    server_key,
)
from restow.storageversion.object_codec import encode_lease, lease_key, new_metadata
from restow.storageversion.records import MODES_KEY, UNREPORTED_KEY

JOIN_ATTEMPTS_MAX: Final = 5
RENEW_ATTEMPTS_MAX: Final = 4
LEAVE_ATTEMPTS_MAX: Final = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    """A server's identity and the timing of its lease."""

    host: str
    release: str = ""
    """The catalog that it hosts; informational."""
    component: str = COMPONENT
    mode: Mode = "report"
    lease_seconds: float = 15.0
    renew_seconds: float = 5.0
    has_lease: bool = True
    """Whether the server writes an identity Lease for clients."""
    extra_annotations: Callable[[], Mapping[str, str]] = dict
    """Returns further annotations of the Lease; called at each renewal."""


class Membership:
    """One server's membership in its cluster."""

    def __init__(self, storage: Storage, runtime: Runtime, options: MembershipOptions) -> None:
        self.options: Final = options
        self._address = ""
        self._storage = storage
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._id = ServerId("")
        self._record: ServerRecord | None = None
        self._revision: Revision | None = None
        self._lease_metadata: dict[str, Any] = {}
        self._renewed_at = 0.0

    @property
    def id(self) -> ServerId:
        """The id of this incarnation; a new one after each join."""
        return self._id

    @property
    def record(self) -> ServerRecord | None:
        """The record at the key; None: this server has never joined."""
        return self._record

    @property
    def is_member(self) -> bool:
        """Whether this server has a key, according to its last read or write of it."""
        return self._revision is not None

    @property
    def revision(self) -> Revision | None:
        """The revision of the last known write of the key; None: not a member."""
        return self._revision

    @property
    def renewed_at(self) -> float:
        """The monotonic moment at which the last renewal began."""
        return self._renewed_at

    @property
    def age_seconds(self) -> float:
        """Seconds since the last renewal began."""
        return self._clock.monotonic() - self._renewed_at

    async def join(self, *, address: str = "", changes_modes: bool = False) -> None:
        """Become a member under a new id. `address` is how others reach this server;
        `changes_modes` records that its mode differs from theirs.

        Each attempt uses its own id. An attempt with an unknown outcome may still commit later, and
        must not create a key again that others have seen deleted.
        """
        self._address = address
        for _ in range(JOIN_ATTEMPTS_MAX):
            self._begin_incarnation()
            await self._touch(
                Absent(server_key(self._id)), self._marks(changes_modes=changes_modes)
            )
            if self.is_member:
                logger.info("joined as %s", self._id)
                return
        raise Unavailable("cannot tell whether this server has joined: no commit was confirmed")

    def _marks(self, *, changes_modes: bool) -> tuple[Write, ...]:
        """Return the marks that the join writes durably, before the first write of the server."""
        keys = [MODES_KEY] if changes_modes else []
        if self.options.mode == "off":
            # KEP-2339 3.62: a server that will write without reporting leaves a mark
            keys.append(UNREPORTED_KEY)
        return tuple(Put(key, self._id.encode()) for key in keys)

    def _begin_incarnation(self) -> None:
        nonce, options = self._ids.nonce(NONCE_BYTES), self.options
        self._id = make_server_id(options.host, options.component, nonce)
        self._revision = None
        self._lease_metadata = {
            **new_metadata(self._id, uid=self._ids.uid(), now=self._clock.wall()),
            "namespace": LEASE_NAMESPACE,
            "labels": {IDENTITY_LABEL: options.component, HOSTNAME_LABEL: options.host},
            "annotations": _annotations(options, self._address),
        }
        self._record = ServerRecord(
            incarnation=nonce,
            component=options.component,
            host=options.host,
            address=self._address,
            mode=options.mode,
            lease_seconds=options.lease_seconds,
        )

    async def renew(self, *, settled: bool | None = None) -> bool:
        """Renew the key. False: the key was deleted, and this server is no longer a member."""
        assert self._record is not None
        if settled is not None:
            self._record = msgspec.structs.replace(self._record, settled=settled)
        own_id = self._id
        for _ in range(RENEW_ATTEMPTS_MAX):
            if self._revision is None:
                return False
            if await self._touch(RevisionIs(server_key(own_id), self._revision)):
                return True
            if self._id != own_id:
                return self.is_member  # This server has joined again meanwhile.
        raise Unavailable("cannot tell whether this server is a member: no renewal was confirmed")

    async def check(self) -> bool:
        """Read from the store whether this server is still a member."""
        own_id = self._id
        self._adopt(await self._storage.get(server_key(own_id)), own_id)
        return self.is_member

    def forget(self) -> None:
        """End the membership without a write, after the store was replaced by another one."""
        self._revision = None

    async def leave(self) -> Revision | None:
        """Delete the key and the Lease at a clean shutdown; return the revision if that
        succeeded."""
        for _ in range(LEAVE_ATTEMPTS_MAX):
            if self._revision is None:
                break
            writes: list[Write] = [Delete(server_key(self._id))]
            if self.options.has_lease:
                writes.append(Delete(lease_key(self._id)))
            guard = RevisionIs(server_key(self._id), self._revision)
            outcome = await self._storage.commit(Transaction((guard,), tuple(writes)))
            if isinstance(outcome, Done):
                self._revision = None
                return outcome.revision
            if isinstance(outcome, Refused):
                self._adopt(outcome.current, self._id)
            else:
                await self.check()
        return None

    async def _touch(self, guard: Guard, extra: tuple[Write, ...] = ()) -> bool:
        """Write the key and return whether that succeeded. The recorded revision is current
        afterwards, unless the outcome is unknown and the key cannot be read."""
        assert self._record is not None
        own_id, began_at = self._id, self._clock.monotonic()
        self._record = msgspec.structs.replace(self._record, beat=self._record.beat + 1)
        writes: list[Write] = [Put(server_key(self._id), encode_record(self._record)), *extra]
        # KEP-2339 3.16: clients see the participating servers as identity Leases
        if self.options.has_lease:
            writes.append(Put(lease_key(self._id), self._lease()))
        outcome = await self._storage.commit(Transaction((guard,), tuple(writes)))
        match outcome:
            case Done(revision) if self._id == own_id:
                self._revision, self._renewed_at = revision, began_at
                return True
            case Refused(current=item):
                self._adopt(item, own_id)
            case Unknown():
                await self._read(own_id)
        return False

    async def _read(self, own_id: ServerId) -> None:
        try:
            self._adopt(await self._storage.get(server_key(own_id)), own_id)
        except StorageError as error:
            logger.warning("cannot read the membership record of this server: %s", error)

    def _adopt(self, item: Item | None, own_id: ServerId) -> None:
        """Adopt the stored record, which may be an earlier write of this server, or its absence.
        Ignore replies that belong to a previous incarnation."""
        if own_id == self._id:
            self._revision = item.revision if item is not None and self._is_own(item) else None

    def _is_own(self, item: Item) -> bool:
        assert self._record is not None
        record = decode_record(item.value)
        return record is not None and record.incarnation == self._record.incarnation

    def _lease(self) -> bytes:
        assert self._record is not None
        annotations = {**self.options.extra_annotations(), **self._lease_metadata["annotations"]}
        return encode_lease(
            self._id,
            metadata={**self._lease_metadata, "annotations": annotations},
            holder=self._record.incarnation,
            seconds=self.options.lease_seconds,
            now=self._clock.wall(),
        )


def _annotations(options: MembershipOptions, address: str) -> dict[str, str]:
    """Return the informational annotations of the Lease."""
    found = {ADDRESS_ANNOTATION: address, RELEASE_ANNOTATION: options.release}
    return {
        MEMBER_ANNOTATION: options.mode,
        **{name: value for name, value in found.items() if value},
    }
