"""Ciphers with keys from the file, byte-compatible with kube-apiserver.

    aescbc     IV of 16 bytes, AES-CBC with PKCS#7 padding
    aesgcm     nonce of 12 bytes, AES-GCM; the storage key is authenticated with the value
    secretbox  nonce of 24 bytes, XSalsa20-Poly1305

Each value is prefixed with `k8s:enc:<cipher>:v1:<name>:`. A value that aesgcm encrypted for one
storage key cannot be decrypted at another one. aescbc and secretbox do not bind the two, so a
client with write access to the store can move their values; aescbc does not even detect every
change.

aesgcm uses random nonces of 96 bits: after some 2^32 writes under one key two of them may be equal,
which exposes both values. Rotate the key long before that. The others have no practical limit.

Not here: which key is tried when (`keyring`), and keys of a plug-in (`kms`).
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from restow.encryption.configuration import LocalKey, LocalProvider

FINGERPRINT_DIGITS: Final = 12
_FINGERPRINT_LABEL: Final = b"restow: fingerprint of an encryption key"

BLOCK_BYTES: Final = 16
GCM_NONCE_BYTES: Final = 12
GCM_TAG_BYTES: Final = 16
SECRETBOX_NONCE_BYTES: Final = 24
SECRETBOX_TAG_BYTES: Final = 16

Draw = Callable[[int], bytes]
"""Returns random bytes for cryptographic use."""


class WrongKey(Exception):
    """The value was encrypted under another key or for another storage key, or it was changed."""


def fingerprint(secret: bytes) -> str:
    """A hash that distinguishes secrets and reveals nothing about them."""
    return hmac.digest(secret, _FINGERPRINT_LABEL, "sha256").hex()[:FINGERPRINT_DIGITS]


class LocalCipher(ABC):
    """A cipher with one key."""

    def __init__(self, cipher: str, key: LocalKey, draw: Draw) -> None:
        self.prefix = f"k8s:enc:{cipher}:v1:{key.name}:".encode()
        """Prefix of every value that it encrypts."""
        self.key_id = f"{cipher}:{key.name}:{fingerprint(key.secret)}"
        self._cut = len(self.prefix)
        self._draw = draw
        self._make(key.secret)

    @abstractmethod
    def seal(self, key: str, value: bytes) -> bytes:
        """Encrypt a value for a storage key."""

    @abstractmethod
    def open(self, key: str, value: bytes) -> bytes:
        """Decrypt a value with this cipher's prefix. Raises `WrongKey`."""

    @abstractmethod
    def _make(self, secret: bytes) -> None: ...


class AesGcm(LocalCipher):
    """AES-GCM with a random nonce per value."""

    def _make(self, secret: bytes) -> None:
        self._cipher = AESGCM(secret)
        self._least = self._cut + GCM_NONCE_BYTES + GCM_TAG_BYTES

    def seal(self, key: str, value: bytes) -> bytes:
        nonce = self._draw(GCM_NONCE_BYTES)
        return b"".join((self.prefix, nonce, self._cipher.encrypt(nonce, value, key.encode())))

    def open(self, key: str, value: bytes) -> bytes:
        if len(value) < self._least:
            raise WrongKey
        begin = self._cut + GCM_NONCE_BYTES
        try:
            return self._cipher.decrypt(value[self._cut : begin], value[begin:], key.encode())
        except InvalidTag:
            raise WrongKey from None


class Secretbox(LocalCipher):
    """XSalsa20-Poly1305 with a random nonce per value."""

    def _make(self, secret: bytes) -> None:
        # Imported here: the library belongs to an extra that the other ciphers do not need.
        from nacl import bindings, exceptions  # noqa: PLC0415

        self._seal, self._open = bindings.crypto_secretbox_easy, bindings.crypto_secretbox_open
        self._wrong_key = exceptions.CryptoError
        self._secret = secret
        self._least = self._cut + SECRETBOX_NONCE_BYTES + SECRETBOX_TAG_BYTES

    def seal(self, key: str, value: bytes) -> bytes:
        nonce = self._draw(SECRETBOX_NONCE_BYTES)
        return b"".join((self.prefix, nonce, self._seal(value, nonce, self._secret)))

    def open(self, key: str, value: bytes) -> bytes:
        if len(value) < self._least:
            raise WrongKey
        begin = self._cut + SECRETBOX_NONCE_BYTES
        try:
            return self._open(value[begin:], value[self._cut : begin], self._secret)
        except self._wrong_key:
            raise WrongKey from None


class AesCbc(LocalCipher):
    """AES-CBC with a random IV per value. Values are not authenticated."""

    def _make(self, secret: bytes) -> None:
        self._cipher = algorithms.AES(secret)

    def seal(self, key: str, value: bytes) -> bytes:
        iv = self._draw(BLOCK_BYTES)
        padding = BLOCK_BYTES - len(value) % BLOCK_BYTES
        context = Cipher(self._cipher, modes.CBC(iv)).encryptor()
        sealed = context.update(value + bytes((padding,)) * padding)
        return b"".join((self.prefix, iv, sealed, context.finalize()))

    def open(self, key: str, value: bytes) -> bytes:
        begin = self._cut + BLOCK_BYTES
        size = len(value) - begin
        if size <= 0 or size % BLOCK_BYTES:
            raise WrongKey
        context = Cipher(self._cipher, modes.CBC(value[self._cut : begin])).decryptor()
        padded = context.update(value[begin:]) + context.finalize()
        padding = padded[-1]
        if not 0 < padding <= BLOCK_BYTES or not padded.endswith(bytes((padding,)) * padding):
            raise WrongKey
        return padded[:-padding]


_CIPHERS: Final[dict[str, type[AesCbc | AesGcm | Secretbox]]] = {
    "aescbc": AesCbc,
    "aesgcm": AesGcm,
    "secretbox": Secretbox,
}


def ciphers_of(provider: LocalProvider, draw: Draw) -> list[LocalCipher]:
    """The ciphers of a provider's keys, in order."""
    make = _CIPHERS[provider.cipher]
    return [make(provider.cipher, key, draw) for key in provider.keys]
