"""Results of a scan of raw values, with and without keys."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import Keyring
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.raw_scan import PLACES_MAX, UNREADABLE, Unopened, scan
from tests.support.encryption_files import write_encryption_file
from tests.support.storageversion_audit import stored_versions
from tests.unit.storageversion.named_keys import ENCRYPTED_ROOT, NamedKeys, key_id_of, seal

WIDGETS = GroupResource("example.com", "widgets")
ROOT = f"{ENCRYPTED_ROOT}widgets/"
V1 = b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{}}'
V2 = b'{"kind":"Widget","apiVersion":"example.com/v2","metadata":{}}'


async def store_with(*values: bytes) -> MemoryStorage:
    """Returns a store with these values under one root."""
    storage = MemoryStorage()
    for number, value in enumerate(values):
        await storage.commit(Transaction(writes=(Put(Key(f"{ROOT}{number}"), value),)))
    return storage


def counts(found: list[Unopened]) -> Counter[str]:
    return Counter({each.name: each.count for each in found})


async def test_values_are_counted_by_version_or_else_by_key() -> None:
    """Values under available keys are counted by version; the others by their key."""
    storage = await store_with(
        seal(key_id_of("new"), V2),
        seal(key_id_of("new"), V1),
        seal(key_id_of("gone"), V1),
        b"no object",
    )
    keys = NamedKeys(["new", IDENTITY])
    found = await scan(storage, ROOT, keys, keys.readable(WIDGETS))
    assert found.versions == Counter({"example.com/v2": 1, "example.com/v1": 1, UNREADABLE: 1})
    assert counts(found.unopened) == Counter({"aesgcm key gone": 1})
    assert found.unopened[0].places == [Key(f"{ROOT}2")]
    await storage.close()


async def test_unencrypted_values_that_are_not_accepted_are_called_identity() -> None:
    """For a server without `identity` in its configuration the number of unencrypted values is
    reported."""
    storage = await store_with(V1, V1, seal(key_id_of("new"), V1))
    keys = NamedKeys(["new"])
    found = await scan(storage, ROOT, keys, keys.readable(WIDGETS))
    assert counts(found.unopened) == Counter({IDENTITY: 2})
    await storage.close()


async def test_a_removed_key_counts_as_missing() -> None:
    """Values under a key that the new configuration lacks count, although they can still be
    decrypted."""
    storage = await store_with(seal(key_id_of("old"), V1))
    keys = NamedKeys(["old"])
    keys.change(["new"])
    found = await scan(storage, ROOT, keys, keys.readable(WIDGETS))
    assert counts(found.unopened) == Counter({key_id_of("old"): 1})
    await storage.close()


async def test_without_keys_nothing_encrypted_is_opened() -> None:
    """A server without keys counts unencrypted values, and no encrypted one as an object."""
    storage = await store_with(V1, seal(key_id_of("new"), V1))
    assert counts((await scan(storage, ROOT, None)).unopened) == Counter({"aesgcm key new": 1})
    assert await stored_versions(storage, ROOT) == Counter({"example.com/v1": 1})
    await storage.close()


def keyring_of(path: Path, *specs: str) -> Keyring:
    file = write_encryption_file(path, *specs)
    return Keyring(read_configuration(file.read_bytes()), Runtime.system(), plugins={})


async def test_damaged_values_are_told_from_wrong_keys(tmp_path: Path) -> None:
    """If a key decrypts other values of the resource, a value that it does not decrypt is damaged;
    if it
    decrypts none, it is the wrong key; and a key with an unknown name is missing."""
    keyring = keyring_of(tmp_path / "all", "aesgcm:a", "secretbox:b", "aesgcm:gone")
    mine = keyring_of(tmp_path / "mine", "aesgcm:a", "secretbox:b", "identity")
    storage = MemoryStorage()

    async def put(name: str, spec: str, *, is_damaged: bool = False) -> None:
        key = Key(f"{ROOT}{name}")
        [key_id] = [each for each in keyring.writable(WIDGETS) if each.startswith(f"{spec}:")]
        value = keyring.seal(key_id, key, V1)
        value = value[:-1] + bytes([value[-1] ^ 1]) if is_damaged else value
        await storage.commit(Transaction(writes=(Put(key, value),)))

    await put("good", "aesgcm:a")
    await put("bad", "aesgcm:a", is_damaged=True)
    found = await scan(storage, ROOT, mine, mine.readable(WIDGETS))
    assert (found.unopened, counts(found.damaged)) == ([], Counter({"aesgcm key a": 1}))
    assert found.damaged[0].places == [Key(f"{ROOT}bad")]
    assert found.versions == Counter({"example.com/v1": 1})
    for number in range(PLACES_MAX + 1):
        await put(f"wrong-{number}", "secretbox:b", is_damaged=True)
    await put("gone", "aesgcm:gone")
    found = await scan(storage, ROOT, mine, mine.readable(WIDGETS))
    assert counts(found.damaged) == Counter({"aesgcm key a": 1})
    assert list(map(str, found.unopened)) == [
        "1 under aesgcm key gone",
        f"{PLACES_MAX + 1} under secretbox key b, of which it has another secret",
    ]
    assert len(found.unopened[1].places) == PLACES_MAX
    await storage.close()


async def test_another_recorded_key_is_no_damage(tmp_path: Path) -> None:
    """Two servers have written under one name with different keys, before they compared them. The
    StorageState shows which values need the other key: they are not damaged, although the own key
    decrypts others."""
    mine = keyring_of(tmp_path / "mine", "aesgcm:a")
    other = keyring_of(tmp_path / "other", "aesgcm:a!")
    storage = MemoryStorage()
    for name, keyring in (("mine", mine), ("other", other)):
        key = Key(f"{ROOT}{name}")
        value = keyring.seal(keyring.write_key(WIDGETS), key, V1)
        await storage.commit(Transaction(writes=(Put(key, value),)))
    readable = mine.readable(WIDGETS)
    cases: list[tuple[tuple[str, ...], bool]] = [
        ((), True),
        (readable, True),
        (other.readable(WIDGETS), False),
    ]
    for recorded, is_damaged in cases:
        found = await scan(storage, ROOT, mine, readable, recorded=recorded)
        assert bool(found.damaged) is is_damaged
        assert bool(found.unopened) is not is_damaged
    await storage.close()
