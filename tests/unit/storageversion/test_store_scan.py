"""A value that a scan counts as decodable is decodable: on damaged values of every stored
format."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.apimachinery import protobuf
from restow.apis.storage_scan import StoredCount
from restow.encryption.decrypted_storage import DecryptedStorage
from restow.encryption.interface import Keys
from restow.encryption.providers import fingerprint
from restow.kinds.derived_types import all_types
from restow.registry.stored_bytes import Splicer
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.foreground_load import ForegroundLoad
from restow.storageversion.store_scan import StoreScanner
from tests.unit.encryption.keys_for_tests import IDENTITY, SECRETS, keyring, local

KEY = Key("/registry/pods/default/a")
SPLICER = Splicer("Pod", ("v1",))
CIPHERS = ("aesgcm", "aescbc", "secretbox")
POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": 'é\n"\\'},
        "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5},
            }
        ]
    },
    "status": {"phase": "Running"},
}


@cache
def keys() -> Keys:
    return keyring(("pods", [*(local(cipher, "a") for cipher in CIPHERS), IDENTITY]))


@cache
def plain(form: str) -> bytes:
    """Returns a stored value of a format; `foreign`: JSON written by another program."""
    if form == "protobuf":
        struct = all_types().of_kind("", "v1", "Pod")
        assert struct is not None
        return protobuf.write_envelope("v1", "Pod", protobuf.encode(struct, POD))
    head = {"kind": "Pod", "apiVersion": "v1"}
    return orjson.dumps(head | POD if form == "json" else POD | head) + b"\n"


Damage = tuple[str, int, bytes]
DAMAGE = st.tuples(
    st.sampled_from(("flip", "cut", "insert", "delete")),
    st.integers(min_value=0, max_value=1 << 14),
    st.binary(min_size=1, max_size=4)
    | st.sampled_from((b'"', b"\\u", b"\\ud800", b"[", b"}", b"9" * 400, b"1e999,", b"\0")),
)


def damaged(value: bytes, damage: Damage) -> bytes:
    how, place, more = damage
    index = place // 8 % max(1, len(value))
    match how:
        case "flip":
            return value[:index] + bytes([value[index] ^ (1 << place % 8)]) + value[index + 1 :]
        case "cut":
            return value[:index]
        case "insert":
            return value[:index] + more + value[index:]
        case _:
            return value[:index] + value[index + len(more) :]


def sealed(value: bytes, cipher: str) -> bytes:
    """Encrypts the value, unless the cipher is empty."""
    return keys().seal(f"{cipher}:a:{fingerprint(SECRETS['a'])}" if cipher else "", KEY, value)


async def scanned(value: bytes) -> tuple[StoredCount, bytes]:
    """Returns the row of the only value in a store, and the decrypted value."""
    storage, runtime = MemoryStorage(), Runtime.system()
    await storage.commit(Transaction(writes=(Put(KEY, value),)))
    scanner = StoreScanner(storage, keys(), runtime.clock, ForegroundLoad(runtime.clock.monotonic))
    page = await scanner.page()
    (row,) = page.status.counts
    item = await DecryptedStorage(storage, keys()).get(KEY)
    assert item is not None
    return row, item.value


def is_decodable(row: StoredCount) -> bool:
    return (row.problem, row.api_version, row.kind) == ("", "v1", "Pod")


def check(value: bytes) -> bool:
    """Returns whether the scan counts a value as decodable; if so, it must be."""
    row, opened = asyncio.run(scanned(value))
    if is_decodable(row):
        _, version, body = SPLICER.serve(opened, 7)
        assert (version, orjson.loads(body)["kind"]) == ("v1", "Pod")
    return is_decodable(row)


@pytest.mark.parametrize("cipher", ["", *CIPHERS])
@pytest.mark.parametrize("form", ["json", "foreign", "protobuf"])
def test_valid_values_are_decodable(form: str, cipher: str) -> None:
    """Every stored format that servers read."""
    assert check(sealed(plain(form), cipher))


@given(st.sampled_from(("json", "foreign", "protobuf")), st.lists(DAMAGE, min_size=1, max_size=3))
@example("json", [("insert", 8 * plain("json").index(b"80"), b"1e999,")])
def test_damaged_values(form: str, damages: list[Damage]) -> None:
    """After any flips, cuts, insertions or deletions: counted as decodable means decodable."""
    value = plain(form)
    for damage in damages:
        value = damaged(value, damage) or b"?"
    check(value)


@given(
    st.sampled_from(("json", "protobuf")),
    st.sampled_from(CIPHERS),
    st.lists(DAMAGE, max_size=2),
    st.lists(DAMAGE, max_size=2),
)
def test_damaged_values_under_encryption(
    form: str, cipher: str, before: list[Damage], after: list[Damage]
) -> None:
    """The same with damage before the encryption, after it, or both."""
    value = plain(form)
    for damage in before:
        value = damaged(value, damage)
    value = sealed(value, cipher)
    for damage in after:
        value = damaged(value, damage) or b"?"
    check(value)


@pytest.mark.parametrize("form", ["json", "foreign", "protobuf"])
def test_every_truncation_is_found(form: str) -> None:
    """A truncated value is not decodable, unless it has the complete object."""
    value = plain(form)
    whole = len(value) - len(b"\n")
    if form == "protobuf":
        whole -= len(b"\x1a\x00\x22")  # empty fields of the envelope, after the message
    assert [end for end in range(1, whole) if check(value[:end])] == []
    assert check(value[:whole])


def test_every_flipped_bit_of_a_protobuf_value() -> None:
    """The envelope may be valid while the message in it is not."""
    value = plain("protobuf")
    found = {check(damaged(value, ("flip", place, b""))) for place in range(8 * len(value))}
    assert found == {True, False}


def test_a_damaged_message_in_a_valid_envelope() -> None:
    """It has a version, but is not decodable."""
    envelope = protobuf.read_envelope(plain("protobuf"))
    broken = envelope.raw.replace(b"default", b"defaul\xff", 1)
    row, opened = asyncio.run(scanned(protobuf.write_envelope("v1", "Pod", broken)))
    assert (row.problem, row.api_version, row.encoding) == ("NotDecodable", "v1", "protobuf")
    with pytest.raises(StoreDamaged):
        SPLICER.serve(opened, 7)


def test_yaml_is_not_decodable() -> None:
    """restow servers do not read YAML, although the version can be determined."""
    row, _ = asyncio.run(scanned(b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"))
    assert (row.problem, row.api_version, row.encoding) == ("NotDecodable", "v1", "yaml")
