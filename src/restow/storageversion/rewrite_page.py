"""One page of a rewrite: what it has come to, where its values come from, and who works it off."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from restow.aio import Clock, foremost, in_task
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.encryption.decryption import PLAIN_REFUSED, open_value
from restow.registry.committer import Sealed
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.storage.errors import CannotOpen, StoreDamaged
from restow.storage.interface import SEALED_PREFIX, Item, Key, Refused, Span, Storage, Unknown
from restow.storage.interface import RangePage as StoredPage
from restow.storageversion.rewrite_plan import Aborted, RewritePlan, rewritten_form
from restow.storageversion.rewrite_remote import Outcome, converted_forms
from restow.storageversion.rules import Agreement

IN_FLIGHT_MAX: Final = 64
"""Commits of one page under way."""
IN_FLIGHT_FIRST: Final = 32
IN_FLIGHT_MIN: Final = 16
COMMIT_SECONDS: Final = 0.02
"""A commit that takes longer has too many beside it."""
SLOWER: Final = 0.98
FASTER: Final = 0.25
BESIDE_OTHERS_MIN: Final = 2
BESIDE_OTHERS_MAX: Final = 8
"""Commits under way while others ask this server for something."""
LATE_SECONDS: Final = 0.002
"""Whoever is woken later than this from a rest would not have been alone in waiting."""
LESS: Final = 0.9
MORE: Final = 0.05
REST_SECONDS_MAX: Final = 0.02
ATTEMPTS_MAX: Final = 8
READ_ITEMS_FIRST: Final = 64
READ_ITEMS_MAX: Final = 256
"""Reading keeps the loop as well."""
READ_BYTES: Final = 2 * 1024 * 1024
"""About how much is read at once."""
REASON_CHARACTERS_MAX: Final = 256


class RewriteFailure(NamedTuple):
    """An object that could not be rewritten."""

    key: Key
    reason: str


@dataclass(slots=True, kw_only=True)
class RewrittenPage:
    """What has come of one page."""

    epoch: int
    report_uid: str
    store_id: str = ""
    """The identity of the store that it was read from; empty: it has none."""
    revision: int = 0
    """That of the first values; none was read at an older one."""
    next_key: str | None = None
    """Where to go on; None at the end."""
    scanned: int = 0
    rewritten: int = 0
    skipped: int = 0
    """Found in the target version, under the target key."""
    settled: int = 0
    """Changed by someone else meanwhile, and found in the target version then, or gone."""
    failed: list[RewriteFailure] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every value was found in the target version, under the target key."""
        return not self.rewritten and not self.failed


class StoredValue(NamedTuple):
    """A value, and the encryption key that it is stored under."""

    item: Item
    """Opened. One that cannot be opened is as it is stored, which is no object; a plain one that
    this server does not take is made no object, or whoever planted it would have it sealed."""
    key_id: str


class Values:
    """The values of the store as they are now, opened."""

    def __init__(self, storage: Storage, sealed: Sealed | None) -> None:
        self._storage = storage if sealed is None else sealed.storage
        self._keys = None if sealed is None else sealed.keys

    async def range(self, span: Span, *, limit: int) -> tuple[StoredPage, list[StoredValue]]:
        page = await self._storage.range(span, limit=limit)
        return page, [await self._open(item) for item in page.items]

    async def get(self, key: Key) -> StoredValue | None:
        item = await self._storage.get(key)
        return None if item is None else await self._open(item)

    async def _open(self, item: Item) -> StoredValue:
        try:
            value, key_id = await open_value(self._keys, item.key, item.value)
        except CannotOpen:  # whoever works it off says so
            is_plain = not item.value.startswith(SEALED_PREFIX)
            return StoredValue(item._replace(value=PLAIN_REFUSED) if is_plain else item, "")
        return StoredValue(item if value is item.value else item._replace(value=value), key_id)


