"""IDs of incarnations: their format, and their uniqueness."""

from __future__ import annotations

import base64
import hashlib
import re
import struct

from hypothesis import given
from hypothesis import strategies as st

from restow.storageversion.identity import (
    COMPONENT,
    ServerId,
    ServerRecord,
    decode_record,
    encode_record,
    make_server_id,
    server_key,
    server_of,
)

names = st.text(max_size=20)
Incarnation = tuple[str, str, str]
incarnations = st.tuples(names, names, names)


def naive_id(host: str, component: str, nonce: str) -> str:
    """Length and bytes of each part; the first 16 bytes of SHA-256, in base32, lower case."""
    data = b""
    for part in (host, component, nonce):
        data += struct.pack(">H", len(part.encode())) + part.encode()
    return "apiserver-" + base64.b32encode(hashlib.sha256(data).digest()[:16]).decode()[:26].lower()


@given(incarnations)
def test_an_id_has_the_form_of_the_reference(parts: Incarnation) -> None:
    """Prefix, length and alphabet are those of a kube-apiserver's id."""
    found = make_server_id(*parts)
    assert re.fullmatch(r"apiserver-[a-z2-7]{26}", found)
    assert found == naive_id(*parts)


@given(incarnations, incarnations)
def test_two_incarnations_never_share_an_id(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    """Also if the concatenations of their parts are equal."""
    assert (make_server_id(*one) == make_server_id(*other)) == (one == other)


def test_a_restart_on_the_same_host_is_another_incarnation() -> None:
    """Unlike the reference's, the ID does not repeat with the host name."""
    assert make_server_id("master-1", COMPONENT, "a") != make_server_id("master-1", COMPONENT, "b")
    assert make_server_id("ab", "c", "") != make_server_id("a", "bc", "")


@given(st.binary(max_size=40))
def test_a_malformed_record_is_not_decoded(value: bytes) -> None:
    """No value of a membership record causes an error."""
    assert decode_record(value) is None


def test_a_record_round_trips() -> None:
    """And its key contains the server ID."""
    record = ServerRecord(incarnation="n", component="c", host="h", mode="loose", lease_seconds=2.5)
    assert decode_record(encode_record(record)) == record
    assert server_of(server_key(ServerId("apiserver-x"))) == "apiserver-x"
    assert decode_record(encode_record(record).replace(b"loose", b"later")) is None
