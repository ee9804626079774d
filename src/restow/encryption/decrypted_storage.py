"""A storage wrapper that decrypts values on reads, so that its users see no encryption.

Writes pass through: the writer encrypts (`restow.registry.committer`), since it chooses the key. A
value that no key can decrypt is returned as it is stored, so that it is reported as damaged and not
hidden. In a watch, which must not stop, a placeholder replaces a value whose plug-in does not
respond, and makes the reader retry. Both cases are recorded, and reported when the keys change or a
plug-in responds again.

Not here: the meaning of values.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final, Self

from restow.aio.events import EventChannel
from restow.encryption.decryption import PLAIN_REFUSED, unasked
from restow.encryption.interface import Keys, NotPrepared
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.errors import CannotOpen, Unavailable
from restow.storage.interface import (
    SEALED_PREFIX,
    Batch,
    Event,
    Item,
    Key,
    Outcome,
    RangePage,
    Refused,
    Revision,
    Span,
    Storage,
    Transaction,
    Watch,
)

MEMO_ITEMS_MAX: Final = 2048
MEMO_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limits of the cache of decrypted values. A change contains the previous value of its key, which
was usually decrypted a moment ago."""
LOGGED_MAX: Final = 20
"""Limit of undecryptable values that are logged until the keys change."""
PREPARE_ATTEMPTS_MAX: Final = 3
"""Retries if a seed that was just fetched was evicted by very many others."""

logger = logging.getLogger(__name__)