class PageSource:
    """The raw values of a page, in order of key; many may ask for the next."""

    def __init__(
        self,
        values: Values,
        span: Span,
        page: RewrittenPage,
        *,
        limit: int,
        bytes_max: int,
        confirm: Callable[[], Awaitable[None]],
        is_late: Callable[[], bool],
    ) -> None:
        self._values = values
        self._span = span
        self._page = page
        self._items_left = limit
        self._bytes_left = bytes_max
        self._confirm = confirm
        self._is_late = is_late
        self._read: deque[StoredValue] = deque()
        self._next_items = READ_ITEMS_FIRST
        self._is_over = False
        self._reading = asyncio.Lock()
        self.prepare: Callable[[Sequence[Item]], Awaitable[None]] | None = None
        """Called with all values that were read together, before the first of them is given."""

    async def next(self) -> StoredValue | None:
        """None when the page is over."""
        while not self._read:
            async with self._reading:
                if self._read:
                    continue  # somebody else has read on meanwhile
                if self._is_over:
                    return None
                await self._read_on()
        if self._page.scanned and self._is_late():
            # Whoever goes on begins with the first that nobody has taken.
            self._page.next_key, self._is_over = self._read[0].item.key, True
            self._read.clear()
            return None
        self._page.scanned += 1
        return self._read.popleft()

    async def _read_on(self) -> None:
        if self._page.revision:
            await self._confirm()
        limit = min(self._next_items, self._items_left)
        found, opened = await self._values.range(self._span, limit=limit)
        page, items = self._page, found.items
        if not page.revision:
            page.revision = found.revision
        if self.prepare is not None:
            await self.prepare([each.item for each in opened])
        self._read.extend(opened)
        if not found.more:
            self._is_over, page.next_key = True, None
            return
        page.next_key = items[-1].key + "\0"
        self._span = self._span.starting_at(page.next_key)
        nbytes = sum(len(item.value) for item in items)
        self._items_left -= len(items)
        self._bytes_left -= nbytes
        self._is_over = self._items_left <= 0 or self._bytes_left <= 0
        fitting = READ_BYTES * len(items) // max(nbytes, 1)
        self._next_items = max(1, min(fitting, READ_ITEMS_MAX))


class RewritePace:
    """How many commits are under way, and how long whoever makes them rests in between.

    Alone: as many as are done within a time that others may wait, should one come. While commits
    take long, be it that the store is slow or the machine busy, there are fewer of them.

    Beside others: few, and after each a rest of the same length. So others find the loop, the disk
    and the processor free as often as not, and when they are not, what they wait for is short. How
    late one is woken from its rest is how long others wait as well; then there are fewer still.
    """

    __slots__ = ("_beside_others", "_in_flight", "_is_alone")

    def __init__(self, is_alone: Callable[[], bool]) -> None:
        self._in_flight: float = IN_FLIGHT_FIRST
        self._beside_others: float = BESIDE_OTHERS_MIN
        self._is_alone = is_alone

    @property
    def in_flight(self) -> float:
        return self._in_flight if self._is_alone() else self._beside_others

    def note(self, seconds: float) -> float:
        """A commit has taken so long; how long to rest now."""
        if seconds > COMMIT_SECONDS:
            self._in_flight = max(self._in_flight * SLOWER, IN_FLIGHT_MIN)
        else:
            self._in_flight = min(self._in_flight + FASTER, IN_FLIGHT_MAX)
        return 0.0 if self._is_alone() else min(seconds, REST_SECONDS_MAX)

    def note_late(self, seconds: float) -> None:
        """Someone was woken so late from a rest."""
        if seconds > LATE_SECONDS:
            self._beside_others = max(self._beside_others * LESS, BESIDE_OTHERS_MIN)
        else:
            self._beside_others = min(self._beside_others + MORE, BESIDE_OTHERS_MAX)


