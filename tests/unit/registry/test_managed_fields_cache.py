"""The cache of managed fields: an object is equal to the one that is parsed without the cache."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from restow.registry import managed_fields_cache
from restow.registry.managed_fields_cache import ManagedFieldsCache

KEY = "/registry/deployments/default/a"
MARK = "5f1c"
ENTRIES = [
    {"manager": "kubectl", "fieldsV1": {"f:spec": {'k:{"name":"]"}': {}}}, "time": "t"},
    {"manager": "other", "fieldsV1": {"f:data": {}}},
]
TEXT = b'"managedFields":' + orjson.dumps(ENTRIES)


def known_here() -> ManagedFieldsCache:
    known = ManagedFieldsCache(MARK)
    known.note(KEY, ENTRIES, is_whole=True)
    return known


def body_with(metadata: Any, **more: Any) -> bytes:
    return orjson.dumps({"kind": "Deployment", "metadata": metadata, **more})


def test_known_text_is_not_read_again() -> None:
    """Cached managed fields are reused by identity; everything else is parsed."""
    body = body_with({"name": "a", "managedFields": ENTRIES, "uid": "1"}, spec={"replicas": 1})
    found = known_here().load(KEY, body)
    assert found == orjson.loads(body)
    assert found["metadata"]["managedFields"] is ENTRIES


def test_other_objects_and_entries_are_read() -> None:
    """Other objects, and other managed fields of the same object, are parsed."""
    body = body_with({"managedFields": ENTRIES})
    other = body_with({"managedFields": ENTRIES[:1]})
    for key, text in ((KEY + "b", body), (KEY, other), (KEY, body_with({}))):
        found = known_here().load(key, text)
        assert found == orjson.loads(text)
        assert found["metadata"].get("managedFields") is not ENTRIES


def test_entries_elsewhere() -> None:
    """The same text at another place, or a value of a client that resembles the mark, does not
    change the result."""
    known = known_here()
    for body in (
        body_with({"name": "a"}, template={"managedFields": ENTRIES}),
        orjson.dumps({"template": {"managedFields": ENTRIES}, "metadata": {"managedFields": []}}),
        b'{"metadata":{"x\\"managedFields":%b}}' % TEXT.partition(b":")[2],
        b'{"metadata":{%b,"managedFields":[]}}' % TEXT,
        body_with({"annotations": {"a": TEXT.decode()}}),
        b'{"metadata":[],%b}' % TEXT,
        body_with({"managedFields": ["other"]}),
    ):
        assert known.load(KEY, body) == orjson.loads(body)


@given(
    before=st.dictionaries(st.sampled_from(["name", "labels"]), st.text(max_size=5)),
    where=st.sampled_from(["metadata", "spec", "both"]),
    entries=st.sampled_from([ENTRIES, ENTRIES[:1], [], None, MARK]),
)
def test_reading_by_memory_is_reading(before: dict[str, str], where: str, entries: Any) -> None:
    """With any managed fields at any place, the object is the one in the text."""
    own = {**before, "managedFields": entries} if where != "spec" else before
    spec = {"metadata": {"managedFields": entries}} if where != "metadata" else {}
    for body in (
        orjson.dumps({"metadata": own, "spec": spec}),
        orjson.dumps({"spec": spec, "metadata": own}),
    ):
        assert known_here().load(KEY, body) == orjson.loads(body)


def test_newer_entries_take_the_place() -> None:
    """An object has one state: newer managed fields replace the cached ones."""
    known = known_here()
    newer: list[Any] = [{"manager": "newer"}]
    known.note(KEY, newer, is_whole=True)
    assert known.cut(KEY, body_with({"managedFields": ENTRIES})) is None
    assert (
        known.load(KEY, body_with({"managedFields": newer}))["metadata"]["managedFields"] is newer
    )


def test_memory_is_bounded() -> None:
    """The least recently written objects are dropped, and long texts are never cached."""
    known = ManagedFieldsCache(MARK)
    entries = [{"manager": "x" * 1000}]
    count = 2 * managed_fields_cache.TEXTS_BYTES_MAX // 1000
    for number in range(count):
        known.note(f"{number}", [*entries], is_whole=True)
    body = body_with({"managedFields": entries})
    kept = [number for number in range(count) if known.cut(f"{number}", body) is not None]
    assert kept == list(range(count - len(kept), count))
    assert 0 < len(kept) * 1000 <= managed_fields_cache.TEXTS_BYTES_MAX
    long = [{"manager": "x" * managed_fields_cache.TEXT_BYTES_MAX}]
    known.note("long", long, is_whole=True)
    assert known.cut("long", body_with({"managedFields": long})) is None
