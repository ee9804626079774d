"""Encryption keys for simulations: they name a key but do not encrypt.

The format is that of real values, so that code that parses prefixes works as with real ones; the
cipher has tests of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY
from restow.encryption.interface import Opened
from restow.storage.errors import CannotOpen, Unavailable
from restow.storage.interface import SEALED_PREFIX, Key

ENCRYPTED_ROOT = "/registry/example.com/"
_HEAD = SEALED_PREFIX + b"aesgcm:v1:"


def key_id_of(name: str) -> str:
    """Returns the ID of a key; empty for `identity`."""
    return "" if name == IDENTITY else f"aesgcm:{name}:0"


class NamedKeys:
    """The keys of one server by name, the write key first. Satisfies `Keys`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._before: tuple[str, ...] = ()
        """Keys of earlier configurations, readable until all servers have reloaded."""
        self.changed: EventChannel[[]] = EventChannel()

    def change(self, names: Sequence[str]) -> None:
        """Replaces the configuration."""
        self._before, self.names = (*self._before, *self.names), tuple(names)
        self.changed.emit()

    def write_key(self, _resource: GroupResource) -> str:
        return key_id_of(self.names[0])

    def writable(self, _resource: GroupResource) -> tuple[str, ...]:
        return tuple(map(key_id_of, self.names))

    def readable(self, _resource: GroupResource) -> tuple[str, ...]:
        return tuple(key_id_of(name) or IDENTITY for name in self.names)

    def seal(self, key_id: str, key: Key, value: bytes) -> bytes:
        if key_id not in map(key_id_of, (*self.names, *self._before)):
            raise Unavailable(f"{key_id} is gone, and {key} cannot be written with it")
        return seal(key_id, value)

    def open(self, key: Key, value: bytes) -> Opened:
        opened = open_any(value)
        if not key.startswith(ENCRYPTED_ROOT):
            return opened  # never encrypted
        name = opened.key_id.split(":")[1] if opened.key_id else IDENTITY
        if name not in (*self.names, *self._before):
            raise CannotOpen(f"{key} is encrypted with {name}, which this server does not have")
        return opened

    def settled(self) -> None:
        self._before = ()

    async def prepare(self, _values: Iterable[bytes]) -> None:
        return None


def seal(key_id: str, value: bytes) -> bytes:
    return value if not key_id else _HEAD + key_id.split(":")[1].encode() + b":" + value


def open_any(value: bytes) -> Opened:
    """Opens a value with any key."""
    if not value.startswith(_HEAD):
        return Opened(value, "")
    name, _, plain = value.removeprefix(_HEAD).partition(b":")
    return Opened(plain, key_id_of(name.decode()))