class PageWork:
    """One page on its way."""

    def __init__(  # noqa: PLR0917 - one page, handed down whole
        self,
        store: ResourceStore,
        clock: Clock,
        resource: Resource,
        target: Agreement,
        values: Values,
        source: PageSource,
        page: RewrittenPage,
        is_alone: Callable[[], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._monotonic = clock.monotonic
        self._resource = resource
        self._target, self._target_key = target
        self._values = values
        self._source = source
        self._page = page
        self._serve = store.splicer(resource).serve
        self._pace = RewritePace(is_alone)
        self._workers = 0
        self._prepared: dict[tuple[Key, int], Outcome] = {}
        """By key and revision, what somebody else has converted and nobody has taken yet."""
        if resource.remote is not None:
            source.prepare = self._prepare

    async def run(self) -> None:
        """Work the page off. Raises what stops it, once nothing is under way any more."""
        await in_task()
        try:
            async with asyncio.TaskGroup() as group:
                self._add_workers(group)
        except BaseExceptionGroup as found:
            raise foremost(found, Aborted) from None

    def _add_workers(self, group: asyncio.TaskGroup) -> None:
        while self._workers < int(self._pace.in_flight):
            self._workers += 1
            group.create_task(self._work(group), name=f"rewrite {self._workers}")

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while self._workers <= self._pace.in_flight:
            found = await self._source.next()
            if found is None:
                return  # and so will the others
            try:
                await self._settle(found)
            except (StoreDamaged, MachineryError, status.RequestEntityTooLarge) as error:
                self._fail(found.item.key, str(error))
            self._add_workers(group)
        self._workers -= 1

    async def _settle(self, found: StoredValue) -> None:
        page = self._page
        plan = await self._plan(found)
        if plan is None:
            page.skipped += 1
            return
        for _ in range(ATTEMPTS_MAX):
            began_at = self._monotonic()
            stopped = await self._store.rewrite(plan)
            rest_seconds = self._pace.note(self._monotonic() - began_at)
            if stopped is None:
                page.rewritten += 1
                if rest_seconds:
                    await self._rest(rest_seconds)
                return
            # That it has changed does not say in which version: look.
            current = await self._current(plan, stopped)
            plan = None if current is None else await self._plan(current)
            if plan is None:
                page.settled += 1
                return
        self._fail(found.item.key, f"it was changed {ATTEMPTS_MAX} times while it was rewritten")

    async def _rest(self, seconds: float) -> None:
        until = self._monotonic() + seconds
        await self._clock.sleep(seconds)
        self._pace.note_late(self._monotonic() - until)

    async def _plan(self, found: StoredValue) -> RewritePlan | None:
        """How to rewrite a value; None when it is in the target version, under the target key."""
        item = found.item
        _, version, _ = self._serve(item.value, item.revision)
        if version == self._target:
            if found.key_id == self._target_key:
                return None
            value = item.value  # Only its key is another one.
        elif self._resource.remote is None:
            value = rewritten_form(self._resource, item.value, version, self._target)
        else:
            value = await self._converted(item)
        target = Agreement(self._target, self._target_key)
        return RewritePlan(self._resource, item, target, value)

    async def _prepare(self, items: Sequence[Item]) -> None:
        """Have somebody else convert the values that are about to be worked off."""
        others = [item for item in items if self._is_other(item)]
        outcomes = await converted_forms(self._resource, others, self._target)
        for item, outcome in zip(others, outcomes, strict=True):
            self._prepared[item.key, item.revision] = outcome

    def _is_other(self, item: Item) -> bool:
        try:
            return self._serve(item.value, item.revision)[1] != self._target
        except StoreDamaged:
            return False  # whoever works it off says so

    async def _converted(self, item: Item) -> bytes:
        outcome = self._prepared.pop((item.key, item.revision), None)
        if outcome is None:  # it has changed since it was read
            [outcome] = await converted_forms(self._resource, [item], self._target)
        if isinstance(outcome, bytes):
            return outcome
        raise outcome

    async def _current(self, plan: RewritePlan, stopped: Refused | Unknown) -> StoredValue | None:
        # If its outcome is unknown, and it lands yet, it lands under its guards, and the next try
        # finds it done.
        if isinstance(stopped, Unknown) or stopped.guard is plan.guard:
            return await self._values.get(plan.guard.key)
        raise Aborted(
            f"{self._resource.kind.group_resource} may not be written in {self._target} by this"
            f" server any more: {stopped.guard.key} has changed"
        )

    def _fail(self, key: Key, reason: str) -> None:
        self._page.failed.append(RewriteFailure(key, reason[:REASON_CHARACTERS_MAX]))
