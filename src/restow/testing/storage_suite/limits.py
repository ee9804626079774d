"""Limits: transactions that every driver accepts, and those that every driver rejects."""

from __future__ import annotations

import pytest

from restow.storage.errors import (
    FutureRevision,
    InvalidKey,
    InvalidTransaction,
    StorageError,
    TransactionTooLarge,
)
from restow.storage.interface import (
    EVERYTHING,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    SEAL_BYTES_MAX,
    SEALED_PREFIX,
    TRANSACTION_BYTES_MAX,
    Absent,
    Delete,
    Guard,
    Key,
    Put,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    ValueIs,
    Write,
)
from restow.testing.storage_suite.steps import commit, k, put, record, refuse

OBJECT_PAIRS_ALLOWED = [
    ("/registry/pods/ns/a", "/registry/configmaps/ns/a"),
    ("/registry/services/specs/ns/a", "/registry/services/endpoints/ns/a"),
    ("/registry/example.com/widgets/ns/a", "/registry/example.com/gadgets/ns/a"),
    ("/registry/a.example.com/widgets/x", "/registry/b.example.com/widgets/x"),
    ("/registry/pods/ns/a", "/restow/encoders/pods/a"),
    ("/restow/servers/a", "/restow/servers/b"),
]
OBJECT_PAIRS_REFUSED = [
    ("/registry/pods/ns/a", "/registry/pods/ns/b"),
    ("/registry/pods/one/a", "/registry/pods/two/a"),
    ("/registry/namespaces/a", "/registry/namespaces/b"),
    ("/registry/services/specs/ns/a", "/registry/services/specs/ns/b"),
    ("/registry/example.com/widgets/ns/a", "/registry/example.com/widgets/ns/b"),
]


