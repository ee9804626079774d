"""Opening one value, whatever it takes."""

from __future__ import annotations

from typing import Final

from restow.census.values import Stored, read_value
from restow.encryption.interface import Keys, NotPrepared, Opened
from restow.storage.errors import CannotOpen, PluginSilent
from restow.storage.interface import SEALED_PREFIX, Key

PLAIN_REFUSED: Final = b"k8s:enc:identity:v1:not-taken:"
"""Stands for a plain value of a resource that takes none: nobody must take it for an object."""
_SILENT: Final = b"k8s:enc:silent:v1:"
"""Stands before the name of a plug-in for a value that it was not there to open: it may be soon."""


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
    return key_text(read_value(value))


def key_text(stored: Stored) -> str:
    """The key of a sealed value, for people."""
    scheme = f" {stored.scheme}" if stored.provider == "kms" else ""
    return f"{stored.provider}{scheme} key {stored.key or '(unreadable)'}"


def unasked(value: bytes) -> bytes:
    """What stands for a sealed value while its plug-in is silent."""
    return _SILENT + read_value(value).key.encode(errors="surrogateescape")


def error_of_sealed(value: bytes) -> CannotOpen | PluginSilent:
    """Why a value is still sealed after it was to be opened, for people."""
    if value.startswith(_SILENT):
        name = value[len(_SILENT) :].decode(errors="replace")
        return PluginSilent(f"it is encrypted with the KMS plug-in {name}, which does not answer")
    if value == PLAIN_REFUSED:
        return CannotOpen(
            "it is not encrypted, and this server takes no plain values of this resource"
        )
    named = key_named_in(value)
    if named.startswith("kms"):
        return CannotOpen(
            f"it is encrypted with {named}, whose plug-in is missing or does not decrypt it; or it"
            " was changed or moved from another key of the store"
        )
    return CannotOpen(
        f"it is encrypted with {named}, and no key of this server opens it: it was changed or moved"
        " from another key of the store, or this server has another secret of that name, or has no"
        " key of that name in its encryption configuration"
    )
