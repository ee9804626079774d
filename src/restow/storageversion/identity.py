"""The identity of a server: an id per incarnation of the process, and its membership record.

The id is a hash over the host, the component and a random nonce chosen at the start, so that no two
processes ever have the same one: not two on one host, not one before and after a restart. Not here:
how the record is renewed (`membership`).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final, Literal, NewType

import msgspec

from restow.storage.interface import Key

ServerId = NewType("ServerId", str)
Mode = Literal["report", "strict", "loose", "off"]

SERVERS_PREFIX: Final = "/restow/servers/"
COMPONENT: Final = "kube-apiserver"
ID_PREFIX: Final = "apiserver-"
HASH_BYTES: Final = 16
NONCE_BYTES: Final = 16


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The membership record that a server writes at its key."""

    incarnation: str
    component: str
    host: str
    address: str = ""
    mode: Mode
    lease_seconds: float
    """Lease duration: other servers remove a server that has not renewed its key for this long."""
    settled: bool = False
    """Whether it has registered every resource that it hosts."""
    beat: int = 0
    """Counts the renewals, so that each one changes the key."""


def make_server_id(host: str, component: str, nonce: str) -> ServerId:
    """Return the id of one incarnation of a server."""
    digest = hashlib.sha256()
    for part in (host, component, nonce):
        text = part.encode()
        digest.update(len(text).to_bytes(2, "big") + text)
    letters = base64.b32encode(digest.digest()[:HASH_BYTES]).decode("ascii")
    # KEP-2339 3.11: the server's id, another one for each incarnation
    return ServerId(ID_PREFIX + letters.rstrip("=").lower())


def server_key(server_id: ServerId) -> Key:
    return Key(SERVERS_PREFIX + server_id)


def server_of(key: Key) -> ServerId:
    """Return the server to which a membership key belongs."""
    return ServerId(key.removeprefix(SERVERS_PREFIX))


def encode_record(record: ServerRecord) -> bytes:
    return msgspec.json.encode(record)


_decode: Final = msgspec.json.Decoder(ServerRecord).decode


def decode_record(value: bytes) -> ServerRecord | None:
    """Decode a record; None if it is unreadable, which marks the server as unknown to this
    release."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None
