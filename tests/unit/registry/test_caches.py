"""The watch caches: loads, reloads after errors, history, and unreadable objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.registry.caches import Caches
from restow.registry.stored_bytes import Splicer
from restow.registry.watch_cache import DAMAGED_LOGGED_MAX, WatchCache
from restow.storage.errors import StorageError, Unavailable
from restow.storage.interface import (
    Delete,
    Item,
    Key,
    Put,
    RangePage,
    Revision,
    Span,
    Transaction,
    Write,
)
from restow.storage.memory import MemoryStorage

ROOT = "/registry/things/"
SPLICER = Splicer("Thing", ("v1",))


def value(number: int, *, version: str = "v1") -> bytes:
    fields = {"kind": "Thing", "apiVersion": version, "metadata": {}, "number": number}
    return orjson.dumps(fields) + b"\n"


class FlakyStorage(MemoryStorage):
    """Fails a number of range reads before it works."""

    failures = 0
    ranges = 0

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        self.ranges += 1
        if self.failures:
            self.failures -= 1
            raise Unavailable("not now")
        return await super().range(span, limit=limit, revision=revision, with_total=with_total)


@pytest_asyncio.fixture
async def storage() -> AsyncIterator[FlakyStorage]:
    made = FlakyStorage()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def caches(storage: FlakyStorage) -> AsyncIterator[Caches]:
    made = Caches(storage, Runtime.system())
    await made.start()
    yield made
    await made.close()


async def run_until_blocked() -> None:
    """Run the event loop until no task is ready."""
    for _ in range(100):
        await asyncio.sleep(0)


async def write(storage: FlakyStorage, name: str, data: bytes | None) -> int:
    key = Key(ROOT + name)
    change: Write = Delete(key) if data is None else Put(key, data)
    outcome = await storage.commit(Transaction(writes=(change,)))
    return int(outcome.revision)  # type: ignore[union-attr]


def numbers(cache: WatchCache) -> dict[str, int]:
    page = cache.select()
    return {
        key: orjson.loads(entry[2])["number"]
        for key, entry in zip(page.keys, page.entries, strict=True)
    }


async def test_nothing_is_missed_when_reloading_fails(
    storage: FlakyStorage, caches: Caches
) -> None:
    """After an error of its watch, a cache is reloaded until that succeeds, and not used before."""
    await write(storage, "a", value(1))
    cache = await caches.load(ROOT, SPLICER)
    caches._watch.fail(Unavailable("lost track"))  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await write(storage, "a", value(2))
    await write(storage, "b", value(3))
    storage.failures = 2
    assert caches.fresh(ROOT) is None
    await caches.freshen()
    assert caches.fresh(ROOT) is cache
    assert numbers(cache) == {"a": 2, "b": 3}
    await write(storage, "c", value(4))
    await caches.freshen()
    assert numbers(cache) == {"a": 2, "b": 3, "c": 4}


async def test_waiting_reads_take_turns(
    storage: FlakyStorage, caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of reads that wait for one request to the store, those of servers and administrators are
    resumed first, then one of each user in turn; reads that come later do not wait until all
    earlier ones are resumed."""
    out = asyncio.Event()
    told: list[str] = []

    async def revision() -> Revision:
        await out.wait()
        return Revision(1)

    async def read(turn: str) -> None:
        await caches.freshen(turn)
        told.append(turn)
        if len(told) == 20:
            later.append(asyncio.ensure_future(read("")))

    monkeypatch.setattr(storage, "revision", revision)
    later: list[asyncio.Future[None]] = []
    async with asyncio.TaskGroup() as group:
        for turn in (*["many"] * 300, "one", "other", ""):
            group.create_task(read(turn))
        await run_until_blocked()
        out.set()
    await asyncio.gather(*later)
    assert told[0] == ""
    assert sorted(told[1:4]) == ["many", "one", "other"]
    assert told.index("", 1) < 250
    assert len(told) == 304


