"""Validation that every driver runs before it accesses its store. Pure functions; no I/O.

A transaction may write at most one object of any API resource: all writes of a transaction share
one revision, so a watcher of that resource which resumed after the first of two would lose the
second. restow's own keys, under `/restow/`, are exempt from this rule.
"""

from __future__ import annotations

from restow.storage.errors import InvalidKey, InvalidTransaction, TransactionTooLarge
from restow.storage.interface import (
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    SEAL_BYTES_MAX,
    SEALED_PREFIX,
    TRANSACTION_BYTES_MAX,
    Absent,
    Delete,
    Guard,
    Item,
    Key,
    Put,
    RevisionIs,
    Span,
    Transaction,
    ValueIs,
)

OBJECTS_PREFIX = "/registry/"

# Resources whose keys have a second fixed segment, although they name no group.
_TWO_SEGMENT_ROOTS = frozenset({"services"})


def check_transaction(transaction: Transaction) -> None:
    """Raise if some driver could not execute this transaction."""
    guards, writes = transaction.guards, transaction.writes
    if not writes:
        raise InvalidTransaction("a transaction needs at least one write")
    if len(guards) + len(writes) > OPERATIONS_MAX:
        raise TransactionTooLarge(
            f"{len(guards) + len(writes)} operations in one transaction; at most {OPERATIONS_MAX}"
        )
    size = 0
    for guard in guards:
        size += check_key(guard.key)
        if type(guard) is ValueIs:
            size += len(guard.value)
    for write in writes:
        size += check_key(write.key)
        if type(write) is Put:
            size += len(write.value)
    if size > TRANSACTION_BYTES_MAX:
        _check_sealed(size, writes)
    if len(writes) > 1:
        _check_many(writes)


def _check_sealed(size: int, writes: tuple[Put | Delete, ...]) -> None:
    """Raise unless encryption overhead alone puts the size over the limit."""
    is_sealed = any(type(w) is Put and w.value.startswith(SEALED_PREFIX) for w in writes)
    size_max = TRANSACTION_BYTES_MAX + (SEAL_BYTES_MAX if is_sealed else 0)
    if size > size_max:
        raise TransactionTooLarge(f"{size} bytes in one transaction; at most {size_max}")


def check_key(key: Key) -> int:
    """Raise unless this is a valid key; return its size in bytes."""
    if key.isascii():
        size = len(key)  # fast path: nearly all keys are ASCII
    else:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise InvalidKey(f"key {key!r} cannot be encoded as UTF-8") from None
    if not key.startswith("/") or "\0" in key:
        raise InvalidKey(f"key {key!r} must begin with '/' and contain no NUL")
    if size > KEY_BYTES_MAX:
        raise InvalidKey(f"key of {size} bytes; at most {KEY_BYTES_MAX}")
    return size


def check_span(span: Span) -> None:
    """Raise unless these bounds can be compared with keys."""
    for bound in (span.start, span.end or ""):
        try:
            bound.encode()
        except UnicodeEncodeError:
            raise InvalidKey(f"bound {bound!r} of a span cannot be encoded as UTF-8") from None


def holds(guard: Guard, current: Item | None) -> bool:
    """Whether a guard holds for the current item of its key."""
    # Evaluated for every guard of every write; the most frequent types come first.
    if type(guard) is RevisionIs:
        return current is not None and current.revision == guard.revision
    if type(guard) is Absent:
        return current is None
    if type(guard) is ValueIs:
        return current is not None and current.value == guard.value
    return current is not None


def resource_of(key: str) -> str | None:
    """The API resource that an object's key belongs to; None for keys that hold no object."""
    if not key.startswith(OBJECTS_PREFIX):
        return None
    first, _, rest = key[len(OBJECTS_PREFIX) :].partition("/")
    if "." in first or first in _TWO_SEGMENT_ROOTS:
        return f"{first}/{rest.partition('/')[0]}"
    return first


def _check_many(writes: tuple[Put | Delete, ...]) -> None:
    keys: set[str] = set()
    resources: dict[str, str] = {}
    for write in writes:
        if write.key in keys:
            raise InvalidTransaction(f"key {write.key} is written twice in one transaction")
        keys.add(write.key)
        resource = resource_of(write.key)
        if resource is None:
            continue
        if resource in resources:
            raise InvalidTransaction(
                f"keys {resources[resource]} and {write.key} are objects of one resource;"
                " a transaction may write one"
            )
        resources[resource] = write.key
