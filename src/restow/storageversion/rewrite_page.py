"""One page of a rewrite: the source of its values, the concurrency of its commits, and its
result."""

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
"""Maximum number of concurrent commits of one page."""
IN_FLIGHT_FIRST: Final = 32
IN_FLIGHT_MIN: Final = 16
COMMIT_SECONDS: Final = 0.02
"""A slower commit reduces the concurrency."""
SLOWER: Final = 0.98
FASTER: Final = 0.25
FOREGROUND_COMMITS_MIN: Final = 2
FOREGROUND_COMMITS_MAX: Final = 8
"""Limits of concurrent commits while this server has other requests."""
LATE_SECONDS: Final = 0.002
"""A pause that ends later than this shows that other tasks wait for the event loop as well."""
LESS: Final = 0.9
MORE: Final = 0.05
REST_SECONDS_MAX: Final = 0.02
ATTEMPTS_MAX: Final = 8
READ_ITEMS_FIRST: Final = 64
READ_ITEMS_MAX: Final = 256
"""Maximum of values per read: reading occupies the event loop as well."""
READ_BYTES: Final = 2 * 1024 * 1024
"""Approximate size of one read."""
REASON_CHARACTERS_MAX: Final = 256


class RewriteFailure(NamedTuple):
    """An object that could not be rewritten, and why."""

    key: Key
    reason: str


