"""Commits: guards, writes, revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from restow.storage.interface import (
    Absent,
    Delete,
    Guard,
    Item,
    Present,
    Put,
    Revision,
    RevisionIs,
    Storage,
    ValueIs,
)
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    commit,
    contents,
    delete,
    item,
    k,
    put,
    record,
    refuse,
)

WRITTEN = Put(k("written"), b"by the guarded commit")


class _State(NamedTuple):
    """A key `a` holds b"x" and once held b"old"; `empty` holds b""; `gone` was deleted."""

    made: Revision
    deleted: Revision
    newest: Revision


GUARDS: dict[str, tuple[Callable[[_State], Guard], bool]] = {
    "absent, never made": (lambda _: Absent(k("never")), True),
    "absent, deleted": (lambda _: Absent(k("gone")), True),
    "absent, exists": (lambda _: Absent(k("a")), False),
    "absent, exists and is empty": (lambda _: Absent(k("empty")), False),
    "present, exists": (lambda _: Present(k("a")), True),
    "present, exists and is empty": (lambda _: Present(k("empty")), True),
    "present, never made": (lambda _: Present(k("never")), False),
    "present, deleted": (lambda _: Present(k("gone")), False),
    "revision, newest": (lambda state: RevisionIs(k("a"), state.newest), True),
    "revision, of making": (lambda state: RevisionIs(k("a"), state.made), False),
    "revision, later": (lambda state: RevisionIs(k("a"), Revision(state.newest + 1)), False),
    "revision, never made": (lambda state: RevisionIs(k("never"), state.newest), False),
    "revision 0, never made": (lambda _: RevisionIs(k("never"), Revision(0)), False),
    "revision 0, deleted": (lambda _: RevisionIs(k("gone"), Revision(0)), False),
    "revision, deleted": (lambda state: RevisionIs(k("gone"), state.deleted), False),
    "value, equal": (lambda _: ValueIs(k("a"), b"x"), True),
    "value, longer": (lambda _: ValueIs(k("a"), b"xx"), False),
    "value, empty": (lambda _: ValueIs(k("a"), b""), False),
    "value, former": (lambda _: ValueIs(k("a"), b"old"), False),
    "value, empty and empty": (lambda _: ValueIs(k("empty"), b""), True),
    "value, never made": (lambda _: ValueIs(k("never"), b"x"), False),
    "value, empty, never made": (lambda _: ValueIs(k("never"), b""), False),
    "value, empty, deleted": (lambda _: ValueIs(k("gone"), b""), False),
    "value, deleted": (lambda _: ValueIs(k("gone"), b"x"), False),
}


class CommitSuite:
    async def test_create(self, storage: Storage) -> None:
        """A commit gets the next revision, which becomes the revision of the store."""
        before = await storage.revision()
        revision = await put(storage, "a")
        assert revision == before + 1
        assert await storage.revision() == revision

    @pytest.mark.parametrize("case", GUARDS)
    async def test_guard(self, storage: Storage, case: str) -> None:
        """A guard that holds lets the commit succeed; one that fails is returned with its item."""
        make_guard, expected = GUARDS[case]
        guard = make_guard(await _make_state(storage))
        before = await storage.revision()
        current = await storage.get(guard.key)
        if expected:
            assert await commit(storage, WRITTEN, guards=(guard,)) == before + 1
            return
        refused = await refuse(storage, WRITTEN, guards=(guard,))
        assert (refused.guard, refused.current, refused.revision) == (guard, current, before)
        assert await storage.get(WRITTEN.key) is None
        assert await storage.revision() == before

    async def test_many_guards_that_hold(self, storage: Storage) -> None:
        """A commit with several guards that hold succeeds, also with several of one key."""
        made = await put(storage, "a", b"x")
        guards: tuple[Guard, ...] = (
            Present(k("a")),
            RevisionIs(k("a"), made),
            ValueIs(k("a"), b"x"),
            *(Absent(k(f"none/{number}")) for number in range(50)),
        )
        await commit(storage, WRITTEN, guards=guards)

    @pytest.mark.parametrize("failing", [(0,), (1,), (5,), (9,), (3, 4), (0, 9), (2, 5, 7)])
    async def test_first_failing_guard(self, storage: Storage, failing: tuple[int, ...]) -> None:
        """Of several failing guards the first in their order is returned, with its key's item."""
        guards: list[Guard] = []
        for number in range(10):
            revision = await put(storage, f"{number}", b"%d" % number)
            wrong = number in failing
            guards.append(RevisionIs(k(f"{number}"), Revision(revision - 1 if wrong else revision)))
        refused = await refuse(storage, WRITTEN, guards=tuple(guards))
        first = failing[0]
        assert refused.guard == guards[first]
        assert refused.current == await storage.get(k(f"{first}"))
        assert refused.revision == await storage.revision()

    async def test_guards_see_the_state_before(self, storage: Storage) -> None:
        """Guards are evaluated on the state before the writes of their own transaction."""
        await commit(storage, Put(k("a"), b"x"), guards=(Absent(k("a")),))
        await commit(storage, Delete(k("a")), guards=(ValueIs(k("a"), b"x"),))
        assert await storage.get(k("a")) is None

    async def test_guard_of_another_key(self, storage: Storage) -> None:
        """A guard may name a key that is not written, like the fence of every object's write."""
        await put(storage, "fence", b"v1")
        fence = ValueIs(k("fence"), b"v1")
        await commit(storage, Put(k("a"), b"1"), guards=(fence,))
        await put(storage, "fence", b"v2")
        refused = await refuse(storage, Put(k("a"), b"2"), guards=(fence,))
        assert refused.current is not None
        assert refused.current.value == b"v2"
        assert await contents(storage) == {"a": b"1", "fence": b"v2"}

    async def test_delete(self, storage: Storage) -> None:
        """A deletion is a change with its own revision, and the key is absent afterwards."""
        made = await put(storage, "a")
        assert await delete(storage, "a") == made + 1
        assert await storage.get(k("a")) is None
        assert await storage.count(TEST_SPAN) == 0

    async def test_delete_of_nothing(self, storage: Storage) -> None:
        """Deleting an absent key changes nothing and uses no revision."""
        before = await put(storage, "a")
        assert await delete(storage, "b") == before
        assert await commit(storage, Delete(k("b")), guards=(Absent(k("b")),)) == before
        assert await storage.revision() == before
        assert await put(storage, "a") == before + 1

    async def test_delete_of_nothing_beside_a_put(self, storage: Storage) -> None:
        """A deletion without effect does not prevent the other writes, and creates no event."""
        before = await storage.revision()
        revision = await commit(storage, Delete(k("none")), Put(k("a"), b"1"), Delete(k("non")))
        assert revision == before + 1
        seen = await record(storage, TEST_SPAN, after=before, upto=revision)
        assert [event.key for event in seen.events] == [k("a")]

    async def test_one_revision_for_all_writes(self, storage: Storage) -> None:
        """All writes of a transaction share one revision."""
        await put(storage, "gone")
        before = await storage.revision()
        writes = [Put(k(f"{number}"), b"") for number in range(20)]
        revision = await commit(storage, *writes, Delete(k("gone")))
        assert revision == before + 1
        items = (await storage.range(TEST_SPAN)).items
        assert [(found.revision, found.created) for found in items] == [(revision, revision)] * 20

    async def test_same_value_again(self, storage: Storage) -> None:
        """Writing the same value again is a change like any other: a new revision, an event."""
        made = await put(storage, "a", b"same")
        again = await put(storage, "a", b"same")
        assert again == made + 1
        assert await storage.get(k("a")) == item("a", b"same", again, made)
        seen = await record(storage, TEST_SPAN, after=made, upto=again)
        assert [event.revision for event in seen.events] == [again]

    async def test_created(self, storage: Storage) -> None:
        """The revision of a key's creation survives changes, and is new after a deletion."""
        made = await put(storage, "a", b"1")
        for value in (b"2", b"3"):
            await put(storage, "a", value)
            assert (await _item(storage)).created == made
        await delete(storage, "a")
        made_again = await put(storage, "a", b"4")
        assert (await _item(storage)).created == made_again
        await put(storage, "a", b"5")
        assert (await _item(storage)).created == made_again

    async def test_refusal_changes_nothing(self, storage: Storage) -> None:
        """A refused transaction leaves no trace of any of its writes."""
        await put(storage, "a", b"1")
        before = await put(storage, "b", b"2")
        guards = (Present(k("a")), Absent(k("b")))
        await refuse(storage, Put(k("a"), b"x"), Delete(k("b")), Put(k("c"), b"x"), guards=guards)
        assert await contents(storage) == {"a": b"1", "b": b"2"}
        revision = await put(storage, "d")
        assert revision == before + 1
        seen = await record(storage, TEST_SPAN, after=before, upto=revision)
        assert [event.key for event in seen.events] == [k("d")]


async def _item(storage: Storage) -> Item:
    found = await storage.get(k("a"))
    assert found is not None
    return found


async def _make_state(storage: Storage) -> _State:
    made = await put(storage, "a", b"old")
    await commit(storage, Put(k("gone"), b"x"), Put(k("empty"), b""))
    deleted = await delete(storage, "gone")
    return _State(made, deleted, newest=await put(storage, "a", b"x"))