class LimitSuite:
    async def test_most_operations(self, storage: Storage) -> None:
        """As many operations as the limit allows are accepted, in any mixture."""
        half = OPERATIONS_MAX // 2
        guards = tuple(Absent(k(f"{number}")) for number in range(half))
        puts = tuple(Put(k(f"{number}"), b"") for number in range(half))
        await commit(storage, *puts, guards=guards)
        deletes = tuple(Delete(k(f"{number}")) for number in range(half))
        more = tuple(Put(k(f"more/{number}"), b"") for number in range(OPERATIONS_MAX - half))
        await commit(storage, *deletes, *more)
        assert await storage.count(EVERYTHING) == len(more)

    async def test_most_guards(self, storage: Storage) -> None:
        """The last of the maximum number of guards is evaluated like any other."""
        await put(storage, "last", b"x")
        guards: list[Guard] = [Absent(k(f"{number}")) for number in range(OPERATIONS_MAX - 2)]
        guards.append(ValueIs(k("last"), b"y"))
        refused = await refuse(storage, Put(k("a"), b""), guards=tuple(guards))
        assert refused.guard == guards[-1]
        assert refused.current == await storage.get(k("last"))

    async def test_too_many_operations(self, storage: Storage) -> None:
        """One operation above the limit is rejected, guards and writes counted together."""
        guards = tuple(Absent(k(f"{number}")) for number in range(OPERATIONS_MAX))
        await assert_untouched(
            storage, Transaction(guards, (Put(k("a"), b""),)), TransactionTooLarge
        )
        puts = tuple(Put(k(f"{number}"), b"") for number in range(OPERATIONS_MAX + 1))
        await assert_untouched(storage, Transaction(writes=puts), TransactionTooLarge)

    async def test_most_bytes(self, storage: Storage) -> None:
        """A transaction of exactly the maximum size is accepted, with long keys in many guards.

        A driver may have to send guards twice: to compare them, and to read their keys.
        """
        guards = tuple(Absent(long_key(number)) for number in range(OPERATIONS_MAX - 1))
        room = TRANSACTION_BYTES_MAX - len(guards) * KEY_BYTES_MAX - len(k("a"))
        revision = await commit(storage, Put(k("a"), b"x" * room), guards=guards)
        found = await storage.get(k("a"))
        assert found is not None
        assert (len(found.value), found.revision) == (room, revision)

    async def test_most_bytes_that_are_encrypted(self, storage: Storage) -> None:
        """The limit of an encrypted value is larger by the encryption overhead, and no more: what
        can be stored without encryption can be stored with it."""
        head = SEALED_PREFIX + b"aesgcm:v1:k:"
        room = TRANSACTION_BYTES_MAX + SEAL_BYTES_MAX - len(k("a")) - len(head)
        await put(storage, "a", head + b"x" * room)
        found = await storage.get(k("a"))
        assert found is not None
        assert len(found.value) == room + len(head)
        more = Transaction(writes=(Put(k("b"), head + b"x" * (room + 1)),))
        await assert_untouched(storage, more, TransactionTooLarge)

    async def test_biggest_guard(self, storage: Storage) -> None:
        """A guard may have nearly the maximum size, and be refused with an item as large."""
        room = TRANSACTION_BYTES_MAX - len(k("a"))
        await put(storage, "a", b"x" * room)
        guard = ValueIs(k("a"), b"y" * (room - len(k("b"))))
        refused = await refuse(storage, Put(k("b"), b""), guards=(guard,))
        assert refused.current == await storage.get(k("a"))

    async def test_too_many_bytes(self, storage: Storage) -> None:
        """One byte above the limit is rejected, wherever the bytes are."""
        room = TRANSACTION_BYTES_MAX - len(k("a")) - len(k("b"))
        for transaction in (
            Transaction(writes=(Put(k("a"), b"x" * (room + 1)), Delete(k("b")))),
            Transaction((ValueIs(k("a"), b"x" * (room + 1)),), (Delete(k("b")),)),
            Transaction((Absent(k("a")),), (Put(k("b"), b"x" * (room + 1)),)),
        ):
            await assert_untouched(storage, transaction, TransactionTooLarge)

    async def test_longest_key(self, storage: Storage) -> None:
        """A key of the maximum length works in every method, also with multi-byte characters."""
        wide = Key("/t/" + "é" * ((KEY_BYTES_MAX - 3) // 2))
        for key in (long_key(1), wide):
            revision = await commit(storage, Put(key, b"x"), guards=(Absent(key),))
            found = await storage.get(key)
            assert found is not None
            assert found.revision == revision
            gone = await commit(storage, Delete(key), guards=(ValueIs(key, b"x"),))
            assert gone == revision + 1

    @pytest.mark.parametrize("bad", ["", "a", "t/a", "/a\0b", "/\ud800", "/" + "é" * 512])
    async def test_bad_key(self, storage: Storage, bad: str) -> None:
        """An invalid key is rejected in a write and in a guard."""
        key = Key(bad)
        good = Put(k("a"), b"")
        for transaction in (
            Transaction(writes=(good, Put(key, b""))),
            Transaction(writes=(good, Delete(key))),
            Transaction((Absent(key),), (good,)),
        ):
            await assert_untouched(storage, transaction, InvalidKey)

    @pytest.mark.parametrize("surrogate", [0xD800, 0xDCFF])
    async def test_bad_span(self, storage: Storage, surrogate: int) -> None:
        """Bounds that are not UTF-8 are rejected by name: by a range, a count and a watch."""
        span = Span.of_prefix(f"/{chr(surrogate)}")
        with pytest.raises(InvalidKey):
            await storage.range(span)
        with pytest.raises(InvalidKey):
            await storage.count(span)
        with pytest.raises(InvalidKey):
            storage.watch(span, after=await storage.revision())

    @pytest.mark.parametrize("far", [2**62, 2**63, 2**70])
    async def test_revision_that_never_comes(self, storage: Storage, far: int) -> None:
        """A revision of any size is handled like one that does not exist yet."""
        await put(storage, "a")
        beyond, now = Revision(far), await storage.revision()
        for asking in (
            storage.get(k("a"), revision=beyond),
            storage.range(EVERYTHING, revision=beyond),
            storage.count(EVERYTHING, revision=beyond),
            storage.compact(beyond),
        ):
            with pytest.raises(FutureRevision) as caught:
                await asking
            assert (caught.value.asked, caught.value.current) == (beyond, now)
        for number in (beyond, Revision(-far)):
            guard = RevisionIs(k("a"), number)
            assert (await refuse(storage, Put(k("a"), b""), guards=(guard,))).guard == guard
        await storage.watch(EVERYTHING, after=beyond).close()

    async def test_no_writes(self, storage: Storage) -> None:
        """A transaction without writes is rejected: it would have no effect."""
        await assert_untouched(storage, Transaction(), InvalidTransaction)
        await assert_untouched(storage, Transaction((Absent(k("a")),)), InvalidTransaction)

    @pytest.mark.parametrize("second", [Put(k("a"), b"2"), Delete(k("a"))], ids=["put", "delete"])
    async def test_key_written_twice(self, storage: Storage, second: Write) -> None:
        """A key may be written once: one revision has one value of it."""
        writes = (Put(k("a"), b"1"), Put(k("b"), b""), second)
        await assert_untouched(storage, Transaction(writes=writes), InvalidTransaction)

    @pytest.mark.parametrize("pair", OBJECT_PAIRS_ALLOWED, ids=" ".join)
    async def test_objects_of_two_resources(self, storage: Storage, pair: tuple[str, str]) -> None:
        """One transaction may write objects of different resources, and any of restow's keys."""
        one, two = map(Key, pair)
        await commit(storage, Put(one, b"1"), Put(two, b"2"))
        await commit(storage, Delete(one), Put(two, b"2"))
        assert await storage.count(EVERYTHING) == 1

    @pytest.mark.parametrize("pair", OBJECT_PAIRS_REFUSED, ids=" ".join)
    async def test_objects_of_one_resource(self, storage: Storage, pair: tuple[str, str]) -> None:
        """A transaction that writes or deletes two objects of one resource is rejected."""
        one, two = map(Key, pair)
        for writes in (
            (Put(one, b"1"), Put(two, b"2")),
            (Put(one, b"1"), Delete(two)),
            (Delete(one), Delete(two)),
        ):
            await assert_untouched(storage, Transaction(writes=writes), InvalidTransaction)
        await commit(storage, Put(one, b"1"), guards=(Absent(one), Absent(two)))

    async def test_deletion_of_big_values(self, storage: Storage) -> None:
        """One small commit may delete many megabytes, and watchers get every previous value."""
        size = TRANSACTION_BYTES_MAX - 100
        values = {f"{number}": b"%d" % number * size for number in range(6)}  # one digit each
        for name, value in values.items():
            await put(storage, name, value)
        before = await storage.revision()
        revision = await commit(storage, *(Delete(k(name)) for name in values))
        seen = await record(storage, EVERYTHING, after=before, upto=revision)
        gone = {event.key: event.previous.value for event in seen.events if event.previous}
        assert gone == {k(name): value for name, value in values.items()}


def long_key(number: int) -> Key:
    """A key of the maximum length."""
    return Key(f"/t/{number:03}/".ljust(KEY_BYTES_MAX, "x"))


async def assert_untouched(
    storage: Storage, transaction: Transaction, error: type[StorageError]
) -> None:
    """Assert that a transaction is rejected as invalid, and that nothing was written."""
    before = await storage.range(EVERYTHING)
    with pytest.raises(error):
        await storage.commit(transaction)
    assert await storage.range(EVERYTHING) == before
