"""Decrypts single values, including those that need a plug-in."""

from __future__ import annotations

from typing import Final

from restow.census.values import Stored, read_value
from restow.encryption.interface import Keys, NotPrepared, Opened
from restow.storage.errors import CannotOpen, PluginSilent
from restow.storage.interface import SEALED_PREFIX, Key

PLAIN_REFUSED: Final = b"k8s:enc:identity:v1:not-taken:"
"""Replaces a plain value where none is accepted: it must not be decoded as an object."""
_SILENT: Final = b"k8s:enc:silent:v1:"
"""Prefix before a plug-in's name, for a value that the plug-in may decrypt later."""


async def open_value(keys: Keys | None, key: Key, value: bytes) -> Opened:
    """Decrypt the value of a storage key. Raises `CannotOpen`, or `Unavailable` when a plug-in that
    is needed does not respond."""
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
    """The key that an encrypted value names, for messages."""
    return key_text(read_value(value))


def key_text(stored: Stored) -> str:
    """The key of an encrypted value, for messages."""
    scheme = f" {stored.scheme}" if stored.provider == "kms" else ""
    return f"{stored.provider}{scheme} key {stored.key or '(unreadable)'}"


def unasked(value: bytes) -> bytes:
    """A placeholder for an encrypted value while its plug-in does not respond."""
    return _SILENT + read_value(value).key.encode(errors="surrogateescape")


def error_of_sealed(value: bytes) -> CannotOpen | PluginSilent:
    """The error of a value that is still encrypted after a read, for messages."""
    if value.startswith(_SILENT):
        name = value[len(_SILENT) :].decode(errors="replace")
        return PluginSilent(f"it is encrypted with the KMS plug-in {name}, which does not respond")
    if value == PLAIN_REFUSED:
        return CannotOpen(
            "it is not encrypted, and this server accepts no plain values of this resource"
        )
    named = key_named_in(value)
    if named.startswith("kms"):
        return CannotOpen(
            f"it is encrypted with {named}, whose plug-in is missing or cannot decrypt it; or it"
            " was changed or moved from another key of the store"
        )
    return CannotOpen(
        f"it is encrypted with {named}, and no key of this server can decrypt it: it was changed"
        " or moved from another key of the store, or this server has another secret of that name,"
        " or has no key of that name in its encryption configuration"
    )
