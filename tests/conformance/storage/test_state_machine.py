"""Random programs on a driver and on the store in memory: results must always be equal."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from restow.aio import Runtime
from restow.storage.drivers import open_storage
from restow.storage.interface import (
    EVERYTHING,
    REVISION_FIRST,
    Absent,
    Delete,
    Done,
    Guard,
    Key,
    Present,
    Put,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    ValueIs,
    Watch,
    Write,
)
from restow.storage.memory import MemoryStorage
from restow.testing.history import Timeline
from restow.testing.storage_suite import wipe
from restow.testing.storage_suite.steps import put
from restow.testing.watch_checks import WatchRecord, check_watch
from tests.conformance.storage.shifted import Gone, ShiftedStorage
from tests.sizes import SIZES

T = TypeVar("T")

KEYS = [Key(name) for name in ("/a", "/a/1", "/a/2", "/ab", "/b/\ud7ff", "/b/\U0010ffff")]
SPANS = [
    EVERYTHING,
    *map(Span.of_prefix, ("/a", "/a/", "/b/\ud7ff", "/b/\U0010ffff", "/c")),
    *map(Span.of_key, KEYS[:2]),
    Span("/ab", None),
    Span("/b", "/a"),
]

keys = st.sampled_from(KEYS)
spans = st.sampled_from(SPANS)
values = st.sampled_from([b"", b"1", b"2"])
distances = st.integers(-1, 12)
"""Distance of a revision from the current one; -1 is in the future."""
guards = st.one_of(
    st.builds(Absent, keys),
    st.builds(Present, keys),
    st.builds(ValueIs, keys, values),
    st.builds(RevisionIs, keys, st.integers(0, 4).map(Revision)),
)
"""Distance of a guard's revision from the key's newest one."""
puts, deletes = st.builds(Put, keys, values), st.builds(Delete, keys)
writes = st.lists(puts | puts | deletes, min_size=1, max_size=3, unique_by=lambda write: write.key)


class Comparison(RuleBasedStateMachine):
    """Compares memory with another driver. Subclassed with the address of a store.

    That store may be at a higher revision than memory, which starts empty for each program.
    """

    address: ClassVar[str]
    runner: ClassVar[asyncio.Runner]
    watches = Bundle("watches")

    @initialize()
    def open(self) -> None:
        self.memory = self.begin(MemoryStorage())
        self.driver = self.begin(self.do(open_storage(self.address, Runtime.system())))
        assert self.do(self.memory.compact(REVISION_FIRST)) is None
        assert self.do(self.driver.compact(REVISION_FIRST)) is None
        self.now = self.compacted = REVISION_FIRST
        self.timeline = Timeline(REVISION_FIRST, [])
        self.opened: list[Watch] = []

    def begin(self, storage: Storage) -> ShiftedStorage:
        """A view of the store that starts now. Both first get other commits, compacted."""
        self.do(wipe(storage))
        self.do(put(storage, "past"))
        self.do(wipe(storage))
        start = self.do(storage.revision())
        return ShiftedStorage(storage, offset=start - REVISION_FIRST)

    def teardown(self) -> None:
        if not hasattr(self, "opened"):
            return
        for watch in self.opened:
            self.do(watch.close())
        self.do(self.driver.storage.close())
        self.do(self.memory.storage.close())

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    @rule(many=st.lists(writes, min_size=2, max_size=6))
    def commit_several(self, many: list[list[Write]]) -> None:
        """Unguarded commits, so that programs make progress."""
        for writes in many:
            self.commit([], writes)

    @rule(asked=st.lists(guards, max_size=3), writes=writes)
    def commit(self, asked: list[Guard], writes: list[Write]) -> None:
        guards = tuple(map(self.made_exact, asked))
        transaction = Transaction(guards, tuple(writes))
        expected = self.do(self.memory.commit(transaction))
        assert self.do(self.driver.commit(transaction)) == expected
        if isinstance(expected, Done) and expected.revision > self.now:
            self.timeline.apply(expected.revision, writes)
            self.now = expected.revision

    @rule(key=keys, distance=distances)
    def get(self, key: Key, distance: int) -> None:
        at = self.before_now(distance)
        assert self.do(self.driver.get(key, at)) == self.do(self.memory.get(key, at))

    @rule(span=spans, limit=st.integers(0, 4), distance=distances | st.none())
    def range(self, span: Span, limit: int, distance: int | None) -> None:
        at = None if distance is None else self.before_now(distance)
        expected = self.do(self.memory.range(span, limit, at))
        assert self.do(self.driver.range(span, limit, at)) == expected

    @rule(span=spans, distance=distances)
    def count(self, span: Span, distance: int) -> None:
        at = self.before_now(distance)
        assert self.do(self.driver.count(span, at)) == self.do(self.memory.count(span, at))

    @rule(distance=st.integers(-1, 8))
    def compact(self, distance: int) -> None:
        at = self.before_now(distance)
        expected = self.do(self.memory.compact(at))
        assert self.do(self.driver.compact(at)) == expected
        if expected is None:
            self.compacted = at

    @rule(span=spans, distance=distances)
    def watch_and_read(self, span: Span, distance: int) -> None:
        """A new watch yields the same from both, or both have compacted it."""
        after = self.before_now(distance)
        expected = self.do(self.memory.log(span, after, self.now))
        assert self.do(self.driver.log(span, after, self.now)) == expected

    @rule(target=watches, span=spans, distance=distances)
    def watch(self, span: Span, distance: int) -> tuple[Watch, WatchRecord]:
        """Open a watch, to be read later."""
        after = self.before_now(distance)
        self.opened.append(self.do(self.driver.watch(span, after)))
        return self.opened[-1], WatchRecord(span, after)

    @rule(target=watches, opened=consumes(watches))
    def read(self, opened: tuple[Watch, WatchRecord]) -> tuple[Watch, WatchRecord]:
        """An old watch yields all commits since, unless some were compacted."""
        watch, seen = opened
        batches = self.do(self.driver.read(watch, self.now))
        if isinstance(batches, list):
            seen.batches += batches
            assert seen.upto >= self.now
        else:
            assert batches == Gone(self.compacted)
            assert seen.upto < self.compacted
            watch = self.do(self.driver.watch(seen.span, self.now))
            seen = WatchRecord(seen.span, self.now)
            self.opened.append(watch)
        assert check_watch(seen, self.timeline.log) == []
        return watch, seen

    @invariant()
    def same_revision(self) -> None:
        assert self.do(self.memory.revision()) == self.now
        assert self.do(self.driver.revision()) == self.now

    def before_now(self, distance: int) -> Revision:
        return Revision(max(self.now - distance, REVISION_FIRST - 1))

    def made_exact(self, guard: Guard) -> Guard:
        """The guard with an absolute revision."""
        if not isinstance(guard, RevisionIs):
            return guard
        item = self.timeline.item_at(guard.key, self.now)
        newest = item.revision if item else self.now
        return RevisionIs(guard.key, Revision(newest - guard.revision))


@pytest.mark.parametrize("driver", ["sqlite", "etcd", "etcd3"])
def test_same_as_memory(driver: str, address: str) -> None:
    """Every call on a driver, in any order, gives the same result as in memory."""

    # One loop for all programs: gRPC still uses a loop that has just been closed.
    with asyncio.Runner() as loop_runner:

        class Compared(Comparison):
            runner = loop_runner

        Compared.address = address
        run_state_machine_as_test(
            Compared,
            settings=settings(
                max_examples=SIZES.storage_machine_examples,
                stateful_step_count=SIZES.storage_machine_steps,
            ),
        )
