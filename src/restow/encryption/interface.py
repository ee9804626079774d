"""Interface of a server's encryption keys for code that reads and writes values.

`Keys` is one object for the lifetime of a process; its results change with the configuration. It
reveals no secrets: keys are identified by their IDs (`restow.apis.encryption_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupResource
from restow.storage.interface import Key


class Opened(NamedTuple):
    """A decrypted value."""

    value: bytes
    key_id: str
    """ID of the key under which it is stored; empty: it is not encrypted."""


class NotPrepared(Exception):
    """A plug-in must first decrypt the key of a value: see `Keys.prepare`."""


class Keys(Protocol):
    """The encryption keys of this server."""

    changed: EventChannel[[]]
    """Called when the write key or the readable keys have changed."""

    def write_key(self, resource: GroupResource) -> str:
        """The ID of the key with which a resource is to be written; empty: none.

        Raises `Unavailable` until the plug-in has named its key.
        """

    def readable(self, resource: GroupResource) -> tuple[str, ...]:
        """The readable keys, including `IDENTITY` if plain values are accepted."""

    def writable(self, resource: GroupResource) -> tuple[str, ...]:
        """The IDs of the keys that this server can write with, the preferred one first."""

    def seal(self, key_id: str, key: Key, value: bytes) -> bytes:
        """Encrypt a value for a storage key. Raises `Unavailable` if the encryption key is
        missing."""

    def open(self, key: Key, value: bytes) -> Opened:
        """Decrypt the value of a storage key. Raises `CannotOpen`; `NotPrepared` if a plug-in must
        decrypt the value's key first."""

    def settled(self) -> None:
        """Drop keys that only an earlier configuration could read. Call it once all servers have
        the current keys."""

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Let plug-ins decrypt the keys that values need. Raises `Unavailable`."""
