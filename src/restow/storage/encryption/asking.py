"""Opening one value, whatever it takes."""

from __future__ import annotations

from typing import Final

from restow.storage.census.values import read_value
from restow.storage.encryption.interface import Keys, NotPrepared, Opened
from restow.storage.errors import CannotOpen
from restow.storage.interface import SEALED_PREFIX, Key

PLAIN_REFUSED: Final = b"k8s:enc:identity:v1:not-taken:"
"""Stands for a plain value of a resource that takes none: nobody must take it for an object."""


async def open_value(keys: Keys | None, key: Key, value: bytes) -> Opened:
    """The value that was sealed for a key. Raises `CannotOpen`, or `Unavailable` when a plug-in
    that has to be asked does not answer."""
    if keys is None:
        if value.startswith(SEALED_PREFIX):
            raise CannotOpen(
                f"it is encrypted with {key_named_in(value)}, and this server has no keys"
            )
        return Opened(value, "")
    try:
        return keys.open(key, value)
    except NotPrepared:
        await keys.prepare([value])
        return keys.open(key, value)


def key_named_in(value: bytes) -> str:
    """Which key a sealed value names, for people."""
    found = read_value(value)
    scheme = f" {found.scheme}" if found.provider == "kms" else ""
    return f"{found.provider}{scheme} key {found.key or '(unreadable)'}"


def why_sealed(value: bytes) -> str:
    """Why a value that nobody could open is as it is, for people."""
    if value == PLAIN_REFUSED:
        return "it is not encrypted, and this server takes no plain values of this resource"
    named = key_named_in(value)
    if named.startswith("kms"):
        return f"it is encrypted with {named}, whose plug-in is missing or does not decrypt it"
    return (
        f"it is encrypted with {named}, which this server does not have, or has with another"
        " secret; add that key to its encryption configuration"
    )
