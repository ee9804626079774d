"""The validation that every driver runs before it accesses its store."""

import pytest

from restow.storage.checks import check_key, check_transaction, holds, resource_of
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
    Present,
    Put,
    Revision,
    RevisionIs,
    Transaction,
    ValueIs,
)

RESOURCES = {
    "/registry/pods/default/a": "pods",
    "/registry/pods/default/b": "pods",
    "/registry/namespaces/a": "namespaces",
    "/registry/services/specs/default/a": "services/specs",
    "/registry/services/endpoints/default/a": "services/endpoints",
    "/registry/leases/kube-system/a": "leases",
    "/registry/example.com/widgets/default/a": "example.com/widgets",
    "/registry/example.com/gadgets/default/a": "example.com/gadgets",
    "/registry/migration.k8s.io/storagestates/a": "migration.k8s.io/storagestates",
    "/registry/namespaces/a.b": "namespaces",
    "/registry/namespaces": "namespaces",
    "/registry/example.com": "example.com/",
    "/registry/": "",
    "/registry": None,
    "/registryx/pods/a": None,
    "/restow/servers/a": None,
    "/t/a": None,
}


@pytest.mark.parametrize(("key", "resource"), RESOURCES.items())
def test_resource_of(key: str, resource: str | None) -> None:
    """A key's resource is its first segment, or the first two if the first is only a part."""
    assert resource_of(key) == resource


@pytest.mark.parametrize(
    ("key", "size"),
    [("/", 1), ("/a", 2), ("/é", 3), ("/\U0010ffff", 5), ("/" + "x" * 1023, 1024), ("/\n", 2)],
)
def test_good_keys(key: str, size: int) -> None:
    """A key is text that begins with a slash; its size is that of its UTF-8."""
    assert check_key(Key(key)) == size


@pytest.mark.parametrize("key", ["", "a", "a/", "\0/", "/\0", "/a\0b", "/\ud800"])
def test_bad_keys(key: str) -> None:
    """A key without a leading slash, with NUL, or with a lone surrogate is invalid."""
    with pytest.raises(InvalidKey):
        check_key(Key(key))


def test_key_too_long() -> None:
    """The limit of a key counts bytes, not characters."""
    check_key(Key("/" + "é" * ((KEY_BYTES_MAX - 1) // 2)))
    with pytest.raises(InvalidKey, match="1025 bytes"):
        check_key(Key("/" + "é" * (KEY_BYTES_MAX // 2)))


A = Key("/a")
ITEM = Item(A, b"x", Revision(7), Revision(5))


@pytest.mark.parametrize(
    ("guard", "for_item", "for_none"),
    [
        (Absent(A), False, True),
        (Present(A), True, False),
        (RevisionIs(A, Revision(7)), True, False),
        (RevisionIs(A, Revision(5)), False, False),
        (RevisionIs(A, Revision(0)), False, False),
        (ValueIs(A, b"x"), True, False),
        (ValueIs(A, b""), False, False),
    ],
)
def test_holds(guard: Guard, for_item: bool, for_none: bool) -> None:
    """Only `Absent` holds for a key that does not exist."""
    assert holds(guard, ITEM) == for_item
    assert holds(guard, None) == for_none


def test_operations_are_counted_together() -> None:
    """Guards and writes share one limit."""
    guards = tuple(Absent(Key(f"/{number}")) for number in range(OPERATIONS_MAX - 1))
    check_transaction(Transaction(guards, (Delete(A),)))
    with pytest.raises(TransactionTooLarge, match="121 operations"):
        check_transaction(Transaction(guards, (Delete(A), Delete(Key("/b")))))


def test_bytes_are_counted_together() -> None:
    """Keys and values of guards and writes share one limit, which is itself allowed."""
    room = TRANSACTION_BYTES_MAX - 4
    half = room // 2
    guard = ValueIs(A, b"x" * half)
    check_transaction(Transaction((guard,), (Put(A, b"x" * (room - half)),)))
    with pytest.raises(TransactionTooLarge, match="1500001 bytes"):
        check_transaction(Transaction((guard,), (Put(A, b"x" * (room - half + 1)),)))


@pytest.mark.parametrize("is_first", [True, False])
def test_the_limit_allows_for_encryption(is_first: bool) -> None:
    """A transaction with an encrypted value may be larger, wherever that is among the writes."""
    sealed = SEALED_PREFIX.ljust(TRANSACTION_BYTES_MAX // 2, b"x")
    rest = b"x" * (TRANSACTION_BYTES_MAX + SEAL_BYTES_MAX - len(sealed) - 4)

    def transaction(value: bytes) -> Transaction:
        writes = (Put(A, sealed), Put(Key("/b"), value))
        return Transaction(writes=writes if is_first else writes[::-1])

    check_transaction(transaction(rest))
    with pytest.raises(TransactionTooLarge, match="1508193 bytes in one transaction; at most"):
        check_transaction(transaction(rest + b"x"))


def test_every_key_is_checked() -> None:
    """An invalid key is found at any position."""
    bad, good = Key("bad"), Delete(A)
    for transaction in (
        Transaction((Absent(A), Absent(bad)), (good,)),
        Transaction(writes=(good, Delete(bad))),
        Transaction(writes=(good, Put(bad, b""))),
    ):
        with pytest.raises(InvalidKey):
            check_transaction(transaction)


def test_no_writes() -> None:
    """A transaction without writes is invalid."""
    with pytest.raises(InvalidTransaction):
        check_transaction(Transaction((Absent(A),)))


@pytest.mark.parametrize(
    "keys",
    [
        ("/a", "/a"),
        ("/restow/x", "/b", "/restow/x"),
        ("/registry/pods/a/b", "/t/x", "/registry/pods/c/d"),
        ("/registry/services/specs/a/b", "/registry/services/specs/a/c"),
        ("/registry/x.io/ys/a", "/registry/x.io/ys/b"),
    ],
)
def test_writes_that_exclude_each_other(keys: tuple[str, ...]) -> None:
    """No key twice, and no two objects of one resource, whether put or deleted."""
    puts = tuple(Put(Key(key), b"") for key in keys)
    deletes = tuple(Delete(Key(key)) for key in keys)
    cases: list[tuple[Put | Delete, ...]] = [puts, deletes, (*puts[:-1], deletes[-1])]
    for writes in cases:
        with pytest.raises(InvalidTransaction):
            check_transaction(Transaction(writes=writes))


def test_writes_that_go_together() -> None:
    """One object of each resource, and any number of restow's own keys."""
    keys = [
        "/registry/pods/a/b",
        "/registry/services/specs/a/b",
        "/registry/services/endpoints/a/b",
        "/registry/x.io/ys/a",
        "/registry/x.io/zs/a",
        "/registry/y.io/ys/a",
        "/restow/a",
        "/restow/b",
    ]
    check_transaction(Transaction(writes=tuple(Delete(Key(key)) for key in keys)))
