"""The record of a load: every operation with its reply, every event of every watcher.

The load process saves it as one file, which the checks read. Times are from the machine's monotonic
clock, which all its processes share. Not here: checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from restow.storage.interface import Key
from tests.support.fire.objects import KINDS, WIDGETS, Kind

Verb = Literal["create", "update", "patch", "delete", "get", "list"]
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
UNANSWERED: Final = 0
"""Status of a request that was sent and got no reply."""
NOT_SENT: Final = -1
"""Status of a request whose connection was refused."""
NOT_SERVED: Final = -2
"""Status of a request in a version that the server does not serve now."""
PUT_OFF: Final = frozenset({429, 503, 507})
"""Statuses without an effect, to be retried."""
REFUSALS: Final = frozenset({404, 409})
OUTCOME_UNKNOWN: Final = frozenset({UNANSWERED, 504})


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """An object as returned by a read."""

    namespace: str
    name: str
    revision: int
    content: str


class Operation(msgspec.Struct, kw_only=True):
    """One request, and its response."""

    writer: int
    server: int
    """The server that got it."""
    verb: Verb
    resource: str = WIDGETS.resource_name
    """The kind, by the name of its StorageVersion."""
    namespace: str
    name: str = ""
    token: str = ""
    """Content that is unique to this write."""
    spec: dict[str, object] = {}
    """The request body: the whole spec, or the patch."""
    precondition: int = 0
    """The revision of the precondition; 0: none."""
    began: float
    ended: float = 0.0
    status: int = UNANSWERED
    reason: str = ""
    revision: int = 0
    """The resource version of the response."""
    uid: str = ""
    content: str = ""
    """Content of the object in the response."""
    created_at: str = ""
    """The creation timestamp in the response to a create."""
    shown: tuple[Shown, ...] = ()
    """The items of a list."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.resource]

    @property
    def key(self) -> Key:
        """The key of its object."""
        return self.kind.key_of(self.namespace, self.name)

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def is_done(self) -> bool:
        return self.status in (200, 201)

    @property
    def is_unknown(self) -> bool:
        """Whether the client cannot know its outcome."""
        return self.is_write and self.status in OUTCOME_UNKNOWN


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One event of a watch; a bookmark has no name."""

    type: str
    revision: int
    namespace: str = ""
    name: str = ""
    content: str = ""


class Stretch(msgspec.Struct, kw_only=True):
    """A list, and all events of the watches since; interruptions in between are not recorded."""

    after: int
    initial: tuple[Shown, ...]
    seen: list[Seen] = []


class WatcherRecord(msgspec.Struct, kw_only=True):
    """One watcher: a new stretch begins only after 410 (Gone)."""

    number: int
    namespace: str
    """Empty: all of them."""
    stretches: list[Stretch] = []
    cuts: list[float] = []
    """Times when a stream was interrupted."""
    refusals: int = 0
    """How often a watch was refused."""
    ends: set[str] = set()
    """The namespaces whose last object was seen, since the last list."""
    reached_end: bool = False


class LoadRecord(msgspec.Struct, kw_only=True):
    """The whole record."""

    seed: int
    operations: list[Operation]
    watchers: list[WatcherRecord]
    ended_well: bool = False
    """Whether the last objects could be written."""

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, path: Path) -> LoadRecord:
        return msgspec.msgpack.decode(path.read_bytes(), type=cls)
