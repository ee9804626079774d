"""Who a server is: an id that belongs to one process life, and the record that it keeps of itself.

The id is a hash over the host, the component and a nonce of the start, so that no two processes
ever have the same one: not two on one host, not one before and after a restart. Not here: how the
record is kept alive (`membership`).
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
    """What a server says of itself, at its key."""

    incarnation: str
    component: str
    host: str
    address: str = ""
    mode: Mode
    lease_seconds: float
    """Whoever sees no renewal for so long takes the server for dead."""
    settled: bool = False
    """It has reported, or voted for, all that it hosts."""
    beat: int = 0
    """Counts the renewals, so that each one changes the key."""


def make_server_id(host: str, component: str, nonce: str) -> ServerId:
    """The id of one process life."""
    digest = hashlib.sha256()
    for part in (host, component, nonce):
        text = part.encode()
        digest.update(len(text).to_bytes(2, "big") + text)
    letters = base64.b32encode(digest.digest()[:HASH_BYTES]).decode("ascii")
    return ServerId(ID_PREFIX + letters.rstrip("=").lower())


def server_key(server_id: ServerId) -> Key:
    return Key(SERVERS_PREFIX + server_id)


def server_of(key: Key) -> ServerId:
    """The server whose key this is."""
    return ServerId(key.removeprefix(SERVERS_PREFIX))


def encode_record(record: ServerRecord) -> bytes:
    return msgspec.json.encode(record)


_decode: Final = msgspec.json.Decoder(ServerRecord).decode


def decode_record(value: bytes) -> ServerRecord | None:
    """The record, or None for what is none: such a server is one that cannot be understood."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None
