"""What a load has done and seen: every operation with its answer, every event of every watcher.

The process that makes the load writes it down and saves it as one file; who judges reads it. Times
are those of the machine's monotonic clock, which all its processes share. Not here: judging.
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
"""The status of what was sent and never answered."""
NOT_SENT: Final = -1
"""The status of what found nobody that listens."""
NOT_SERVED: Final = -2
"""The status of what was asked for in a version that the server does not serve now."""
PUT_OFF: Final = frozenset({429, 503, 507})
"""Statuses that say: nothing has happened, come again."""
REFUSALS: Final = frozenset({404, 409})
OUTCOME_UNKNOWN: Final = frozenset({UNANSWERED, 504})


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """An object as a read has shown it."""

    namespace: str
    name: str
    revision: int
    content: str


class Operation(msgspec.Struct, kw_only=True):
    """One request, and what came back."""

    writer: int
    server: int
    """Which one was asked."""
    verb: Verb
    resource: str = WIDGETS.resource_name
    """The kind, by the name of its StorageVersion."""
    namespace: str
    name: str = ""
    token: str = ""
    """What a write puts into the object, as nobody else does."""
    spec: dict[str, object] = {}
    """What is sent: all of it, or the patch."""
    precondition: int = 0
    """The revision that must be replaced, or deleted; 0: any."""
    began: float
    ended: float = 0.0
    status: int = UNANSWERED
    reason: str = ""
    revision: int = 0
    """The resource version of the answer."""
    uid: str = ""
    content: str = ""
    """Of the object in the answer."""
    created_at: str = ""
    """The creation timestamp in the answer to a create."""
    shown: tuple[Shown, ...] = ()
    """What a list has shown."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.resource]

    @property
    def key(self) -> Key:
        """Where its object is stored."""
        return self.kind.key_of(self.namespace, self.name)

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def is_done(self) -> bool:
        return self.status in (200, 201)

    @property
    def is_unknown(self) -> bool:
        """Whether the client cannot know what became of it."""
        return self.is_write and self.status in OUTCOME_UNKNOWN


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One thing that a watch has said; a bookmark has no name."""

    type: str
    revision: int
    namespace: str = ""
    name: str = ""
    content: str = ""


class Stretch(msgspec.Struct, kw_only=True):
    """A list, and all that watches have said since; a cut in between leaves no trace here."""

    after: int
    initial: tuple[Shown, ...]
    seen: list[Seen] = []


class WatcherRecord(msgspec.Struct, kw_only=True):
    """One watcher: a new stretch begins only when it was told that history is gone."""

    number: int
    namespace: str
    """Empty: all of them."""
    stretches: list[Stretch] = []
    cuts: list[float] = []
    """When a stream broke off."""
    refusals: int = 0
    """How often a watch could not be begun."""
    ends: set[str] = set()
    """The namespaces whose last object was seen, since the last list."""
    reached_end: bool = False


class LoadRecord(msgspec.Struct, kw_only=True):
    """All of it."""

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
