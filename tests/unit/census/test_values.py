"""Each form of a raw value, and values of no known form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.census.values import UNREADABLE, UNREADABLE_SEAL, Stored, read_value
from tests.unit.census.stores import as_json, as_protobuf, message

NO_OBJECTS = (b"5", b"null", b"[]", b'"a"')
NESTED = b'{"kind":"Pod","apiVersion":"v1","a":' + b"[" * 100_000


@pytest.mark.parametrize(
    ("value", "api_version", "kind"),
    [
        (as_json("apps/v1", "Deployment", spec={"apiVersion": "no"}), "apps/v1", "Deployment"),
        (b'{"apiVersion":"a.dev/v2","kind":"Widget","metadata":{}}\n', "a.dev/v2", "Widget"),
        (b'{"metadata":{"name":"a"},"spec":{},"kind":"Pod",\n "apiVersion" : "v1"}', "v1", "Pod"),
        (b'{"apiVersion":"\\u0076\\u0031","kind":"Pod","metadata":{}}', "v1", "Pod"),
    ],
)
def test_json(value: bytes, api_version: str, kind: str) -> None:
    """The version is found anywhere in the object, but only at the top level."""
    assert read_value(value) == Stored("json", api_version, kind)


@pytest.mark.parametrize(
    "value",
    [
        b'{"apiVersion":"v1","metadata":{"name":"a"}}',
        b'{"kind":"","apiVersion":"v1","metadata":{"name":"a"}}',
        b'{"kind":"Pod","apiVersion":"v1"}',
        *(b'{"kind":"Pod","apiVersion":"v1","metadata":%b}' % each for each in NO_OBJECTS),
    ],
)
def test_a_version_and_no_object(value: bytes) -> None:
    """A value with a version that servers cannot read is not counted as an object."""
    found = read_value(value)
    assert (found.api_version, found.is_object) == ("v1", False)


@pytest.mark.parametrize("data", [b'"\xff"', b"1e999", b"9" * 400, b"[" * 300 + b"]" * 300])
def test_json_that_servers_cannot_read(data: bytes) -> None:
    """Strings that are not UTF-8, infinite numbers, and values nested too deep to be written
    again."""
    value = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"data":%b}' % data
    assert read_value(value) == UNREADABLE


def test_texts_that_are_not_ascii() -> None:
    """UTF-8 is decoded."""
    value = '{"kind":"Pod","apiVersion":"v1","metadata":{},"data":"é"}'.encode()
    assert read_value(value) == Stored("json", "v1", "Pod")


def test_protobuf() -> None:
    """The envelope of Kubernetes contains the version; this is the example in its documentation."""
    frame = bytes.fromhex(
        "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412030102031a002200"
    )
    assert read_value(frame) == Stored("protobuf", "apps/v1", "Deployment")
    assert read_value(as_protobuf("v1", "Secret", b"x" * 3000)) == Stored(
        "protobuf", "v1", "Secret"
    )


def test_protobuf_of_a_newer_server() -> None:
    """Unknown fields, in any order, are skipped."""
    meta = message((7, b"new"), (2, b"Pod"), (1, b"v1"))
    value = b"k8s\0" + b"\x48\x05" + message((9, b"?"), (2, b"raw"), (1, meta))
    assert read_value(value) == Stored("protobuf", "v1", "Pod")


def test_yaml() -> None:
    """A server may be configured to store YAML; its top level contains the version."""
    value = b"apiVersion: apps/v1\nkind: Deployment\nspec:\n  apiVersion: v9\n"
    assert read_value(value) == Stored("yaml", "apps/v1", "Deployment")
    assert read_value(b'data: {}\nkind: "Secret"\napiVersion: "v1"\n') == Stored(
        "yaml", "v1", "Secret"
    )


@pytest.mark.parametrize("provider", ["aescbc", "aesgcm", "secretbox", "something-new"])
def test_encrypted(provider: str) -> None:
    """The prefix names provider and key; the ciphertext is not inspected."""
    value = f"k8s:enc:{provider}:v1:key-2:".encode() + bytes(range(256))
    assert read_value(value) == Stored("encrypted", provider=provider, scheme="v1", key="key-2")


def test_kms() -> None:
    """KMS v1 names its plug-in; v2 also names the key that the plug-in used."""
    first = b"k8s:enc:kms:v1:vault:\x00\x10" + b"e" * 40
    assert read_value(first) == Stored("encrypted", provider="kms", scheme="v1", key="vault")
    second = b"k8s:enc:kms:v2:vault:" + message((1, b"data"), (2, b"key-7"), (3, b"seed"))
    assert read_value(second) == Stored(
        "encrypted", provider="kms", scheme="v2", key="vault", key_id="key-7"
    )
    broken = b"k8s:enc:kms:v2:vault:\xff\xff"
    assert read_value(broken) == Stored("encrypted", provider="kms", scheme="v2", key="vault")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"null",
        b"12345",
        b"[]",
        b"{}",
        b'"apiVersion"',
        b'{"apiVersion":7}',
        b'{"apiVersion":""}',
        b'{"kind":"Pod","apiVersion":"v1"',
        b'{"kind":"Pod","apiVersion":"v1"} {"kind"',
        b'{"apiVersion":"' + b"v" * 5000 + b'"}',
        NESTED,
        b"k8s\0",
        b"k8s\0\xff\xff\xff",
        b"k8s\0" + message((1, b"")),
        b"k8s\0" + message((1, message((2, b"Pod")))),
        b"k8s\0\x08\x01",
        b"k8s\0\x0a\x02\x08\x01",
        as_protobuf("v1", "Pod")[:-6],
        as_protobuf("v1\xff", "Pod").replace(b"\xc3\xbf", b"\xff\xff"),
        b"  apiVersion: v1\n",
        b"apiVersion: \xff\xfe\n",
        bytes(range(256)),
    ],
)
def test_garbage(value: bytes) -> None:
    """Truncated values, and those that no API server writes, are classified as unreadable."""
    assert read_value(value) == UNREADABLE


@given(st.binary(max_size=60), st.sampled_from([b"", b"k8s\0", b"k8s:enc:kms:v2:a:", b"{", b"a:"]))
def test_total(tail: bytes, head: bytes) -> None:
    """No input raises an error."""
    assert isinstance(read_value(head + tail), Stored)


@pytest.mark.parametrize("value", [b"k8s:enc:aescbc:1:key:", b"k8s:enc:", b"k8s:enc:aesgcm:v1:"])
def test_an_encrypted_value_without_a_key_name(value: bytes) -> None:
    """It may be under any key, so it is distinguished from values that are not encrypted."""
    assert read_value(value) == UNREADABLE_SEAL != UNREADABLE
