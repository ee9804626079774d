"""Entries of managed fields: what clients may send, their order, and how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.apply import entries, sets
from restow.apimachinery.apply.entries import InvalidEntries, Manager
from restow.apimachinery.apply.sets import FieldSet
from tests.unit.apimachinery.apply.kinds import entry

DATA: dict[str, Any] = {"f:data": {"f:a": {}}}


def test_an_empty_list_takes_all_entries_away() -> None:
    """`[]` and `[{}]` reset; anything that is no list of entries leaves what is there."""
    before = [entry("m", DATA)]
    resets: list[Any] = [[], [{}], [{"manager": "", "time": None}]]
    for sent in resets:
        assert entries.chosen(sent, before) == []
    wrong: list[Any] = [None, [5], "x", [{"manager": "m"}], [entry("m", DATA, operation="No")]]
    for sent in wrong:
        assert entries.chosen(sent, before) is before
    other = [entry("n", DATA)]
    assert entries.chosen(other, before) == other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operation": ""}, "operation must be `Apply` or `Update`"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"apiVersion": 5}, "is no text"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 0"),
        ({"fieldsType": "X"}, 'invalid fieldsType "X" in managed fields entry 0'),
        ({"fieldsV1": {"data": {}}}, "error decoding set"),
        ({"fieldsV1": [1]}, "error decoding set"),
        ({"fieldsV1": {'k:{"a":' + "[" * 1000 + "]" * 1000 + "}": {}}}, "error decoding set"),
        ({"time": "yesterday"}, "is no time"),
    ],
)
def test_what_is_no_entry(change: dict[str, Any], words: str) -> None:
    """Each thing that an entry needs is asked for, in the reference's words."""
    with pytest.raises(InvalidEntries, match=words.replace("`", ".")):
        entries.read([{**entry("m", DATA), **change}])


def test_too_many_entries_are_none() -> None:
    """A client cannot make every write compare with more entries than there may be."""
    with pytest.raises(InvalidEntries):
        entries.read([entry(f"m{n}", DATA) for n in range(entries.ENTRIES_MAX + 1)])


def test_entries_that_take_too_long_to_read_are_none() -> None:
    """What must be parsed of all entries together has a limit, in one key or in many; what is known
    already is not parsed, and names are not."""
    half = f'v:"{"a" * (sets.KEY_CHARACTERS_MAX // 2)}"'
    before = [entry("m", {half: {}})]
    sent = [*before, entry("n", {half: {}, "f:" + half: {}})]
    with pytest.raises(InvalidEntries, match="more than"):
        entries.read([entry("n", {half: {}}), entry("o", {half: {}})])
    assert len(entries.read(sent, known=before)) == 2
    assert entries.chosen([*sent, entry("o", {half: {}})], before) is before
    short: FieldSet = {f"v:{number}": {} for number in range(sets.KEY_CHARACTERS_MAX // 6)}
    with pytest.raises(InvalidEntries, match="more than"):
        entries.read([entry("m", short)])


def test_order_and_identity() -> None:
    """Who applies comes first, then the oldest; of two of the same the last counts."""
    first = entry("z", DATA, operation="Apply", time="2026-01-02T00:00:00Z")
    old = entry("b", DATA, time="2026-01-01T00:00:00Z")
    young = entry("a", DATA, time="2026-01-03T00:00:00Z")
    timeless = entry("c", DATA)
    assert entries.read([young, first, old, timeless]) == [first, timeless, old, young]
    again = {**old, "fieldsV1": {}}
    assert entries.read([old, again]) == [again]
    other_version = {**first, "apiVersion": "v2"}
    assert entries.read([first, other_version]) == [other_version]
    assert len(entries.read([old, {**old, "apiVersion": "v2"}])) == 2
    assert len(entries.read([old, {**old, "subresource": "status"}])) == 2


def test_the_oldest_updates_are_joined() -> None:
    """More than ten who update become ten, version by version; who applies is not counted."""
    many = [entry(f"m{n:02}", {f"f:{n}": {}}, time=f"2026-01-01T00:00:{n:02}Z") for n in range(12)]
    applied = [entry(f"a{n:02}", DATA, operation="Apply") for n in range(12)]
    assert entries.capped(many[:10] + applied) == applied + many[:10]
    found = entries.capped(many + applied)
    updates = [each for each in found if each["operation"] == "Update"]
    assert len(updates) == entries.UPDATERS_MAX
    assert updates[0] == entry(
        entries.ANCIENT, {"f:0": {}, "f:1": {}, "f:2": {}}, time="2026-01-01T00:00:02Z"
    )
    late = entry("late", {"f:x": {}}, time="2026-01-02T00:00:00Z")
    again = entries.capped([*updates, late])
    assert len(again) == entries.UPDATERS_MAX
    assert again[0]["fieldsV1"] == {"f:0": {}, "f:1": {}, "f:2": {}, "f:3": {}}


def test_many_entries_beside_a_large_one_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large set is joined with the others a few times only: a client who sends as many entries as
    it may does not hold up the server."""
    sizes: list[int] = []
    union = sets.union

    def counted(a: FieldSet, b: FieldSet) -> FieldSet:
        sizes.append(len(a) + len(b))
        return union(a, b)

    monkeypatch.setattr(sets, "union", counted)
    large: dict[str, Any] = {f"f:{n}": {} for n in range(1000)}
    others = [
        entry(f"m{n}", {f"f:x{n}": {}}, time="2026-01-01T00:00:01Z")
        for n in range(entries.ENTRIES_MAX - 1)
    ]
    found = entries.capped([entry("large", large, time="2026-01-01T00:00:00Z"), *others])
    kept = [each for each in found if each["manager"] != entries.ANCIENT]
    [ancient] = [each for each in found if each["manager"] == entries.ANCIENT]
    assert len(found) == entries.UPDATERS_MAX
    assert len(ancient["fieldsV1"]) + len(kept) == len(large) + len(others)
    assert sum(sizes) < 40 * entries.ENTRIES_MAX


def test_what_is_nobodys() -> None:
    """Names, versions and times of the server's are in no entry; labels are."""
    fields: dict[str, Any] = {
        "f:kind": {},
        "f:apiVersion": {},
        "f:metadata": {".": {}, "f:name": {}, "f:uid": {}, "f:labels": {".": {}, "f:a": {}}},
        "f:data": {},
    }
    labels: dict[str, Any] = {"f:labels": {".": {}, "f:a": {}}}
    assert entries.stripped(fields) == {"f:metadata": labels, "f:data": {}}
    assert entries.stripped({"f:metadata": {"f:name": {}}, "f:kind": {}}) == {}


def test_names_of_managers() -> None:
    """A name is short in bytes and can be printed; who has none is unknown."""
    assert entries.name_problems("é" * 64, "x") == []
    [cause] = entries.name_problems("é" * 65, "x")
    assert cause.message == "Too long: may not be more than 128 bytes"
    [cause] = entries.name_problems("é\x07", "x")
    assert cause.message.endswith("invalid character U+0007 (at position 2)")
    assert [each.field for each in entries.problems([entry("m" * 129, DATA)])] == [
        "metadata.managedFields[0].manager"
    ]
    made = entries.entry_of(Manager(""), "Update", "v1", time="", fields=DATA)
    assert (made["manager"], "time" in made) == ("unknown", False)