class DecryptedStorage:
    """Implements `interface.Storage`."""

    def __init__(self, storage: Storage, keys: Keys) -> None:
        self.sealed = storage
        """The wrapped storage, with values as they are stored."""
        self.revision_now = storage.revision_now  # called by each read
        self.keys = keys
        self.recovered: Final = EventChannel[[frozenset[str]]]()
        """Emitted with the roots (`/registry/secrets/`) of values that were returned encrypted,
        when decrypting may succeed now: anything derived from them must be loaded again."""
        self._unopened: set[str] = set()
        self._logged = 0
        self._memo = _Memo()
        keys.changed.subscribe(self._try_again)

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        item = await self.sealed.get(key, revision=revision)
        return None if item is None else await self._open(item)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        page = await self.sealed.range(span, limit=limit, revision=revision, with_total=with_total)
        items, waiting = page.items.copy(), []
        for number, item in enumerate(items):
            try:
                items[number] = self._open_now(item)
            except NotPrepared:
                waiting.append(number)
        if waiting:
            await self.keys.prepare([items[number].value for number in waiting])
            for number in waiting:
                items[number] = await self._open(items[number])
        return page._replace(items=items)

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self.sealed.count(span, revision=revision)

    async def revision(self) -> Revision:
        return await self.sealed.revision()

    async def commit(self, transaction: Transaction) -> Outcome:
        outcome = await self.sealed.commit(transaction)
        if type(outcome) is not Refused or outcome.current is None:
            return outcome
        try:
            current = await self._open(outcome.current)
        except Unavailable:
            # The transaction was refused: an error now must not make its outcome look unknown.
            current = self._postpone(outcome.current)
        return Refused(outcome.guard, current, outcome.revision)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return DecryptedWatch(self, self.sealed.watch(span, after=after))

    async def compact(self, revision: Revision) -> None:
        await self.sealed.compact(revision)

    async def close(self) -> None:
        self.keys.changed.unsubscribe(self._try_again)
        await self.sealed.close()

    async def open_batch(self, batch: Batch) -> Batch:
        """Decrypt a batch of a watch. Never raises because of a key or a plug-in."""
        try:
            return self._open_batch(batch)
        except NotPrepared:
            pass
        try:
            await self.keys.prepare(_values_of(batch))
        except Unavailable as error:
            logger.warning("changes cannot be decrypted for now: %s", error)
        return self._open_batch(batch, is_patient=False)

    def _open_batch(self, batch: Batch, *, is_patient: bool = True) -> Batch:
        return batch._replace(
            events=tuple(self._open_event(event, is_patient=is_patient) for event in batch.events)
        )

    def _open_event(self, event: Event, *, is_patient: bool) -> Event:
        key, value, previous = event.key, event.value, event.previous
        if previous is not None:
            previous = self._open_or_pass_on(previous, is_patient=is_patient)
        if value is not None:
            item = Item(key, value, event.revision, event.created)
            value = self._open_or_pass_on(item, is_patient=is_patient).value
        if value is event.value and previous is event.previous:
            return event
        return Event(key, value, event.revision, event.created, previous)

    def _open_or_pass_on(self, item: Item, *, is_patient: bool) -> Item:
        try:
            return self._open_now(item, remember=True)
        except NotPrepared:
            if is_patient:
                raise
            return self._postpone(item)

    async def _open(self, item: Item) -> Item:
        """Decrypt an item. Raises `Unavailable` when a plug-in does not respond."""
        for _ in range(PREPARE_ATTEMPTS_MAX):
            try:
                return self._open_now(item)
            except NotPrepared:
                await self.keys.prepare([item.value])
        return self._open_or_pass_on(item, is_patient=False)

    def _open_now(self, item: Item, *, remember: bool = False) -> Item:
        """Decrypt without a plug-in. Raises `NotPrepared`. An undecryptable item is not changed."""
        key, value = item.key, item.value
        is_sealed = value.startswith(SEALED_PREFIX)
        if is_sealed:
            known = self._memo.get(key, item.revision)
            if known is not None:
                return item._replace(value=known)
        try:
            opened = self.keys.open(key, value).value
        except CannotOpen as error:
            return self._pass_on(item, str(error))
        if not is_sealed:
            return item
        if remember:
            self._memo.put(key, item.revision, opened)
        return item._replace(value=opened)

    def _pass_on(self, item: Item, why: str) -> Item:
        """Return the item as it is stored; a rejected plain value is replaced by a marker."""
        if self._logged < LOGGED_MAX:
            self._logged += 1
            logger.warning("%s cannot be decrypted: %s", item.key, why)
        root = resource_of(item.key)
        if root is not None:
            self._unopened.add(f"{OBJECTS_PREFIX}{root}/")
        return item if item.value.startswith(SEALED_PREFIX) else item._replace(value=PLAIN_REFUSED)

    def _postpone(self, item: Item) -> Item:
        """Return the placeholder of an item whose plug-in does not respond."""
        sealed = self._pass_on(item, "its plug-in does not respond")
        return sealed._replace(value=unasked(sealed.value))

    def _try_again(self) -> None:
        """Handle changed keys or plug-ins: values returned encrypted may be readable now."""
        self._logged = 0
        if not self._unopened:
            return
        roots, self._unopened = frozenset(self._unopened), set()
        self.recovered.emit(roots)


class DecryptedWatch:
    """Implements `interface.Watch`."""

    def __init__(self, storage: DecryptedStorage, watch: Watch) -> None:
        self._storage = storage
        self._watch = watch
        self._batch: Batch | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._batch is None:
            # Kept until it is decrypted: a cancelled reader must not lose it.
            self._batch = await self._watch.__anext__()
        opened = await self._storage.open_batch(self._batch) if self._batch.events else self._batch
        self._batch = None
        return opened

    def expect(self, revision: Revision) -> None:
        self._watch.expect(revision)

    async def close(self) -> None:
        await self._watch.close()


class _Memo:
    """A cache of recently decrypted values, by key and revision."""

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[Key, Revision], bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key, revision: Revision) -> bytes | None:
        return self._values.get((key, revision))

    def put(self, key: Key, revision: Revision, value: bytes) -> None:
        if (key, revision) in self._values:
            return
        self._values[key, revision] = value
        self._bytes += len(value)
        while len(self._values) > MEMO_ITEMS_MAX or self._bytes > MEMO_BYTES_MAX:
            _, dropped = self._values.popitem(last=False)
            self._bytes -= len(dropped)


def _values_of(batch: Batch) -> list[bytes]:
    found = []
    for event in batch.events:
        if event.value is not None:
            found.append(event.value)
        if event.previous is not None:
            found.append(event.previous.value)
    return found
