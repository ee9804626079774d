"""Encrypts TLS records of a client that no TLS library would send: any type, any contents, any key.

The handshake is OpenSSL's, by the `ssl` of the client; its secrets are taken from the key log. From
then on, the records of the client are made here: KeyUpdate messages, alerts, records without data,
several handshake messages in one record, ClientHello messages that ask TLS 1.2 for a renegotiation.

One cipher suite of each version: TLS_AES_256_GCM_SHA384, and ECDHE-ECDSA-AES256-GCM-SHA384.

Not here: the server's records; OpenSSL decrypts them.
"""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha384
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALERT: Final = 21
HANDSHAKE: Final = 22
APPLICATION_DATA: Final = 23

CLOSE_NOTIFY: Final = b"\x01\x00"
KEY_UPDATE: Final = b"\x18\x00\x00\x01\x00"
KEY_UPDATE_REQUESTED: Final = b"\x18\x00\x00\x01\x01"
CLIENT_HELLO: Final = (
    b"\x01\x00\x00\x2b\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2c\x01\x00\x00\x00"
)
"""A short ClientHello of TLS 1.2; after a handshake it requests a renegotiation."""

_SERVER_RANDOM: Final = slice(11, 43)
"""In the first bytes of the server: behind the headers of the record and of the ServerHello."""


class Tls13Sealer:
    """The client's records after a handshake of TLS 1.3."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._use(secret)

    def seal(self, content: bytes, kind: int = APPLICATION_DATA, *, padding: int = 0) -> bytes:
        """One record."""
        plain = content + bytes([kind]) + bytes(padding)
        head = b"\x17\x03\x03" + (len(plain) + 16).to_bytes(2)
        nonce = (int.from_bytes(self._iv) ^ self._number).to_bytes(12)
        self._number += 1
        return head + self._key.encrypt(nonce, plain, head)

    def update_key(self, *, is_requested: bool) -> bytes:
        """A KeyUpdate message; the following records are encrypted with the next key."""
        record = self.seal(KEY_UPDATE_REQUESTED if is_requested else KEY_UPDATE, HANDSHAKE)
        self._use(_expand(self._secret, b"traffic upd", sha384().digest_size))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = _expand(secret, b"iv", 12)
        self._number = 0


class Tls12Sealer:
    """The client's records after a handshake of TLS 1.2."""

    def __init__(self, master: bytes, *, client_random: bytes, server_random: bytes) -> None:
        block = _prf(master, b"key expansion" + server_random + client_random, 2 * (32 + 4))
        self._key, self._salt = AESGCM(block[:32]), block[64:68]
        self._number = 1  # the Finished message was the record 0

    def seal(self, content: bytes, kind: int = APPLICATION_DATA, *, padding: int = 0) -> bytes:
        """One record. TLS 1.2 has no padding."""
        number = self._number.to_bytes(8)
        self._number += 1
        about = number + bytes([kind]) + b"\x03\x03" + len(content).to_bytes(2)
        sealed = number + self._key.encrypt(self._salt + number, content, about)
        return bytes([kind]) + b"\x03\x03" + len(sealed).to_bytes(2) + sealed

    def update_key(self, *, is_requested: bool) -> bytes:
        """TLS 1.2 has no KeyUpdate; a ClientHello asks for new keys instead."""
        return self.seal(CLIENT_HELLO * (2 if is_requested else 1), HANDSHAKE)


Sealer = Tls13Sealer | Tls12Sealer


def keep_secrets(context: ssl.SSLContext, path: Path, *, version: ssl.TLSVersion) -> None:
    """Restrict a client's context to a version, and log its secrets for `sealer_of`."""
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    context.keylog_filename = str(path)


def sealer_of(path: Path, client: ssl.SSLObject, first_bytes: bytes) -> Sealer:
    """The sealer of a client that has finished its handshake, and has sent nothing else.

    `path` has the secrets of this client last; `first_bytes` are the first that the server sent.
    """
    secrets: dict[str, tuple[bytes, bytes]] = {}
    for line in path.read_text("ascii").splitlines():
        if line.startswith("#"):
            continue
        label, random, secret = line.split()
        secrets[label] = bytes.fromhex(random), bytes.fromhex(secret)
    if client.version() == "TLSv1.3":
        return Tls13Sealer(secrets["CLIENT_TRAFFIC_SECRET_0"][1])
    client_random, master = secrets["CLIENT_RANDOM"]
    return Tls12Sealer(
        master, client_random=client_random, server_random=first_bytes[_SERVER_RANDOM]
    )


def _expand(secret: bytes, label: bytes, nbytes: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3, for at most one digest."""
    name = b"tls13 " + label
    info = nbytes.to_bytes(2) + bytes([len(name)]) + name + b"\x00\x01"
    return hmac.digest(secret, info, sha384)[:nbytes]


def _prf(secret: bytes, seed: bytes, nbytes: int) -> bytes:
    """The pseudorandom function of TLS 1.2, with SHA-384."""
    made, link = b"", seed
    while len(made) < nbytes:
        link = hmac.digest(secret, link, sha384)
        made += hmac.digest(secret, link + seed, sha384)
    return made[:nbytes]
