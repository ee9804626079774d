"""What each provider detects of a writer of the store, and that SECURITY.md says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime
from restow.encryption.configuration import LocalKey, LocalProvider
from restow.encryption.kms_messages import HKDF_SEED, KmsEnvelope
from restow.encryption.kms_seeds import SEED_BYTES, Seed, cut
from restow.encryption.providers import WrongKey, ciphers_of

ROOT: Final = Path(__file__).parents[3]
VALUE: Final = b'{"kind":"Secret","data":{"password":"aHVzaA==","more":"0123456789"}}'
PLACE: Final = "/registry/secrets/default/one"
OTHER: Final = "/registry/secrets/default/two"
PREFIX: Final = b"k8s:enc:kms:v2:vault:"


class OfKms:
    """The same interface for values of a KMS plug-in."""

    def __init__(self) -> None:
        draw = Runtime.simulated(3).randomness.token_bytes
        envelope = KmsEnvelope("id", b"sealed seed", HKDF_SEED)
        self._seed = Seed(bytes(SEED_BYTES), envelope, prefix=PREFIX, plugin="vault", draw=draw)
        self.prefix = PREFIX

    def seal(self, key: str, value: bytes) -> bytes:
        return self._seed.seal(key, value)

    def open(self, key: str, value: bytes) -> bytes:
        parts = cut(value, len(PREFIX))
        if parts is None:
            raise WrongKey
        return self._seed.open(key, parts.data)


class Identity:
    """No encryption."""

    prefix = b""

    def seal(self, key: str, value: bytes) -> bytes:
        return value

    def open(self, key: str, value: bytes) -> bytes:
        return value


def cipher_of(name: str) -> OfKms | Identity:
    if name == "kms":
        return OfKms()
    if name == "identity":
        return Identity()
    provider = LocalProvider(name, (LocalKey("a", bytes(range(32))),))  # type: ignore[arg-type]
    (found,) = ciphers_of(provider, Runtime.simulated(3).randomness.token_bytes)
    return found  # type: ignore[return-value]


def opened(cipher: OfKms | Identity, key: str, value: bytes) -> bytes | None:
    try:
        return cipher.open(key, value)
    except WrongKey:
        return None


def guarantees(name: str) -> tuple[bool, bool, bool]:
    """Whether a provider detects every changed bit, a moved value, and an old value."""
    cipher = cipher_of(name)
    sealed = cipher.seal(PLACE, VALUE)
    assert cipher.open(PLACE, sealed) == VALUE
    changed = (opened(cipher, PLACE, each) for each in flipped(sealed, len(cipher.prefix), name))
    detects_changes = all(each in (None, VALUE) for each in changed)
    detects_moves = opened(cipher, OTHER, sealed) is None
    cipher.seal(PLACE, b"a newer value")
    return detects_changes, detects_moves, opened(cipher, PLACE, sealed) is None


def flipped(sealed: bytes, begin: int, name: str) -> Iterator[bytes]:
    """The value with each of its bits changed; for KMS, without the fields that name the key."""
    parts = cut(sealed, begin) if name == "kms" else None
    end = len(sealed) if parts is None else len(sealed) - len(parts.tail)
    for position in range(begin, end):
        for bit in range(8):
            data = bytearray(sealed)
            data[position] ^= 1 << bit
            yield bytes(data)


def documented() -> dict[str, tuple[bool, bool, bool]]:
    """The table of SECURITY.md."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("| provider |")[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for name in names.split(", "):
            found[name.strip("`")] = (cells[0] == "yes", cells[1] == "yes", cells[2] == "yes")
    return found


@pytest.mark.parametrize("name", ["aesgcm", "kms", "secretbox", "aescbc", "identity"])
def test_providers_give_the_documented_guarantees(name: str) -> None:
    """Each bit of a value is changed, the value is moved to another key, and an old value is put
    back: SECURITY.md says which of these a provider detects."""
    assert documented()[name] == guarantees(name)
