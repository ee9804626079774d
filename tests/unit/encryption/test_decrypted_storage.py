"""A storage wrapper that decrypts, over each kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.encryption.decrypted_storage import DecryptedStorage
from restow.encryption.decryption import error_of_sealed
from restow.encryption.key_reload import ReloadedKeys
from restow.encryption.keyring import Keyring
from restow.kinds.builtin import find_kind
from restow.registry.stored_bytes import Splicer
from restow.storage.drivers import open_storage
from restow.storage.errors import CannotOpen, PluginSilent, Unavailable
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Event,
    Key,
    Put,
    Refused,
    Revision,
    Span,
    Storage,
    Transaction,
)
from restow.storage.memory import MemoryStorage
from tests.support.kms_plugin import KmsPlugin
from tests.unit.encryption.keys_for_tests import IDENTITY, document, keyring, kms, local

SECRET: Final = GroupResource("", "secrets")
ROOT: Final = "/registry/secrets/"
EVERYTHING: Final = Span.of_prefix("/registry/")
ONE: Final = Key("/registry/secrets/default/one")
TWO: Final = Key("/registry/secrets/default/two")
POD: Final = Key("/registry/pods/default/one")
VALUE: Final = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"one"}}\n'


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    address = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"
    storage = await open_storage(address, Runtime.system())
    yield storage
    await storage.close()


def keys_of(*names: str) -> Keyring:
    return keyring(("secrets", [local("aesgcm", *names), IDENTITY]))


async def put(storage: Storage, key: Key, value: bytes) -> Revision:
    outcome = await storage.commit(Transaction(writes=(Put(key, value),)))
    assert isinstance(outcome, Done)
    return outcome.revision


async def put_sealed(storage: Storage, key: Key, value: bytes, keys: Keyring) -> Revision:
    return await put(storage, key, keys.seal(keys.write_key(SECRET), key, value))


async def test_reads_are_decrypted(store: Storage) -> None:
    """Get, range, watch and a refused commit return decrypted values."""
    keys = keys_of("a")
    opened = DecryptedStorage(store, keys)
    before = await opened.revision()
    first = await put_sealed(opened, ONE, b"1", keys)
    await put(opened, POD, b"pod")
    second = await put_sealed(opened, ONE, b"2", keys)
    await opened.commit(Transaction(writes=(Delete(ONE),)))
    third = await put_sealed(opened, ONE, b"3", keys)

    raw = await opened.sealed.get(ONE)
    assert raw is not None
    assert raw.value.startswith(b"k8s:enc:aesgcm:v1:a:")
    item = await opened.get(ONE)
    assert item is not None
    assert (item.value, item.revision) == (b"3", third)
    past = await opened.get(ONE, revision=first)
    assert past is not None
    assert past.value == b"1"
    page = await opened.range(EVERYTHING, with_total=True)
    assert [(item.key, item.value) for item in page.items] == [(POD, b"pod"), (ONE, b"3")]
    assert page.total == await opened.count(EVERYTHING) == 2
    refused = await opened.commit(Transaction(guards=(Absent(ONE),), writes=(Put(ONE, b"4"),)))
    assert isinstance(refused, Refused)
    assert refused.current == item

    watch = opened.watch(EVERYTHING, after=before)
    watch.expect(third)
    events: list[Event] = []
    async for batch in watch:
        events += batch.events
        if batch.revision >= third:
            break
    await watch.close()
    shown = [(event.value, event.previous and event.previous.value) for event in events]
    assert shown == [(b"1", None), (b"pod", None), (b"2", b"1"), (None, b"2"), (b"3", None)]
    assert events[2].revision == second


async def test_undecryptable_values_are_passed_on(store: Storage) -> None:
    """It is still returned, reported with the reason, and readable once its key is back."""
    await put_sealed(store, ONE, VALUE, keys_of("a"))
    keys = keys_of("b")
    told: list[frozenset[str]] = []
    opened = DecryptedStorage(store, keys)
    opened.recovered.subscribe(told.append)
    item, raw = await opened.get(ONE), await store.get(ONE)
    assert item == raw
    assert item is not None
    with pytest.raises(
        CannotOpen, match="aesgcm key a, and no key of this server can decrypt it: it was"
    ):
        Splicer("Secret", ("v1",)).serve(item.value, item.revision)
    assert not told
    opened.keys = keys_of("b", "a")
    keys.changed.emit()
    assert told == [frozenset({ROOT})]
    item = await opened.get(ONE)
    assert item is not None
    assert item.value == VALUE


async def test_plain_values_where_none_are_accepted() -> None:
    """A plain value that was inserted into the store is not decoded as an object."""
    opened = DecryptedStorage(MemoryStorage(), keyring(("secrets", [local("aesgcm", "a")])))
    await put(opened, ONE, VALUE)
    item = await opened.get(ONE)
    assert item is not None
    with pytest.raises(CannotOpen, match="this server accepts no plain values"):
        Splicer("Secret", ("v1",)).serve(item.value, item.revision)


async def test_each_value_of_a_watch_is_decrypted_once() -> None:
    """The previous value of a key is not decrypted again."""
    keys = keys_of("a")
    opened = DecryptedStorage(MemoryStorage(), keys)
    after = await opened.revision()
    for number in range(10):
        await put_sealed(opened, ONE, b"%d" % number, keys)
    count, real = 0, keys.open

    def counting(key: Key, value: bytes) -> object:
        nonlocal count
        count += 1
        return real(key, value)

    keys.open = counting  # type: ignore[method-assign, assignment]
    watch = opened.watch(EVERYTHING, after=after)
    events: list[Event] = []
    while len(events) < 10:
        events += (await anext(watch)).events
    previous = [event.previous.value for event in events if event.previous is not None]
    assert previous == [b"%d" % each for each in range(9)]
    assert count == 10
    await watch.close()


async def test_closing_leaves_the_keys_alone() -> None:
    """A closed storage is not notified of key changes."""
    keys = keys_of("a")
    opened = DecryptedStorage(MemoryStorage(), keys)
    assert len(list(keys.changed)) == 1
    await opened.close()
    assert not list(keys.changed)


def test_pinned_kinds_are_plain() -> None:
    """Kinds that servers agree by are never encrypted, whatever the wildcards are."""
    keys = keyring(("*.*", [local("aesgcm", "a")]))
    kind = find_kind("coordination.k8s.io", "Lease")
    assert kind is not None
    assert keys.write_key(kind.group_resource) == ""
    assert keys.open(Key("/registry/leases/kube-system/x"), b"{}") == (b"{}", "")


class Served:
    """Two servers with one plug-in: the other one writes, this one reads."""

    def __init__(self, service: KmsPlugin, mine: ReloadedKeys, other: ReloadedKeys) -> None:
        self.service = service
        self.keys = mine
        self.other = other
        self.told: list[frozenset[str]] = []
        self.storage = DecryptedStorage(MemoryStorage(), mine)
        self.storage.recovered.subscribe(self.told.append)

    async def write(self, key: Key, value: bytes) -> None:
        await put_sealed(self.storage, key, value, self.other.keyring)

    async def recover(self) -> None:
        self.service.decrypts_badly = "well"
        await self.keys.keyring.plugins["vault"].poll()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    path = tmp_path / "encryption.json"
    async with KmsPlugin(str(tmp_path / "kms.sock"), Runtime.simulated(1)) as service:
        path.touch(mode=0o600)
        path.write_bytes(document(("secrets", [kms(service.endpoint), IDENTITY])))
        mine, other = (ReloadedKeys(str(path), Runtime.system()) for _ in range(2))
        await mine.load()
        await other.load()
        yield Served(service, mine, other)
        await mine.close()
        await other.close()


async def test_seeds_are_decrypted_on_demand(served: Served) -> None:
    """Values under another server's seed can be decrypted everywhere, after one call."""
    after = await served.storage.revision()
    await served.write(ONE, b"1")
    await served.write(TWO, b"2")
    page = await served.storage.range(EVERYTHING)
    assert [item.value for item in page.items] == [b"1", b"2"]
    batch = await anext(served.storage.watch(EVERYTHING, after=after))
    assert [event.value for event in batch.events] == [b"1", b"2"]
    assert served.service.calls["Decrypt"] == 1


