"""Converts keys, spans, items, events and transactions to etcd's messages and back. No I/O.

A key is text here and bytes in etcd. Keys of other programs that are not UTF-8 are decoded with
surrogate escapes and encoded in the same way, so that they can be listed and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from restow.storage.checks import holds
from restow.storage.errors import Compacted, InvalidKey
from restow.storage.etcd.messages import (
    COMPARE_CREATE,
    COMPARE_EQUAL,
    COMPARE_GREATER,
    COMPARE_MOD,
    COMPARE_VALUE,
    COMPARE_VERSION,
    EVENT_DELETE,
    TxnRequest,
)
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    Absent,
    Event,
    Guard,
    Item,
    Key,
    Present,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Transaction,
    ValueIs,
)

# etcd interprets NUL as "from the first key" and as "to the last key".
_UNBOUNDED = b"\0"
_NOTHING = (b"\1", b"\1")
_NO_REVISION = -1
_READS_INSIDE_MAX = 32
_REVISION_MAX = 2**63 - 1


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def encode_revision(revision: Revision) -> int:
    """The revision, or, beyond etcd's range, one that no store ever reaches either."""
    return min(max(revision, _NO_REVISION), _REVISION_MAX)


def encode_span(span: Span) -> tuple[bytes, bytes]:
    """The span as etcd's key and range_end; raises `InvalidKey` for bounds that are not UTF-8."""
    try:
        start = encode_key(span.start) or _UNBOUNDED
        end = _UNBOUNDED if span.end is None else encode_key(span.end)
    except UnicodeEncodeError:
        raise InvalidKey(f"{span} has a bound that cannot be encoded as UTF-8") from None
    if span.end is None:
        return start, end
    # An empty end would mean "this key alone", and a NUL "all keys".
    return (start, end) if end > start else _NOTHING


def decode_item(kv: Any) -> Item:
    return Item(
        kv.key.decode("utf-8", "surrogateescape"), kv.value, kv.mod_revision, kv.create_revision
    )


def decode_items(kvs: Iterable[Any]) -> list[Item]:
    return [
        Item(
            kv.key.decode("utf-8", "surrogateescape"), kv.value, kv.mod_revision, kv.create_revision
        )
        for kv in kvs
    ]


def decode_events(events: Iterable[Any]) -> list[RevisionEvents]:
    """Events in etcd's order, grouped by revision.

    Raises `Compacted` when etcd has compacted a key's previous value: then the change is
    incomplete.
    """
    entries: list[RevisionEvents] = []
    gathered: list[Event] = []
    revision = 0
    for message in events:
        event = _decode_event(message)
        if event.revision != revision:
            if gathered:
                entries.append(RevisionEvents(Revision(revision), tuple(gathered)))
            gathered, revision = [], event.revision
        gathered.append(event)
    if gathered:
        entries.append(RevisionEvents(Revision(revision), tuple(gathered)))
    return entries


def _decode_event(message: Any) -> Event:
    kv = message.kv
    key, revision = Key(kv.key.decode("utf-8", "surrogateescape")), Revision(kv.mod_revision)
    if message.HasField("prev_kv"):
        before = message.prev_kv
        previous = Item(key, before.value, before.mod_revision, before.create_revision)
        if message.type == EVENT_DELETE:
            return Event(key, None, revision, previous.created, previous)
        return Event(key, kv.value, revision, kv.create_revision, previous)
    if message.type == EVENT_DELETE or kv.create_revision != revision:
        raise Compacted(revision)
    return Event(key, kv.value, revision, revision, None)


def encode_transaction(transaction: Transaction, *, session: tuple[bytes, int]) -> Any:
    """The transaction as a TxnRequest.

    Its last comparison is with the session (see `session`). If one fails, the current item of
    every guard's key is read in the same step, unless there are too many (see `reads_inside`).
    """
    request = TxnRequest()
    compare, success, failure = request.compare, request.success, request.failure
    inside = reads_inside(transaction)
    for guard in transaction.guards:
        key = encode_key(guard.key)
        _add_compare(compare, guard, key)
        if inside:
            failure.add().request_range.key = key
    session_key, session_revision = session
    compare.add(target=COMPARE_MOD, key=session_key, mod_revision=session_revision)
    for write in transaction.writes:
        if isinstance(write, Put):
            put = success.add().request_put
            put.key, put.value = encode_key(write.key), write.value
        else:
            success.add().request_delete_range.key = encode_key(write.key)
    return request


def reads_inside(transaction: Transaction) -> bool:
    """Whether the request itself reads its guards' keys, or `encode_reads` is sent afterwards.

    Those keys are then in the request twice; with many of them the largest transaction that the
    contract allows would exceed etcd's limit.
    """
    return len(transaction.guards) <= _READS_INSIDE_MAX


def encode_reads(transaction: Transaction, *, revision: int) -> Any:
    """A TxnRequest that reads every guard's key as it was at a revision."""
    request = TxnRequest()
    for guard in transaction.guards:
        read = request.success.add().request_range
        read.key, read.revision = encode_key(guard.key), revision
    return request


def _add_compare(compare: Any, guard: Guard, key: bytes) -> None:
    match guard:
        case RevisionIs(revision=revision):
            # In etcd an absent key has the revision 0, but this guard requires the key to exist.
            compare.add(
                target=COMPARE_MOD, key=key, mod_revision=encode_revision(revision) or _NO_REVISION
            )
        case Absent():
            compare.add(target=COMPARE_CREATE, key=key)
        case Present():
            compare.add(result=COMPARE_GREATER, target=COMPARE_VERSION, key=key)
        case ValueIs(value=value):
            # etcd never finds an absent key's value equal, not even to the empty one.
            compare.add(result=COMPARE_EQUAL, target=COMPARE_VALUE, key=key, value=value)


def decode_refusal(
    transaction: Transaction, reads: Iterable[Any], revision: Revision
) -> Refused | None:
    """The first guard that did not hold; None if all did, so that only the session had ended."""
    for guard, answer in zip(transaction.guards, reads, strict=True):
        kvs = answer.response_range.kvs
        current = decode_item(kvs[0]) if kvs else None
        if not holds(guard, current):
            return Refused(guard, current, revision)
    return None
