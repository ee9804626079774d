"""The encryption keys of a world: names, configuration files, and decryption of raw values.

A key has a short name such as `k1`. `k1!` is another secret under the name `k1`, and `identity` is
no encryption. Values are decrypted here without the production code, so that the servers' reports
about keys can be compared with what is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from restow.aio import Runtime
from restow.encryption.key_reload import ReloadedKeys
from tests.support.sim.releases import CUSTOM_GROUP, GROUP, PLURAL

IDENTITY: Final = "identity"
ENCRYPTED: Final = (f"{PLURAL}.{GROUP}", f"gadgets.{CUSTOM_GROUP}")
"""Resources in the servers' files."""
ROOTS: Final = (f"/registry/{GROUP}/{PLURAL}/", f"/registry/{CUSTOM_GROUP}/gadgets/")
NAMES: Final = ("k1", "k2", "k3", "k1!", "k2!", "k3!")
_PREFIX: Final = b"k8s:enc:aesgcm:v1:"
_NONCE_BYTES: Final = 12
_OPENED_MAX: Final = 20_000


class Opened(NamedTuple):
    """A decrypted raw value."""

    value: bytes
    key: str
    """The name of its key; empty: no key of the world decrypts it."""


def secret_of(name: str) -> bytes:
    return hashlib.sha256(f"secret of {name}".encode()).digest()


def fingerprint_of(secret: bytes) -> str:
    return hmac.digest(secret, b"restow: fingerprint of an encryption key", "sha256").hex()[:12]


def id_of(name: str) -> str:
    """The id of a key in StorageStates and StorageVersions."""
    if name == IDENTITY:
        return IDENTITY
    return f"aesgcm:{name.rstrip('!')}:{fingerprint_of(secret_of(name))}"


def file_of(names: Iterable[str]) -> bytes:
    """An EncryptionConfiguration with these keys, the one to write with first."""
    providers: list[dict[str, object]] = []
    for name in names:
        if name == IDENTITY:
            providers.append({IDENTITY: {}})
            continue
        secret = base64.b64encode(secret_of(name)).decode()
        providers.append({"aesgcm": {"keys": [{"name": name.rstrip("!"), "secret": secret}]}})
    rule = {"resources": list(ENCRYPTED), "providers": providers}
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    return orjson.dumps({**head, "resources": [rule]})


def open_value(key: str, value: bytes) -> Opened:
    """Decrypt a raw value with any key of the world."""
    if not value.startswith(b"k8s:enc:"):
        return Opened(value, IDENTITY)
    return _decrypt(key, value)


@lru_cache(maxsize=_OPENED_MAX)
def _decrypt(key: str, value: bytes) -> Opened:
    name, _, sealed = value.removeprefix(_PREFIX).partition(b":")
    for each in NAMES:
        if each.rstrip("!").encode() == name:
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            try:
                return Opened(AESGCM(secret_of(each)).decrypt(nonce, rest, key.encode()), each)
            except InvalidTag:
                continue
    return Opened(value, "")


class SimKeys(ReloadedKeys):
    """The keys of a simulated server: its file is in memory, the rest is the production code."""

    def __init__(self, content: Callable[[], bytes], runtime: Runtime) -> None:
        super().__init__("encryption.yaml", runtime)
        self._content = content

    async def _sign(self) -> tuple[int, int, int, int]:
        content = self._content()
        return hash(content), len(content), 0, 0

    async def _read(self) -> bytes:
        return self._content()
