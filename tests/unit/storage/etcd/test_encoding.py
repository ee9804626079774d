"""Encoding of keys, spans and events for etcd, and decoding."""

from typing import Any

import pytest

from restow.storage.errors import Compacted
from restow.storage.etcd.encoding import decode_events, decode_items, encode_key, encode_span
from restow.storage.etcd.messages import RANGE, WATCH
from restow.storage.interface import EVERYTHING, Span


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (EVERYTHING, (b"\0", b"\0")),
        (Span("/a", None), (b"/a", b"\0")),
        (Span("", "/b"), (b"\0", b"/b")),
        (Span.of_prefix("/a/"), (b"/a/", b"/a0")),
        (Span("/b", "/a"), (b"\1", b"\1")),
        (Span("/a", ""), (b"\1", b"\1")),
        (Span("", ""), (b"\1", b"\1")),
        (Span("", "\0"), (b"\1", b"\1")),
    ],
)
def test_spans(span: Span, expected: tuple[bytes, bytes]) -> None:
    """No span is encoded as one of etcd's special forms, above all an empty one as everything."""
    assert encode_span(span) == expected


def test_foreign_keys_survive_the_round_trip() -> None:
    """A key that is not UTF-8 can be listed, and read again."""
    response = RANGE.response(kvs=[{"key": b"/x/\xff\xfe", "value": b"1", "mod_revision": 2}])
    (item,) = decode_items(response.kvs)
    assert encode_key(item.key) == b"/x/\xff\xfe"


def _put(key: bytes, revision: int, **more: Any) -> dict[str, Any]:
    return {"kv": {"key": key, "mod_revision": revision, "create_revision": revision}, **more}


def test_events_are_gathered_by_revision() -> None:
    """All changes of one revision come as one entry."""
    response = WATCH.response(events=[_put(b"/a", 5), _put(b"/b", 5), _put(b"/c", 6)])
    entries = decode_events(response.events)
    assert [(entry.revision, len(entry.events)) for entry in entries] == [(5, 2), (6, 1)]


def test_a_change_without_its_previous_value_is_rejected() -> None:
    """A deletion without its previous value, as etcd sends it after compaction, is rejected."""
    response = WATCH.response(events=[{"type": 1, "kv": {"key": b"/a", "mod_revision": 5}}])
    with pytest.raises(Compacted):
        decode_events(response.events)
