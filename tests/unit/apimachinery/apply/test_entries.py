"""Entries of managed fields: validation of client input, their order, and their maximum number."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.apply import entries, sets
from restow.apimachinery.apply.entries import InvalidEntries, Manager
from restow.apimachinery.apply.sets import FieldSet
from tests.unit.apimachinery.apply.kinds import entry

DATA: dict[str, Any] = {"f:data": {"f:a": {}}}


def test_an_empty_list_resets_the_entries() -> None:
    """`[]` and `[{}]` reset the entries; anything that is not a list of entries changes nothing."""
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
        ({"apiVersion": 5}, "must be a string"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 0"),
        ({"fieldsType": "X"}, 'invalid fieldsType "X" in managed fields entry 0'),
        ({"fieldsV1": {"data": {}}}, "error decoding set"),
        ({"fieldsV1": [1]}, "error decoding set"),
        ({"fieldsV1": {'k:{"a":' + "[" * 1000 + "]" * 1000 + "}": {}}}, "error decoding set"),
        ({"time": "yesterday"}, "is not a valid time"),
    ],
)
def test_invalid_entries(change: dict[str, Any], words: str) -> None:
    """Each required field is validated, with Kubernetes' error messages."""
    with pytest.raises(InvalidEntries, match=words.replace("`", ".")):
        entries.read([{**entry("m", DATA), **change}])


def test_too_many_entries_are_none() -> None:
    """The number of entries that a client may send is limited, since every write compares them."""
    with pytest.raises(InvalidEntries):
        entries.read([entry(f"m{n}", DATA) for n in range(entries.ENTRIES_MAX + 1)])


def test_entries_with_too_long_keys_are_rejected() -> None:
    """The total length of keys to parse is limited, in one entry or in many.

    Known entries and plain field names are not parsed, and do not count.
    """
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
    """Applies sort first, then by time; of two entries with the same identity the last wins."""
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
    """More than ten updates are merged down to ten, per version; applies are not counted."""
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
    """A large set is merged only a few times, so many entries cannot block the server."""
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


def test_unmanaged_fields() -> None:
    """Names, versions and times set by the server are in no entry; labels are."""
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
    """A manager name is limited in bytes and must be printable; a missing one becomes `unknown`."""
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
