"""Bounded reads of a scan find every key once, and cause the store to visit few additional keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from restow.storage.interface import Item, Key, RangePage, Revision, Span
from restow.storageversion.read_bound import ReadBound

WHOLE = Span.of_prefix("/registry/")
NAMES = st.text(st.sampled_from("ab/-9~\u00e9\U0010ffff"), min_size=1, max_size=8)


def read_all(keys: list[str], start: str, *, limit: int) -> tuple[list[str], int]:
    """Returns the keys that a scan from `start` finds, and the number of keys that the store
    visited."""
    bound, visited = ReadBound(WHOLE, start), 0
    found: list[str] = []
    span = bound.first
    while True:
        inside = [key for key in keys if key in span]
        visited += len(inside)
        items = [Item(Key(key), b"", Revision(1), Revision(1)) for key in inside[:limit]]
        page = RangePage(items, Revision(1), more=len(inside) > limit, total=len(inside))
        found += [item.key for item in items]
        if not page.more and span.end == bound.end:
            return found, visited
        next_key = items[-1].key + "\0" if page.more else span.end
        assert next_key is not None
        assert next_key > span.start, "each read goes on behind the last"
        span = bound.following(next_key, page, wanted=limit)


@given(names=st.sets(NAMES, max_size=60), limit=st.integers(1, 9), data=st.data())
def test_every_key_is_read_once(names: set[str], limit: int, data: st.DataObject) -> None:
    """For any names, and any start of a page."""
    keys = sorted(f"/registry/{name}" for name in names)
    start = data.draw(st.sampled_from(["", *keys]))
    found, _ = read_all(keys, start, limit=limit)
    assert found == [key for key in keys if key >= start]


def test_the_store_visits_few_more_keys_than_are_returned() -> None:
    """etcd visits each key of a requested range, 30 times as many without bounds."""
    keys = [f"/registry/configmaps/default/item-{number:06d}" for number in range(20_000)]
    found, visited = read_all(keys, keys[0], limit=300)
    assert len(found) == len(keys)
    assert visited < 4 * len(keys)