@dataclass(slots=True, kw_only=True)
class RewrittenPage:
    """The result of one page."""

    epoch: int
    report_uid: str
    store_id: str = ""
    """The identity of the store that the values were read from; empty: it has none."""
    revision: int = 0
    """The revision of the first read; later reads have the same or a newer one."""
    next_key: str | None = None
    """The key at which the next page starts; None at the end."""
    scanned: int = 0
    rewritten: int = 0
    skipped: int = 0
    """Values already in the target version, under the target key."""
    settled: int = 0
    """Objects that another writer changed during the rewrite, and that were then in the target
    version or deleted."""
    failed: list[RewriteFailure] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every value was in the target version, under the target key."""
        return not self.rewritten and not self.failed


class StoredValue(NamedTuple):
    """A value, and the encryption key that it is stored under."""

    item: Item
    """The item with its value decrypted. An undecryptable value stays as it is stored, which is not
    an object. A plaintext value that this server rejects is replaced by a non-object, so that a
    rewrite never encrypts planted data."""
    key_id: str


class Values:
    """Reads current values of the store, decrypted."""

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
        except CannotOpen:  # The rewrite of the value reports the error.
            is_plain = not item.value.startswith(SEALED_PREFIX)
            return StoredValue(item._replace(value=PLAIN_REFUSED) if is_plain else item, "")
        return StoredValue(item if value is item.value else item._replace(value=value), key_id)


class PageSource:
    """Reads the raw values of a page in key order, for several concurrent workers."""

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
        """Called with all values of one read, before the first of them is returned."""

    async def next(self) -> StoredValue | None:
        """Return the next value; None when the page is complete."""
        while not self._read:
            async with self._reading:
                if self._read:
                    continue  # Another worker has read meanwhile.
                if self._is_over:
                    return None
                await self._read_on()
        if self._page.scanned and self._is_late():
            # The next page starts at the first value that no worker has taken.
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
    """The number of concurrent commits of a rewrite, and the pauses between them.

    Without other requests: as many commits as complete within `COMMIT_SECONDS`, which is an
    acceptable delay for a request that arrives. Slow commits, because of a slow store or a busy
    machine, reduce the number.

    With other requests: few commits, and after each a pause of the same length. So other requests
    find the event loop, the disk and the processor idle half of the time, and otherwise wait
    briefly. The delay with which a pause ends is also the delay of other requests; a long one
    reduces the number further.
    """

    __slots__ = ("_foreground_commits", "_idle_commits", "_is_idle")

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._idle_commits: float = IN_FLIGHT_FIRST
        self._foreground_commits: float = FOREGROUND_COMMITS_MIN
        self._is_idle = is_idle

    @property
    def in_flight(self) -> float:
        return self._idle_commits if self._is_idle() else self._foreground_commits

    def note(self, seconds: float) -> float:
        """Adapt to the duration of a commit; return how long to pause after it."""
        if seconds > COMMIT_SECONDS:
            self._idle_commits = max(self._idle_commits * SLOWER, IN_FLIGHT_MIN)
        else:
            self._idle_commits = min(self._idle_commits + FASTER, IN_FLIGHT_MAX)
        return 0.0 if self._is_idle() else min(seconds, REST_SECONDS_MAX)

    def note_late(self, seconds: float) -> None:
        """Adapt to the delay with which a pause ended."""
        if seconds > LATE_SECONDS:
            self._foreground_commits = max(self._foreground_commits * LESS, FOREGROUND_COMMITS_MIN)
        else:
            self._foreground_commits = min(self._foreground_commits + MORE, FOREGROUND_COMMITS_MAX)


class PageWork:
    """Rewrites the values of one page with concurrent workers."""

    def __init__(  # noqa: PLR0917 - one page, passed on complete
        self,
        store: ResourceStore,
        clock: Clock,
        resource: Resource,
        target: Agreement,
        values: Values,
        source: PageSource,
        page: RewrittenPage,
        is_idle: Callable[[], bool],
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
        self._pace = RewritePace(is_idle)
        self._workers = 0
        self._prepared: dict[tuple[Key, int], Outcome] = {}
        """Outcomes of remote conversions that no worker has taken yet, by key and revision."""
        if resource.remote is not None:
            source.prepare = self._prepare

    async def run(self) -> None:
        """Rewrite the page. Raises the first fatal error once no commit is in flight any more."""
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
                return  # The other workers find the end of the page too.
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
            # A failed guard does not show in which version the object is now: read it.
            current = await self._current(plan, stopped)
            plan = None if current is None else await self._plan(current)
            if plan is None:
                page.settled += 1
                return
        self._fail(found.item.key, f"it was changed {ATTEMPTS_MAX} times during the rewrite")

    async def _rest(self, seconds: float) -> None:
        until = self._monotonic() + seconds
        await self._clock.sleep(seconds)
        self._pace.note_late(self._monotonic() - until)

    async def _plan(self, found: StoredValue) -> RewritePlan | None:
        """Plan the rewrite of a value; None when it is in the target version, under the target
        key."""
        item = found.item
        _, version, _ = self._serve(item.value, item.revision)
        if version == self._target:
            if found.key_id == self._target_key:
                return None
            value = item.value  # Only its encryption key differs.
        elif self._resource.remote is None:
            value = rewritten_form(self._resource, item.value, version, self._target)
        else:
            value = await self._converted(item)
        target = Agreement(self._target, self._target_key)
        return RewritePlan(self._resource, item, target, value)

    async def _prepare(self, items: Sequence[Item]) -> None:
        """Convert values remotely in one batch, before the workers take them."""
        others = [item for item in items if self._is_other(item)]
        outcomes = await converted_forms(self._resource, others, self._target)
        for item, outcome in zip(others, outcomes, strict=True):
            self._prepared[item.key, item.revision] = outcome

    def _is_other(self, item: Item) -> bool:
        try:
            return self._serve(item.value, item.revision)[1] != self._target
        except StoreDamaged:
            return False  # The rewrite of the value reports the error.

    async def _converted(self, item: Item) -> bytes:
        outcome = self._prepared.pop((item.key, item.revision), None)
        if outcome is None:  # The object has changed since the batch was read.
            [outcome] = await converted_forms(self._resource, [item], self._target)
        if isinstance(outcome, bytes):
            return outcome
        raise outcome

    async def _current(self, plan: RewritePlan, stopped: Refused | Unknown) -> StoredValue | None:
        # A write with an unknown outcome may still commit, but only under its guards; then the
        # next attempt finds the object rewritten.
        if isinstance(stopped, Unknown) or stopped.guard is plan.guard:
            return await self._values.get(plan.guard.key)
        raise Aborted(
            f"this server may no longer write {self._resource.kind.group_resource} in"
            f" {self._target}: {stopped.guard.key} has changed"
        )

    def _fail(self, key: Key, reason: str) -> None:
        self._page.failed.append(RewriteFailure(key, reason[:REASON_CHARACTERS_MAX]))
