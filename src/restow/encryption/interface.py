"""What the keys of a server can do, for those who write and read under them.

`Keys` is one object for the life of a process; what it says changes when its configuration does.
Nobody is told a secret: keys are named by their ids (`restow.apis.encryption_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from restow.apimachinery.names import GroupResource
from restow.storage.interface import Key


class Opened(NamedTuple):
    """A value as it was before it was sealed."""

    value: bytes
    key_id: str
    """Under which key it is stored; empty: it is not encrypted."""


class NotPrepared(Exception):
    """A plug-in has to be asked for the key of a value first: see `Keys.prepare`."""


class Keys(Protocol):
    """The encryption keys of this server."""

    listeners: list[Callable[[], None]]
    """Called when another key is to be written with, or others can be read."""

    def write_key(self, resource: GroupResource) -> str:
        """The id of the key that a resource is to be written with; empty: none.

        Raises `Unavailable` while a plug-in has not said which.
        """

    def readable(self, resource: GroupResource) -> tuple[str, ...]:
        """The keys that can be read, `IDENTITY` among them if plain values are."""

    def writable(self, resource: GroupResource) -> tuple[str, ...]:
        """The ids of the keys that can be written with, the preferred one first."""

    def seal(self, key_id: str, key: Key, value: bytes) -> bytes:
        """The value to store at a key. Raises `Unavailable` when that encryption key is gone."""

    def open(self, key: Key, value: bytes) -> Opened:
        """The value that was sealed for this key. Raises `CannotOpen`; `NotPrepared` for one whose
        key a plug-in has to be asked for first."""

    def settled(self) -> None:
        """All that this server writes with and can read has been told to the others: what only an
        earlier configuration could read need not be read any more."""

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Ask plug-ins for whatever is needed to open values. Raises `Unavailable`."""
