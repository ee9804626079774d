"""A ledger of acknowledged writes, compared with the objects after a run.

    ledger = Ledger.of(record.operations)
    problems = ledger.compare(read_from_a_server, where="server 0")

Each acknowledged create, update, patch and delete is an entry with its resource version, uid and
content. A write of unknown outcome (no reply, or 504) may have been applied or not, at any time
after it was sent, so it adds a possible state of its object. A write that was refused, or that no
server received, adds none.

The comparison needs only the responses that clients got and the current objects: no history and no
bookkeeping of the servers. Not here: the order of all changes, which is checked with the log of the
store (`replay_check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from restow.storage.interface import Item, Key
from tests.support.fire.objects import stored_content, written_kind
from tests.support.fire.record import Operation


class Found(NamedTuple):
    """An object as found after a run."""

    revision: int
    content: str
    """Its uid, its token and a checksum of the rest, as `content_of` returns them."""

    @property
    def token(self) -> str:
        return self.content.split("/")[1]


@dataclass(slots=True)
class Entry:
    """The ledger's entry for one object."""

    last: Operation | None = None
    """The acknowledged write with the highest resource version."""
    deleted: set[str] = field(default_factory=set)
    """The uids whose deletion was acknowledged."""
    unknown: list[Operation] = field(default_factory=list)
    """Writes of unknown outcome."""

    @property
    def is_deleted(self) -> bool:
        """Whether the last acknowledged state is that the object does not exist."""
        return self.last is None or self.last.uid in self.deleted

    def problem(self, found: Found | None) -> str | None:
        """Why the found object is not a possible state; None if it is."""
        if found is None:
            if self.is_deleted or any(each.verb == "delete" for each in self.unknown):
                return None
            assert self.last is not None
            return f"is missing; its last acknowledged write is {_text(self.last)}"
        uid = found.content.split("/")[0]
        if uid in self.deleted:
            return f"exists as {found.content}; the deletion of this uid was acknowledged"
        if found.token in {each.token for each in self.unknown}:
            return None
        if self.is_deleted or self.last is None:
            return f"exists as {found.content}; no acknowledged write has this content"
        if found.content != self.last.content:
            return f"is {found.content}; its last acknowledged write is {_text(self.last)}"
        if found.revision < self.last.revision:
            return f"is at {found.revision}, before its last acknowledged write {_text(self.last)}"
        return None


@dataclass(slots=True)
class Ledger:
    """All entries, by the key of their object."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Ledger:
        """The ledger of a load; operations other than writes are ignored."""
        ledger = cls()
        for operation in operations:
            if operation.is_write:
                ledger.add(operation)
        return ledger

    def add(self, operation: Operation) -> None:
        """Add one write."""
        entry = self.entries.setdefault(operation.key, Entry())
        if operation.is_unknown:
            self.unknown += 1
            entry.unknown.append(operation)
        elif operation.is_done:
            self.acknowledged += 1
            if operation.verb == "delete":
                entry.deleted.add(operation.uid)
            elif entry.last is None or operation.revision > entry.last.revision:
                entry.last = operation

    def compare(self, found: Mapping[Key, Found], *, where: str) -> list[str]:
        """Compare every object of the ledger, and every object that was found."""
        problems = []
        for key in sorted({*self.entries, *found}):
            problem = self.entries.get(key, Entry()).problem(found.get(key))
            if problem is not None:
                problems.append(f"{where}: {key} {problem}")
        return problems


def found_in(items: Iterable[Item]) -> dict[Key, Found]:
    """Objects of a load among raw values of the store."""
    return {
        item.key: Found(item.revision, stored_content(item.value))
        for item in items
        if written_kind(item.key)
    }


def _text(operation: Operation) -> str:
    return f"{operation.verb} {operation.content} at {operation.revision}"
