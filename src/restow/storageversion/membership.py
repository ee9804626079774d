"""This server's membership: its key, kept alive; and the lease in which clients see it.

    join  -> the key is made, once, under an id that nobody had before
    renew -> the key is touched, on condition that nobody has touched or removed it
    leave -> the key is removed

A key that is gone never comes back: whoever finds its own gone is no member any more, and joins
anew under another id. Not here: who judges that another server is dead (`garbage_collector`).
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
    """Who this server is, and how it shows that it lives."""

    host: str
    release: str = ""
    """The catalogue that it hosts, for people to see."""
    component: str = COMPONENT
    mode: Mode = "report"
    lease_seconds: float = 15.0
    renew_seconds: float = 5.0
    has_lease: bool = True
    """Whether clients see it as a Lease."""
    notes: Callable[[], Mapping[str, str]] = dict
    """Gives further annotations of the lease; called at each renewal."""


class Membership:
    """One server's place among the servers of its cluster."""

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
        """The id of this life; a new one after each join."""
        return self._id

    @property
    def record(self) -> ServerRecord | None:
        """What the key says of this server; None: it has never joined."""
        return self._record

    @property
    def is_member(self) -> bool:
        """Whether this server has a key, as far as it knows."""
        return self._revision is not None

    @property
    def revision(self) -> Revision | None:
        """When the key was last written, as far as this server knows."""
        return self._revision

    @property
    def renewed_at(self) -> float:
        """The monotonic moment at which the last renewal began."""
        return self._renewed_at

    @property
    def age_seconds(self) -> float:
        """How long ago that was."""
        return self._clock.monotonic() - self._renewed_at

    async def join(self, *, address: str = "", changes_modes: bool = False) -> None:
        """Become a member under a new id, reachable at `address`; `changes_modes`: unlike the
        others.

        Each try has an id of its own. One whose answer was lost may still happen, and must not
        bring back a key that others have seen, and have seen gone.
        """
        self._address = address
        for _ in range(JOIN_ATTEMPTS_MAX):
            self._begin_life()
            await self._touch(
                Absent(server_key(self._id)), self._marks(changes_modes=changes_modes)
            )
            if self.is_member:
                logger.info("joined as %s", self._id)
                return
        raise Unavailable("the store does not say whether this server has joined")

    def _marks(self, *, changes_modes: bool) -> tuple[Write, ...]:
        """What is recorded durably with the join, before the first write."""
        keys = [MODES_KEY] if changes_modes else []
        if self.options.mode == "off":
            keys.append(UNREPORTED_KEY)
        return tuple(Put(key, self._id.encode()) for key in keys)

    def _begin_life(self) -> None:
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
        """Show that this server lives. False: its key is gone, and it is no member any more."""
        assert self._record is not None
        if settled is not None:
            self._record = msgspec.structs.replace(self._record, settled=settled)
        life = self._id
        for _ in range(RENEW_ATTEMPTS_MAX):
            if self._revision is None:
                return False
            if await self._touch(RevisionIs(server_key(life), self._revision)):
                return True
            if self._id != life:
                return self.is_member  # it has joined anew meanwhile
        raise Unavailable("the store does not say whether this server is still a member")

    async def check(self) -> bool:
        """Ask the store whether this server is still a member."""
        life = self._id
        self._adopt(await self._storage.get(server_key(life)), life)
        return self.is_member

    def forget(self) -> None:
        """Be no member any more, without a word to the store: it is another one now."""
        self._revision = None

    async def leave(self) -> Revision | None:
        """Remove the key and the lease, at a clean stop; the revision that did it, if one did."""
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
        """Write the key; whether that has worked. What is known of it is up to date afterwards."""
        assert self._record is not None
        life, began_at = self._id, self._clock.monotonic()
        self._record = msgspec.structs.replace(self._record, beat=self._record.beat + 1)
        writes: list[Write] = [Put(server_key(self._id), encode_record(self._record)), *extra]
        if self.options.has_lease:
            writes.append(Put(lease_key(self._id), self._lease()))
        outcome = await self._storage.commit(Transaction((guard,), tuple(writes)))
        match outcome:
            case Done(revision) if self._id == life:
                self._revision, self._renewed_at = revision, began_at
                return True
            case Refused(current=item):
                self._adopt(item, life)
            case Unknown():
                await self._read(life)
        return False

    async def _read(self, life: ServerId) -> None:
        try:
            self._adopt(await self._storage.get(server_key(life)), life)
        except StorageError as error:
            logger.warning("the key of this server cannot be read: %s", error)

    def _adopt(self, item: Item | None, life: ServerId) -> None:
        """Take what is there for true: an earlier write of ours, or nothing. What was asked of an
        earlier life says nothing of this one."""
        if life == self._id:
            self._revision = item.revision if item is not None and self._is_own(item) else None

    def _is_own(self, item: Item) -> bool:
        assert self._record is not None
        record = decode_record(item.value)
        return record is not None and record.incarnation == self._record.incarnation

    def _lease(self) -> bytes:
        assert self._record is not None
        annotations = {**self.options.notes(), **self._lease_metadata["annotations"]}
        return encode_lease(
            self._id,
            metadata={**self._lease_metadata, "annotations": annotations},
            holder=self._record.incarnation,
            seconds=self.options.lease_seconds,
            now=self._clock.wall(),
        )


def _annotations(options: MembershipOptions, address: str) -> dict[str, str]:
    """What the lease tells of a server; nothing is decided by it."""
    told = {ADDRESS_ANNOTATION: address, RELEASE_ANNOTATION: options.release}
    return {
        MEMBER_ANNOTATION: options.mode,
        **{name: value for name, value in told.items() if value},
    }