async def test_waiting_reads_share_questions(
    storage: FlakyStorage, caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request serves all waiting reads, even if some fail or were cancelled; later reads need
    the next one; an error of the store is raised; no read waits at the end."""
    asked = 0
    out = asyncio.Event()

    async def revision() -> Revision:
        nonlocal asked
        asked += 1
        await out.wait()
        if asked == 3:
            raise Unavailable("away")
        return Revision(1)

    monkeypatch.setattr(storage, "revision", revision)
    told: list[str] = []

    async def read(name: str) -> None:
        try:
            await caches.freshen()
            told.append(name)
        except StorageError as error:
            told.append(f"{name}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(250):
            group.create_task(read("first"))
        left = asyncio.ensure_future(caches.freshen())
        await run_until_blocked()
        left.cancel()
        group.create_task(read("second"))
        await run_until_blocked()
        out.set()
        await run_until_blocked()
        assert (asked, told) == (2, ["first"] * 250 + ["second"])
        group.create_task(read("third"))
        await run_until_blocked()
        assert (asked, told[-1]) == (3, "third: away")
        out.clear()
        group.create_task(read("fourth"))
        await run_until_blocked()
        group.create_task(read("fifth"))
        await run_until_blocked()
        await caches.close()
    assert [line.partition(":")[0] for line in told[-2:]] == ["fourth", "fifth"]
    assert "shutting down" in told[-1]


async def test_many_share_one_load(storage: FlakyStorage, caches: Caches) -> None:
    """A hundred concurrent loads cost one range read; a failed load fails them, not the next."""
    await write(storage, "a", value(1))
    storage.failures = 1
    first = await asyncio.gather(
        *(caches.load(ROOT, SPLICER) for _ in range(100)), return_exceptions=True
    )
    assert all(isinstance(each, Unavailable) for each in first)
    storage.ranges = 0
    found = await asyncio.gather(*(caches.load(ROOT, SPLICER) for _ in range(100)))
    assert len({id(each) for each in found}) == 1
    assert storage.ranges == 1


async def test_history_is_fetched_once(storage: FlakyStorage, caches: Caches) -> None:
    """Changes from before the load can be read, with the previous state of each object."""
    first = await write(storage, "a", value(1))
    await write(storage, "a", value(2))
    await write(storage, "b", value(3))
    last = await write(storage, "a", None)
    cache = await caches.load(ROOT, SPLICER)
    assert cache.cursor_after(first - 1) is None
    assert await caches.backfill(ROOT, after=first - 1)
    cursor = cache.cursor_after(first - 1)
    assert cursor is not None
    changes = cache.changes_from(cursor)
    assert changes is not None
    kinds = [(change.key, change.before is None, change.now is None) for change in changes]
    assert kinds == [
        ("a", True, False),
        ("a", False, False),
        ("b", True, False),
        ("a", False, True),
    ]
    assert changes[-1].before is not None
    assert orjson.loads(changes[-1].before[2])["metadata"]["resourceVersion"] == str(last)
    later = cache.cursor_after(last)
    await write(storage, "c", value(5))
    await caches.freshen()
    assert later is not None
    assert [change.key for change in cache.changes_from(later) or []] == ["c"]


async def test_history_that_cannot_be_had(storage: FlakyStorage, caches: Caches) -> None:
    """Backfill fails for compacted history or more than the ring holds; the cache is unchanged."""
    last = 0
    for number in range(10):
        last = await write(storage, "a", value(number))
    cache = await caches.load(ROOT, SPLICER)
    cache._changes_max = 5
    assert not await caches.backfill(ROOT, after=1)
    cache._changes_max = 5000
    cache._changes_bytes_max = 100
    assert not await caches.backfill(ROOT, after=1)
    cache._changes_bytes_max = 10**6
    await storage.compact(Revision(last - 2))
    assert not await caches.backfill(ROOT, after=1)
    assert cache.floor == last
    assert await caches.backfill(ROOT, after=last - 2)


async def test_a_full_ring_drops_little_at_a_time(storage: FlakyStorage, caches: Caches) -> None:
    """The ring stays nearly full, by number and by size, and reports its first revision."""
    cache = await caches.load(ROOT, SPLICER)
    cache._changes_max = 64
    last = 0
    for number in range(200):
        last = await write(storage, "a", value(number))
    await caches.freshen()
    assert 62 <= len(cache.changes_from(cache.cursor_end - 62) or []) <= 64
    assert cache.changes_from(cache.cursor_end - 65) is None
    assert cache.cursor_after(last - 62) is not None
    assert cache.cursor_after(last - 65) is None
    cache._changes_bytes_max = 1
    last = await write(storage, "a", value(200))
    await caches.freshen()
    assert cache.floor == last - 1
    assert len(cache.changes_from(cache.cursor_end - 1) or []) == 1


@pytest.mark.parametrize("bad", [b"", b"{}", b"\xff", b"null", value(1, version="v9")])
async def test_unreadable_objects_are_reported(
    storage: FlakyStorage, caches: Caches, bad: bytes
) -> None:
    """A damaged object is reported as such, not as deleted, until it is repaired."""
    await write(storage, "a", value(1))
    cache = await caches.load(ROOT, SPLICER)
    cursor = cache.cursor_end
    await write(storage, "a", bad)
    await caches.freshen()
    assert set(cache.damaged) == {"a"}
    assert cache.get("a") is None
    changes = cache.changes_from(cursor)
    assert changes is not None
    assert changes[0].damage
    assert cache.has_damaged_changes
    await write(storage, "a", value(2))
    await caches.freshen()
    assert cache.damaged == {}
    assert numbers(cache) == {"a": 2}
    await write(storage, "a", bad)
    await write(storage, "a", None)
    await caches.freshen()
    assert cache.damaged == {}


async def test_a_future_version(storage: FlakyStorage, caches: Caches) -> None:
    """A reader that waits for a revision that never comes leaves nothing behind."""
    await caches.load(ROOT, SPLICER)
    for number in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await caches.reach_future(10**15 + number)
    assert caches._waiting == []
    now = await storage.revision()
    waiting = asyncio.ensure_future(caches.reach_future(now + 1))
    await asyncio.sleep(0.01)
    await write(storage, "a", value(1))
    await asyncio.wait_for(waiting, 5)
    assert caches.position == now + 1


def test_damaged_objects_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Unreadable objects are logged, up to a limit."""
    cache = WatchCache("/registry/configmaps/", Splicer("ConfigMap", ("v1",)))
    items = [
        Item(Key(f"/registry/configmaps/n/{number:04d}"), b"no object", Revision(2), Revision(2))
        for number in range(1000)
    ]
    cache.load(items, 2)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == DAMAGED_LOGGED_MAX
    assert lines[0].startswith("cannot read object /registry/configmaps/n/0000 from the store: ")


OTHER = Splicer("Thing", ("v1", "v2"))


async def test_a_dropped_cache_is_loaded_again(storage: FlakyStorage, caches: Caches) -> None:
    """The old cache is closed; the next one has all objects, with the new splicer, and follows."""
    await write(storage, "a", value(1))
    cache = await caches.load(ROOT, SPLICER)
    await write(storage, "b", value(2, version="v2"))
    await caches.freshen()
    assert set(cache.damaged) == {"b"}
    told: list[bool] = []
    cache.listen(lambda: told.append(cache.is_closed))
    caches.forget(ROOT, OTHER)
    assert told == [True]
    assert caches.fresh(ROOT) is caches.ready(ROOT) is None
    assert not await caches.backfill(ROOT, after=1)
    # A caller with the old splicer gets the same objects.
    another = await caches.load(ROOT, SPLICER)
    assert another is not cache
    assert not another.is_closed
    assert numbers(another) == {"a": 1, "b": 2}
    await write(storage, "c", value(3, version="v2"))
    await caches.freshen()
    assert caches.fresh(ROOT) is another
    assert numbers(another) == {"a": 1, "b": 2, "c": 3}
    assert numbers(cache) == {"a": 1}


class SlowStorage(FlakyStorage):
    """Returns what it has read on request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        page = await super().range(span, limit=limit, revision=revision, with_total=with_total)
        if span.start.startswith(ROOT):
            gate = asyncio.Event()
            self.asked.put_nowait(gate)
            await gate.wait()
        return page


async def run_ready_tasks() -> None:
    """Run other ready tasks."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("old_ends_first", [True, False])
async def test_a_load_that_is_forgotten_is_not_kept(old_ends_first: bool) -> None:
    """Whichever of two loads ends first, all get the newer one, with the changes since."""
    storage = SlowStorage()
    caches = Caches(storage, Runtime.system())
    await caches.start()
    await write(storage, "a", value(1))
    await write(storage, "b", value(2, version="v2"))
    early = asyncio.ensure_future(caches.load(ROOT, SPLICER))
    old = await storage.asked.get()
    caches.forget(ROOT, OTHER)
    late = asyncio.ensure_future(caches.load(ROOT, OTHER))
    new = await storage.asked.get()
    await write(storage, "c", value(3))
    await caches.freshen()
    for gate in (old, new) if old_ends_first else (new, old):
        gate.set()
        await run_ready_tasks()
    found = await asyncio.wait_for(asyncio.gather(early, late), 10)
    assert found[0] is found[1] is caches.ready(ROOT)
    assert numbers(found[0]) == {"a": 1, "b": 2, "c": 3}
    assert not found[0].damaged
    await write(storage, "d", value(4))
    await caches.freshen()
    assert numbers(found[0])["d"] == 4
    assert storage.asked.empty()
    assert not caches._held
    assert not caches._loading
    await caches.close()
    await storage.close()


async def test_forgetting_before_a_load_has_begun(storage: FlakyStorage, caches: Caches) -> None:
    """A load that has not started yet is dropped, too, and so is one that fails."""
    await write(storage, "a", value(1, version="v2"))
    waiting = asyncio.ensure_future(caches.load(ROOT, SPLICER))
    await asyncio.sleep(0)
    caches.forget(ROOT, OTHER)
    assert numbers(await waiting) == {"a": 1}
    caches.forget(ROOT)
    storage.failures = 1
    failing = asyncio.ensure_future(caches.load(ROOT, OTHER))
    await asyncio.sleep(0)
    caches.forget(ROOT)
    assert numbers(await failing) == {"a": 1}
    assert not caches._held
    assert not caches._loading


async def test_forgetting_while_everything_is_reloaded() -> None:
    """A cache that is dropped during a reload stays unchanged and closed."""
    storage = SlowStorage()
    caches = Caches(storage, Runtime.system())
    await caches.start()
    await write(storage, "a", value(1))
    loading = asyncio.ensure_future(caches.load(ROOT, SPLICER))
    (await storage.asked.get()).set()
    cache = await loading
    caches._watch.fail(Unavailable("lost track"))  # type: ignore[attr-defined]
    reading = await storage.asked.get()
    await write(storage, "a", value(2))
    caches.forget(ROOT, OTHER)
    reading.set()
    again = asyncio.ensure_future(caches.load(ROOT, OTHER))
    (await storage.asked.get()).set()
    assert numbers(await again) == {"a": 2}
    assert cache.is_closed
    assert numbers(cache) == {"a": 1}
    await caches.close()
    await storage.close()


@pytest.mark.parametrize(
    "foreign", [b"k8s:enc:aesgcm:v1:gone:" + bytes(40), value(1, version="v9")]
)
async def test_history_with_a_missing_key_or_version(
    storage: FlakyStorage, caches: Caches, foreign: bytes
) -> None:
    """A change whose states need a missing key or an unknown version is not shown as something
    else: history before it cannot be read, history after it can."""
    first = await write(storage, "a", foreign)
    await write(storage, "b", foreign)
    await write(storage, "a", value(2))
    last_foreign = await write(storage, "b", None)
    after = await write(storage, "c", value(3))
    cache = await caches.load(ROOT, SPLICER)
    for revision in (first - 1, first, last_foreign - 1):
        assert not await caches.backfill(ROOT, after=revision)
        assert cache.cursor_after(revision) is None
    assert await caches.backfill(ROOT, after=last_foreign)
    cursor = cache.cursor_after(last_foreign)
    assert cursor is not None
    assert [change.revision for change in cache.changes_from(cursor) or []] == [after]


async def test_history_of_damaged_objects(storage: FlakyStorage, caches: Caches) -> None:
    """A change to an unreadable state is damage; one from it has no known type."""
    first = await write(storage, "a", value(1))
    await write(storage, "b", value(1))
    for name, data in (("a", b"{}"), ("b", b"{}"), ("a", value(2)), ("b", None)):
        await write(storage, name, data)
    cache = await caches.load(ROOT, SPLICER)
    assert await caches.backfill(ROOT, after=first + 1)
    changes = cache.changes_from(cache.cursor_after(first + 1) or 0)
    assert changes is not None
    told = [(change.key, change.damage is not None, change.is_repaired) for change in changes]
    assert told == [("a", True, False), ("b", True, False), ("a", False, True), ("b", False, True)]
    assert cache.has_damaged_changes
