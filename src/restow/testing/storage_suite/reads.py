"""Reads: get, range and count, now and in the past."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from restow.storage.errors import Compacted, FutureRevision, InvalidKey
from restow.storage.interface import (
    EVERYTHING,
    TRANSACTION_BYTES_MAX,
    Delete,
    Key,
    Put,
    RangePage,
    Revision,
    Span,
    Storage,
)
from restow.testing.storage_suite.harness import Harness
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    commit,
    contents,
    delete,
    fill,
    item,
    k,
    let_others_run,
    put,
)

# In order of code point, which is the order of their UTF-8 bytes, but not of their UTF-16 units.
NAMES_IN_ORDER = ["!", "0", "A", "a", "a!", "a/", "a/b", "a0", "ab", "b", "é", "\ud7ff", "\ue000"]
NAMES_IN_ORDER += ["\uffff", "\U00010000", "\U0010ffff", "\U0010ffff\U0010ffff"]


class ReadSuite:
    async def test_absent_key(self, storage: Storage) -> None:
        """A key that was never written reads as None."""
        assert await storage.get(k("a")) is None

    async def test_get(self, storage: Storage) -> None:
        """Get returns the value with the revision that wrote it and that of the key's creation."""
        made = await put(storage, "a", b"one")
        changed = await put(storage, "a", b"two")
        assert await storage.get(k("a")) == item("a", b"two", changed, made)

    async def test_get_in_the_past(self, storage: Storage) -> None:
        """Get at a revision returns the key's item of that time, through deletion and creation."""
        before = await storage.revision()
        first = await put(storage, "a", b"one")
        second = await put(storage, "a", b"two")
        gone = await delete(storage, "a")
        again = await put(storage, "a", b"three")
        assert [
            await storage.get(k("a"), revision=Revision(r)) for r in range(before, again + 1)
        ] == [
            None,
            item("a", b"one", first),
            item("a", b"two", second, first),
            None,
            item("a", b"three", again),
        ]
        assert gone == second + 1

    @pytest.mark.parametrize("bad", ["", "a", "/a\0", "/\ud800", "/" + "a" * 1024])
    async def test_get_of_no_key(self, storage: Storage, bad: str) -> None:
        """An invalid key is rejected, not reported as absent."""
        with pytest.raises(InvalidKey):
            await storage.get(Key(bad))

    async def test_empty_store(self, storage: Storage) -> None:
        """A range without matching keys is an empty page at the current revision."""
        now = await storage.revision()
        assert await storage.range(EVERYTHING, with_total=True) == RangePage([], now, False, 0)
        assert await storage.count(EVERYTHING) == 0

    async def test_order(self, storage: Storage) -> None:
        """Keys come in order of code point, in whatever order they were written."""
        for name in reversed(NAMES_IN_ORDER):
            await put(storage, name)
        assert list(await contents(storage)) == NAMES_IN_ORDER

    @pytest.mark.parametrize("prefix", [*NAMES_IN_ORDER, "", "x", "a/b/c"])
    async def test_prefix(self, storage: Storage, prefix: str) -> None:
        """A prefix's span holds the keys that begin with it, and no others."""
        await fill(storage, dict.fromkeys(NAMES_IN_ORDER, b""))
        span = Span.of_prefix(k(prefix))
        expected = [k(name) for name in NAMES_IN_ORDER if name.startswith(prefix)]
        assert [found.key for found in (await storage.range(span)).items] == expected
        assert await storage.count(span) == len(expected)

    async def test_span_of_one_key(self, storage: Storage) -> None:
        """A key's own span does not hold longer keys that begin with it."""
        await fill(storage, {"a": b"", "a!": b"", "a/b": b"", "ab": b""})
        assert [found.key for found in (await storage.range(Span.of_key(k("a")))).items] == [k("a")]

    async def test_open_bounds(self, storage: Storage) -> None:
        """A span may begin before every key and end after every key."""
        await fill(storage, {"a": b"", "b": b"", "\U0010ffff": b""})
        for span in (EVERYTHING, Span("", "0"), Span("/", None), Span("", None)):
            assert await storage.count(span) == 3
            assert len((await storage.range(span)).items) == 3
        assert await storage.count(Span("", "/")) == 0
        assert await storage.count(Span(k("b"), None)) == 2

    async def test_empty_span(self, storage: Storage) -> None:
        """A span whose end is not after its start is empty; it is no error."""
        await fill(storage, {"a": b"", "b": b"", "c": b""})
        for span in (Span(k("b"), k("b")), Span(k("c"), k("a"))):
            assert (await storage.range(span, with_total=True))[0::2] == ([], False)
            assert await storage.count(span) == 0

    @pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 100])
    async def test_limit(self, storage: Storage, limit: int) -> None:
        """A limit cuts the page, which then has `more` set; the count is of all keys."""
        await fill(storage, {"a": b"", "b": b"", "c": b""})
        page = await storage.range(TEST_SPAN, limit=limit, with_total=True)
        kept = min(limit or 3, 3)
        assert [found.key for found in page.items] == [k("a"), k("b"), k("c")][:kept]
        assert page.more == (kept < 3)
        assert page.total == 3
        assert (await storage.range(TEST_SPAN, limit=limit)).total is None

    async def test_range_in_the_past(self, storage: Storage) -> None:
        """A range at a revision shows every key as it was then, and counts likewise."""
        states = {await storage.revision(): dict[str, bytes]()}
        states[await put(storage, "a", b"1")] = {"a": b"1"}
        states[await put(storage, "b", b"2")] = {"a": b"1", "b": b"2"}
        states[await commit(storage, Delete(k("a")), Put(k("c"), b"3"))] = {"b": b"2", "c": b"3"}
        states[await put(storage, "a", b"4")] = {"a": b"4", "b": b"2", "c": b"3"}
        for revision, state in states.items():
            assert await contents(storage, revision) == state
            assert await storage.count(TEST_SPAN, revision=revision) == len(state)
            page = await storage.range(TEST_SPAN, limit=1, revision=revision, with_total=True)
            assert (page.revision, page.total) == (revision, len(state))

    async def test_page_of_now(self, storage: Storage) -> None:
        """A range without a revision returns the revision at which it was made."""
        await put(storage, "a")
        newest = await put(storage, "b")
        assert (await storage.range(Span.of_key(k("a")))).revision == newest

    async def test_future(self, storage: Storage) -> None:
        """Reading at a future revision is rejected, with both revisions in the error."""
        now = await put(storage, "a")
        ahead = Revision(now + 1)
        for reading in (
            storage.get(k("a"), revision=ahead),
            storage.range(TEST_SPAN, revision=ahead),
            storage.count(TEST_SPAN, revision=ahead),
        ):
            with pytest.raises(FutureRevision) as caught:
                await reading
            assert (caught.value.asked, caught.value.current) == (ahead, now)

    async def test_revision_zero_is_not_now(self, storage: Storage) -> None:
        """Revision 0, which is the current one in etcd, is before everything here."""
        await put(storage, "a")
        try:
            assert await storage.get(k("a"), revision=Revision(0)) is None
            assert await storage.count(TEST_SPAN, revision=Revision(0)) == 0
            assert await contents(storage, Revision(0)) == {}
        except Compacted:
            pass

    @pytest.mark.parametrize("size", [0, 1, TRANSACTION_BYTES_MAX - len(k("a"))])
    async def test_value_sizes(self, storage: Storage, size: int) -> None:
        """The smallest and the largest value are returned as they were written."""
        value = (bytes(range(256)) * (size // 256 + 1))[:size]
        revision = await put(storage, "a", value)
        assert await storage.get(k("a")) == item("a", value, revision)
        assert (await storage.range(TEST_SPAN)).items == [item("a", value, revision)]

    async def test_big_range(self, storage: Storage) -> None:
        """A range of several megabytes is returned complete, also when requested in one piece."""
        written = {f"{number:05}": b"%d" % number * 1000 for number in range(2000)}
        await fill(storage, written)
        assert await contents(storage) == written

    async def test_paging_under_writes(self, harness: Harness, storage: Storage) -> None:
        """Pages at one pinned revision form the snapshot, whatever is written meanwhile."""
        names = [f"{number:05}" for number in range(harness.sizes.keys)]
        pinned = await fill(storage, dict.fromkeys(names, b"old"))
        snapshot = (await storage.range(TEST_SPAN)).items
        paging_done, written_more = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            for name in names:
                if paging_done.is_set():
                    return
                await commit(storage, Put(k(name), b"new"), Put(k(name + "x"), b"new"))
                await commit(storage, Delete(k(name)))
                written_more.set()
                await let_others_run(1)

        async def let_it_write() -> None:
            written_more.clear()
            await written_more.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            limit = harness.sizes.keys // 20
            pages = await read_pages(
                storage, limit=limit, revision=pinned, between_pages=let_it_write
            )
            written = await storage.revision()
            paging_done.set()
        assert [found for page in pages for found in page.items] == snapshot
        assert {page.revision for page in pages} == {pinned}
        assert written >= pinned + len(pages) - 1  # something was written before each page


async def read_pages(
    storage: Storage,
    *,
    limit: int,
    revision: Revision,
    between_pages: Callable[[], Awaitable[None]],
) -> list[RangePage]:
    """Read the suite's span page by page, each starting after the last key of the one before."""
    pages = [await storage.range(TEST_SPAN, limit=limit, revision=revision)]
    while pages[-1].more:
        await between_pages()
        rest = TEST_SPAN.starting_at(pages[-1].items[-1].key + "\0")
        pages.append(await storage.range(rest, limit=limit, revision=revision))
    return pages