@pytest.mark.parametrize("mood", ["fail", "hang"])
async def test_a_silent_plugin(mood: str, served: Served) -> None:
    """Reads get a retryable error; a watch continues, and reports afterwards what to reload."""
    after = await served.storage.revision()
    await served.write(ONE, b"1")
    await put(served.storage, POD, b"pod")
    served.service.decrypts_badly = mood  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="KMS plug-in vault"):
        await served.storage.get(ONE)
    with pytest.raises(Unavailable):
        await served.storage.range(EVERYTHING)
    watch = served.storage.watch(EVERYTHING, after=after)
    batch = await anext(watch)
    sealed, plain = (event.value for event in batch.events)
    assert sealed is not None
    with pytest.raises(PluginSilent, match="plug-in vault, which does not respond"):
        raise error_of_sealed(sealed)
    assert plain == b"pod"
    assert "cannot decrypt" in served.keys.problem(), "its status is well"
    vault = served.keys.keyring.plugins["vault"]
    await vault.poll()
    assert "cannot decrypt" in served.keys.problem(), "nothing has changed"
    refused = await served.storage.commit(
        Transaction(guards=(Absent(ONE),), writes=(Put(ONE, b"x"),))
    )
    assert isinstance(refused, Refused)
    assert not served.told
    await served.recover()
    assert served.told == [frozenset({ROOT})]
    assert served.keys.problem() == ""
    item = await served.storage.get(ONE)
    assert item is not None
    assert item.value == b"1"
    await watch.close()


async def test_a_cancelled_reader_loses_nothing(served: Served) -> None:
    """A batch that was being decrypted when its reader was cancelled goes to the next reader."""
    after = await served.storage.revision()
    await served.write(ONE, b"1")
    served.service.decrypts_badly = "hang"
    watch = served.storage.watch(EVERYTHING, after=after)
    reader = asyncio.ensure_future(watch.__anext__())
    while not served.service.calls["Decrypt"]:  # noqa: ASYNC110 - gRPC sends no notification
        await asyncio.sleep(0.005)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await served.recover()
    batch = await watch.__anext__()
    assert [event.key for event in batch.events] == [ONE]
    await watch.close()
