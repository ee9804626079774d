"""A server's scan of raw values: which exist, where, in which version, under which key.

This scan, and not the StorageStates, shows whether a release can read every value: the states are
an index, and a scan that finds a version or a key which the index does not list contradicts it.

All pages of a scan read one revision, which the client passes from page to page. Each value is
decoded as for serving, so that a value counted as decodable can be read; encrypted values are
decrypted with this server's keys. The scan shares the event loop with requests: it works in slices
and, while there are requests, pauses for as long as it has worked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from restow.aio import Clock
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY
from restow.apis.storage_scan import (
    EXAMPLES_MAX,
    Contradiction,
    Problem,
    ScannedDefinition,
    ScannedServer,
    StorageScanStatus,
    StoredCount,
)
from restow.census.counter import Counter, ValueGroup, ValueLocation
from restow.census.resource_names import name_of
from restow.census.values import UNREADABLE, UNREADABLE_SEAL, Stored, read_value
from restow.encryption.decryption import open_value
from restow.encryption.interface import Keys
from restow.registry.stored_bytes import load
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import CannotOpen, Compacted, StoreDamaged
from restow.storage.interface import SEALED_PREFIX, Item, Key, Revision, Span, Storage
from restow.storage.pages import items_below
from restow.storageversion.foreground_load import ForegroundLoad
from restow.storageversion.identity import SERVERS_PREFIX, ServerId, decode_record, server_of
from restow.storageversion.object_codec import (
    LEASES_PREFIX,
    STATES_PREFIX,
    decode_state,
    encryption_problem,
    is_foreign_lease,
    root_of,
)
from restow.storageversion.read_bound import ReadBound
from restow.storageversion.rules import UNKNOWN_HASH, PersistedVersions

PAGE_SECONDS_MAX: Final = 1.0
"""A page ends after this time, so that a client sees progress."""
LIMIT_DEFAULT: Final = 50_000
READ_ITEMS_FIRST: Final = 500
READ_ITEMS_MAX: Final = 4_000
READ_BYTES: Final = 4 * 1024 * 1024
"""Approximate size of one read."""
FOREGROUND_ITEMS: Final = 300
"""Maximum of values per read while there are requests: a read occupies the event loop, too."""
SLICE_BYTES: Final = 256 * 1024
SLICE_VALUES: Final = 100
"""Values between two pauses: about a millisecond."""
PROTOBUF_WEIGHT: Final = 32
"""How much longer a byte of a protobuf value takes to decode than one of JSON."""
READABLE_FORMS: Final = frozenset({"json", "protobuf"})
"""Encodings that servers can read; others, such as YAML, are not decodable."""
REST_SECONDS_MAX: Final = 0.05
READ_REST_FACTOR: Final = 3
"""Ratio of the pause after a read to the read's duration, while there are requests."""
FIRST_SECONDS: Final = 60.0
"""Delay between the start of a server and its first background scan."""
NOT_LEADING_SECONDS: Final = 60.0
BACKGROUND_LIMIT: Final = 1_000
BACKGROUND_PAUSE_SECONDS: Final = 0.1

_CRDS_PREFIX: Final = root_of("apiextensions.k8s.io", "CustomResourceDefinition")


class ScannedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a page, and where the next one begins."""

    revision: Revision
    next_key: str | None
    """None: this was the last page."""
    status: StorageScanStatus


class StoreScanner:
    """Scans one store beneath any encryption."""

    def __init__(
        self,
        storage: Storage,
        keys: Keys | None,
        clock: Clock,
        foreground: ForegroundLoad,
        *,
        correct: Callable[[Sequence[Contradiction]], Awaitable[None]] | None = None,
    ) -> None:
        """`correct` is called with the states that the scan contradicts."""
        self._storage = storage
        self._keys = keys
        self._clock = clock
        self._correct = correct
        self.foreground = foreground
        self.running = 0
        """Number of page scans in progress."""

    async def page(
        self,
        prefix: str = OBJECTS_PREFIX,
        *,
        start: str = "",
        revision: Revision | None = None,
        limit: int = LIMIT_DEFAULT,
    ) -> ScannedPage:
        """Scan from `start`. Raises `Compacted` when the revision is compacted: start a new scan
        then."""
        self.running += 1
        try:
            return await self._page(Span.of_prefix(prefix), start, revision, limit)
        finally:
            self.running -= 1

    async def _page(
        self, span: Span, start: str, revision: Revision | None, limit: int
    ) -> ScannedPage:
        total = None
        if revision is None:
            revision = await self._storage.revision()
            total = await self._storage.count(span, revision=revision)
        counter = Counter(OBJECTS_PREFIX, samples_max=EXAMPLES_MAX)
        bound = ReadBound(span, start)
        scanned, next_key = await self._count(counter, bound, revision=revision, limit=limit)
        contradictions = await self._contradictions(counter, revision)
        if contradictions and self._correct is not None:
            await self._correct(contradictions)
        status = StorageScanStatus(
            resource_version=str(revision),
            scanned=scanned,
            total=total,
            counts=[
                _count(place, group, takes_plain=self._takes_plain(group))
                for place, group in counter.groups.items()
            ],
            contradictions=contradictions,
            servers=await self._servers(),
            unfenced_servers=await self._unfenced(),
            definitions=[] if total is None else await self._definitions(revision),
        )
        return ScannedPage(revision=revision, next_key=next_key, status=status)

    async def _count(
        self, counter: Counter, bound: ReadBound, *, revision: Revision, limit: int
    ) -> tuple[int, str | None]:
        """Count values; return their number, and the key at which to continue."""
        monotonic, scanned, items_next = self._clock.monotonic, 0, READ_ITEMS_FIRST
        until = monotonic() + PAGE_SECONDS_MAX
        span = bound.first
        while True:
            wanted = min(items_next, limit - scanned)
            if not self.foreground.is_idle():
                wanted = min(wanted, FOREGROUND_ITEMS)
            began = monotonic()
            found = await self._storage.range(span, limit=wanted, revision=revision)
            items = found.items
            # The read also delays other requests to the store.
            await self._rest(READ_REST_FACTOR * (monotonic() - began))
            await self._count_items(counter, items)
            scanned += len(items)
            if not found.more and span.end == bound.end:
                return scanned, None
            next_key = items[-1].key + "\0" if found.more else span.end
            assert next_key is not None, "only the last read has no end"
            if scanned >= limit or monotonic() > until:
                return scanned, next_key
            span = bound.following(next_key, found, wanted=wanted)
            if items:
                fitting = READ_BYTES * len(items) // max(1, sum(len(item.value) for item in items))
                items_next = max(1, min(fitting, READ_ITEMS_MAX))

    async def _count_items(self, counter: Counter, items: list[Item]) -> None:
        began, nbytes, values = self._clock.monotonic(), 0, 0
        for item in items:
            key, value, _, created = item
            if value.startswith(SEALED_PREFIX):
                stored = await self._count_sealed(counter, item)
            else:
                stored = _read_stored(value)
                counter.add_as(key, stored, created=created)
            nbytes += len(value) * (PROTOBUF_WEIGHT if stored.form == "protobuf" else 1)
            values += 1
            if nbytes > SLICE_BYTES or values >= SLICE_VALUES:
                nbytes = values = 0
                await self._rest(self._clock.monotonic() - began)
                began = self._clock.monotonic()

    async def _count_sealed(self, counter: Counter, item: Item) -> Stored:
        stored = read_value(item.value)
        try:
            opened = await open_value(self._keys, item.key, item.value)
        except CannotOpen:
            counter.add_as(item.key, stored, created=item.created)
            return stored
        # The form and version of the decrypted value, and the key that the envelope names.
        plain = _read_stored(opened.value)
        found = stored._replace(
            form=plain.form,
            api_version=plain.api_version,
            kind=plain.kind,
            is_object=plain.is_object,
        )
        counter.add_as(item.key, found, created=item.created, key_id=opened.key_id)
        return found

    def _takes_plain(self, group: ValueGroup) -> bool:
        """Return whether this server reads plaintext values at the keys of a group."""
        if self._keys is None:
            return True
        try:
            self._keys.open(Key(group.keys[0]), b"{}")
        except CannotOpen:
            return False
        return True

    async def _rest(self, worked_seconds: float) -> None:
        """Yield the event loop to requests for as long as this scan has used it."""
        if self.foreground.is_idle():
            await self._clock.sleep(0)
        else:
            await self._clock.sleep(min(worked_seconds, REST_SECONDS_MAX))

    async def _contradictions(self, counter: Counter, revision: Revision) -> list[Contradiction]:
        """Return values in versions, or under encryption keys, that their StorageState at the same
        revision does not list.

        Servers list a version and a key in the transaction that lets them write with it, so a state
        lists at any revision everything that is stored then, also in the middle of a key rotation.
        A state that is missing or lists "Unknown" makes no claim.
        """
        found: list[Contradiction] = []
        claims: dict[GroupResource, PersistedVersions | None] = {}
        for place, group in counter.groups.items():
            resource = name_of(place.root, place.stored.api_version)
            if resource is None:
                continue
            if resource not in claims:
                claims[resource] = await self._claim(resource, revision)
            claimed = claims[resource]
            if claimed is None:
                continue
            key = _unlisted_key(place, claimed)
            if key or (place.stored.api_version and _hash(place) not in claimed.persisted):
                found.append(
                    Contradiction(
                        group=resource.group,
                        resource=resource.resource,
                        api_version=place.stored.api_version,
                        encryption_key=key,
                        values=group.values,
                        examples=list(group.samples(EXAMPLES_MAX)),
                    )
                )
        return found

    async def _claim(self, resource: GroupResource, revision: Revision) -> PersistedVersions | None:
        """Return the content of a StorageState; None: it makes no claim."""
        item = await self._storage.get(Key(f"{STATES_PREFIX}{resource}"), revision=revision)
        if item is None:
            return None
        try:
            state = decode_state(item).state
        except StoreDamaged:
            return None
        return None if UNKNOWN_HASH in state.persisted else state

    async def _servers(self) -> list[ScannedServer]:
        problems = {
            item.key.removeprefix(LEASES_PREFIX): encryption_problem(item)
            async for item in items_below(self._storage, LEASES_PREFIX)
        }
        return [
            _server(item, problems.get(server_of(item.key), ""))
            async for item in items_below(self._storage, SERVERS_PREFIX)
        ]

    async def _unfenced(self) -> list[str]:
        members = {server_of(item.key) async for item in items_below(self._storage, SERVERS_PREFIX)}
        return [
            server_id
            async for item in items_below(self._storage, LEASES_PREFIX)
            if (server_id := ServerId(item.key.removeprefix(LEASES_PREFIX))) not in members
            and is_foreign_lease(item)
        ]

    async def _definitions(self, revision: Revision) -> list[ScannedDefinition]:
        return [
            ScannedDefinition(
                name=item.key.removeprefix(_CRDS_PREFIX),
                uid=_uid(item.value),
                create_revision=item.created,
            )
            async for item in items_below(self._storage, _CRDS_PREFIX, revision=revision)
        ]


class BackgroundScan:
    """Scans the whole store at an interval, on the server that collects first.

    It finds contradictions without a client's request. Pages are small, with pauses in between.
    """

    def __init__(
        self,
        scanner: StoreScanner,
        clock: Clock,
        *,
        interval_seconds: float,
        collects_first: Callable[[], bool],
    ) -> None:
        self._scanner = scanner
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._collects_first = collects_first
        self.completed_at: float | None = None
        """Time of the last completed scan of this server, in seconds since 1970."""
        self.values = 0
        """Number of values of that scan."""

    async def step(self) -> float:
        """Scan once, if this server collects first; return the seconds until the next scan."""
        if not self._collects_first():
            return min(self._interval_seconds, NOT_LEADING_SECONDS)
        try:
            self.values = await self._scan()
        except Compacted:
            return NOT_LEADING_SECONDS
        self.completed_at = self._clock.wall().timestamp()
        return self._interval_seconds

    async def _scan(self) -> int:
        revision: Revision | None = None
        start: str | None = ""
        values = 0
        while start is not None:
            page = await self._scanner.page(start=start, revision=revision, limit=BACKGROUND_LIMIT)
            values += page.status.scanned
            revision, start = page.revision, page.next_key
            await self._clock.sleep(BACKGROUND_PAUSE_SECONDS)
        return values


def _count(place: ValueLocation, group: ValueGroup, *, takes_plain: bool) -> StoredCount:
    stored = place.stored
    resource = name_of(place.root, stored.api_version)
    return StoredCount(
        prefix=f"{OBJECTS_PREFIX}{place.root}/" if place.root else OBJECTS_PREFIX,
        group="" if resource is None else resource.group,
        resource="" if resource is None else resource.resource,
        scope=place.scope,
        api_version=stored.api_version,
        kind=stored.kind,
        encoding=stored.form,
        encryption_key=_key_of(place),
        problem=_problem(place, takes_plain=takes_plain),
        values=group.values,
        first_create_revision=group.first_create_revision,
        examples=list(group.samples(EXAMPLES_MAX)),
    )


def _key_of(place: ValueLocation) -> str:
    """Return the id of the encryption key, without the fingerprint if the value was not decrypted;
    empty: not encrypted."""
    return place.key_id or ":".join(_key_parts(place))


def _unlisted_key(place: ValueLocation, claimed: PersistedVersions) -> str:
    """Return the encryption key of values if a state does not list it; empty: it does."""
    if place.stored in (UNREADABLE, UNREADABLE_SEAL):
        return ""  # Not objects, or damaged before the name of a key.
    key = _key_of(place) or IDENTITY
    # A value that was not decrypted names its key without the fingerprint.
    names = (each[: len(key) + 1] for each in claimed.keys if place.stored.form == "encrypted")
    return "" if key in claimed.keys or f"{key}:" in names else key


def _key_parts(place: ValueLocation) -> Iterator[str]:
    """Yield the parts of the key id that an undecrypted value names."""
    stored = place.stored
    if stored.form == "encrypted" or not stored.provider:
        yield stored.provider or "unknown"
        yield from filter(None, (stored.key, stored.key_id))


def _problem(place: ValueLocation, *, takes_plain: bool) -> Problem:
    stored = place.stored
    if not takes_plain and not _key_of(place):
        return "NotDecrypted"
    if stored.api_version:
        is_decodable = stored.is_object and stored.form in READABLE_FORMS
        return "" if is_decodable else "NotDecodable"
    is_sealed = stored.form == "encrypted" or not stored.provider
    return "NotDecrypted" if is_sealed and not place.key_id else "NotDecodable"


def _read_stored(value: bytes) -> Stored:
    """Return how an unencrypted value is stored, and whether a server can decode it.

    A protobuf message is decoded completely, because its framing alone does not reveal a damaged
    text, time or quantity. A message of a type that is not built in is not decodable.
    """
    stored = read_value(value)
    if stored.form != "protobuf":
        return stored
    try:
        metadata = load(value).get("metadata")
    except (StoreDamaged, InvalidName):
        metadata = None
    return stored if type(metadata) is dict else stored._replace(is_object=False)


def _hash(place: ValueLocation) -> str:
    try:
        return storage_version_hash(
            GroupVersionKind.of(place.stored.api_version, place.stored.kind)
        )
    except InvalidName:
        return ""


class _Metadata(msgspec.Struct):
    uid: str = ""


class _WithMetadata(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _uid(value: bytes) -> str:
    try:
        return msgspec.json.decode(value, type=_WithMetadata).metadata.uid
    except msgspec.MsgspecError:
        return ""


def _server(item: Item, problem: str) -> ScannedServer:
    record = decode_record(item.value)
    server_id = server_of(item.key)
    if record is None:
        return ScannedServer(id=server_id, encryption_problem=problem)
    return ScannedServer(
        id=server_id, mode=record.mode, address=record.address, encryption_problem=problem
    )
