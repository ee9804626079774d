"""A TLS 1.3 client that sends KeyUpdate messages repeatedly, which no library offers."""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha384
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_UPDATE: Final = b"\x18\x00\x00\x01\x01\x16"
"""A key_update that requests one in return, and the type of its record."""


def keep_secrets(context: ssl.SSLContext, path: Path) -> None:
    """Log the secrets of a context's connections, for `key_updates`."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(path)


def key_updates(path: Path, client: ssl.SSLObject, count: int) -> bytes:
    """So many records after the handshake of a client that has sent nothing else."""
    assert client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    lines = (line.split() for line in path.read_text("ascii").splitlines())
    (secret,) = [bytes.fromhex(x[2]) for x in lines if x[0] == "CLIENT_TRAFFIC_SECRET_0"]
    records = []
    for _ in range(count):
        head = b"\x17\x03\x03" + (len(KEY_UPDATE) + 16).to_bytes(2)
        key = AESGCM(_expand(secret, b"key", 32))
        # The first record under its key: the number that the nonce is made with is zero.
        records.append(head + key.encrypt(_expand(secret, b"iv", 12), KEY_UPDATE, head))
        secret = _expand(secret, b"traffic upd", sha384().digest_size)
    return b"".join(records)


def _expand(secret: bytes, label: bytes, nbytes: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3, for at most one digest."""
    name = b"tls13 " + label
    info = nbytes.to_bytes(2) + bytes([len(name)]) + name + b"\x00\x01"
    return hmac.digest(secret, info, sha384)[:nbytes]
