"""Seeds of KMS v2: encrypts and decrypts values with them, and parses their stored form.

A seed is a secret of this server that a plug-in has encrypted. Each value has its own key, derived
from the seed and 32 random bytes (HKDF-SHA256, expand only); so one seed suffices for all writes of
a process. Values that kube-apiserver wrote before 1.29 use one AES-GCM key instead; they can be
read but are never written.

    k8s:enc:kms:v2:<plug-in>: + EncryptedObject{1 data, 2 key id, 3 source, 4 annotations, 5 type}

The data comes first, so the rest is the same for all values of a seed: it identifies the seed, and
need not be parsed to decrypt a value.

Pure. Not here: the plug-in (`kms`).
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from restow.apimachinery.protobuf_values import read_length
from restow.encryption.kms_messages import HKDF_SEED, KmsEnvelope
from restow.encryption.providers import GCM_NONCE_BYTES, GCM_TAG_BYTES, Draw, WrongKey

SEED_BYTES: Final = 32
INFO_BYTES: Final = 32
KEY_SIZES: Final = (16, 24, 32)
_DATA_TAG: Final = 0x0A
_ONE: Final = b"\x01"
"""HKDF numbers its blocks from here, and a key is one block."""


class Cut(NamedTuple):
    """A stored value after its prefix, in two parts."""

    data: bytes
    tail: bytes


def cut(value: bytes, begin: int) -> Cut | None:
    """Split into the data and the rest; None if another field comes first, or it is truncated."""
    try:
        if value[begin] != _DATA_TAG:
            return None
        start, stop = read_length(value, begin + 1, len(value))
    except (IndexError, ValueError):
        return None
    return Cut(value[start:stop], value[stop:])


class Seed:
    """A decrypted seed, or the decrypted key of an older value."""

    __slots__ = ("_cipher", "_draw", "_prefix", "_secret", "is_proven", "key_id", "tail")

    def __init__(
        self, secret: bytes, envelope: KmsEnvelope, *, prefix: bytes, plugin: str, draw: Draw
    ) -> None:
        """Raises `ValueError` if the secret has an invalid length."""
        self.key_id = f"kms:{plugin}:{envelope.key_id}"
        self.tail = envelope.to_bytes()
        self.is_proven = False
        """Whether a value was decrypted with it: a plug-in may return arbitrary bytes."""
        self._prefix = prefix
        self._secret = secret
        self._draw = draw
        self._cipher: AESGCM | None = None
        if envelope.source_type != HKDF_SEED:
            if len(secret) not in KEY_SIZES:
                raise ValueError(f"the plug-in returned a key of {len(secret)} bytes")
            self._cipher = AESGCM(secret)
        elif len(secret) < SEED_BYTES:
            raise ValueError(f"the plug-in returned a seed of {len(secret)} bytes")

    def trust(self) -> None:
        """Record that the plug-in encrypted it for this process."""
        self.is_proven = True

    def seal(self, key: str, value: bytes) -> bytes:
        """Encrypt a value for a storage key."""
        assert self._cipher is None, "keys of older values are read-only"
        info, nonce = self._draw(INFO_BYTES), self._draw(GCM_NONCE_BYTES)
        sealed = self._derive(info).encrypt(nonce, value, key.encode())
        size = INFO_BYTES + GCM_NONCE_BYTES + len(sealed)
        return b"".join((self._prefix, b"\x0a", _varint(size), info, nonce, sealed, self.tail))

    def open(self, key: str, data: bytes) -> bytes:
        """Decrypt a value. Raises `WrongKey`."""
        cipher, begin = self._cipher, 0
        if cipher is None:
            cipher, begin = self._derive(data[:INFO_BYTES]), INFO_BYTES
        stop = begin + GCM_NONCE_BYTES
        if len(data) < stop + GCM_TAG_BYTES:
            raise WrongKey
        try:
            opened = cipher.decrypt(data[begin:stop], data[stop:], key.encode())
        except InvalidTag:
            raise WrongKey from None
        self.is_proven = True
        return opened

    def _derive(self, info: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._secret, info + _ONE, "sha256"))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
