"""The watch cache: all objects of one resource in memory, as bytes, and their newest changes.

Reads are served from here: a get is a dictionary look-up, a list a join of byte strings. Entries
are plain tuples of numbers and bytes, which Python's garbage collector does not visit. A change is
kept in a bounded ring, from which watches are served; each change is encoded once for all watchers
that want it in the same form.

A cache is filled by `Caches` (see `caches`) and does no I/O itself. Not here: who may read what,
conversion, HTTP.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from restow.registry.errors import VersionUnknown
from restow.registry.stored_bytes import Splicer
from restow.storage.errors import CannotOpen, PluginSilent, StorageError
from restow.storage.interface import Event, Item

CHANGES_MAX: Final = 4096
CHANGES_BYTES_MAX: Final = 16 * 1024 * 1024
TRIMMED_PART: Final = 64
"""A full ring drops one part in so many, the oldest."""
DAMAGED_LOGGED_MAX: Final = 20
_NOT_OF_THE_PAST: Final = (CannotOpen, PluginSilent, VersionUnknown)
"""What keeps somebody from reading the past, although nothing need be damaged."""

logger = logging.getLogger(__name__)

Entry = tuple[int, str, bytes]
"""Revision, `apiVersion` it is stored in, and body as served in it, resource version included.

A plain tuple of numbers and bytes, so that the garbage collector leaves it alone."""


class WatchCacheEvent:
    """One change of one object; encoded at most once per form."""

    __slots__ = ("before", "damage", "forms", "is_mended", "key", "now", "revision")

    def __init__(
        self,
        revision: int,
        key: str,
        now: Entry | None,
        before: Entry | None,
        *,
        damage: str | None = None,
        is_mended: bool = False,
    ) -> None:
        self.revision = revision
        self.key = key
        """The key without the root of its resource: `namespace/name`, or `name`."""
        self.now = now
        """The object after the change; None when it was deleted."""
        self.before = before
        """The object before; for a deletion with the revision of the deletion in its body."""
        self.damage = damage
        """Why the object after the change cannot be read, if so. It is there all the same."""
        self.is_mended = is_mended
        """Whether the object before could not be read. Others may know it, as it was then or from
        another server: what this change is to them, nobody can tell."""
        self.forms: dict[object, bytes] | None = None

    def form(self, key: object, make: Callable[[WatchCacheEvent], bytes]) -> bytes:
        """The bytes of this change in some form, made when first asked for."""
        if self.forms is None:
            self.forms = {}
        found = self.forms.get(key)
        if found is None:
            found = self.forms[key] = make(self)
        return found


class CachedObjects(NamedTuple):
    """Some objects in order of key, all as they were at one revision."""

    keys: list[str]
    entries: list[Entry]
    revision: int


class ForNow(str):
    """Why an object cannot be read that can be, as soon as a plug-in of encryption answers."""

    __slots__ = ()


class Foreign(str):
    """Why an object cannot be read that others can: its version, or its key, is not known here."""

    __slots__ = ("revision",)

    revision: int
    """When it was stored."""


class WatchCache:
    """The objects under one root of keys."""

    def __init__(
        self,
        root: str,
        splicer: Splicer,
        *,
        changes_max: int = CHANGES_MAX,
        changes_bytes_max: int = CHANGES_BYTES_MAX,
    ) -> None:
        self.root = root
        self._cut = len(root)
        self.splicer = splicer
        """How values become entries."""
        self._changes_max = changes_max
        self._changes_bytes_max = changes_bytes_max
        self.entries: dict[str, Entry] = {}
        """By key without the root. To be read only; here for those who read a lot."""
        self._keys: list[str] = []
        self._changes: list[WatchCacheEvent] = []
        self._changes_base = 0  # absolute index of _changes[0]; cursors are absolute
        self._changes_bytes = 0
        self._floor = 0
        self.changed_at = 0
        """The revision of the newest change or load."""
        self.damaged: dict[str, str] = {}
        """Objects that cannot be read, with the reason; never hidden from a caller."""
        self.has_damaged_changes = False
        """Whether to look for damage among the changes."""
        self.memo: dict[object, Any] = {}
        """What readers made of all objects as they are now. Every change empties it."""
        self._listeners: dict[Callable[[], None], None] = {}
        self.is_closed = False
        """Whether nothing comes any more: another cache has taken its place. Watches end."""

    def __len__(self) -> int:
        return len(self.entries)

    # Filling.

    def load(self, items: Iterable[Item], revision: int) -> None:
        """Replace everything by what the store holds at a revision."""
        self.entries = {}
        self.damaged = {}
        self.has_damaged_changes = False
        self.add(items)
        self.end_load(revision)

    def add(self, items: Iterable[Item]) -> None:
        """Some of the objects of a load, for a cache that nobody reads yet."""
        for item in items:
            self._put(item.key[self._cut :], item.value, item.revision)

    def end_load(self, revision: int) -> None:
        """All objects have been added, as they were at a revision."""
        self._keys = sorted(self.entries)
        self.memo = {}
        self._changes = []
        self._changes_base += 1 << 32  # no cursor of before is valid any more
        self._changes_bytes = 0
        self.changed_at = self._floor = revision

    def apply(self, events: Iterable[Event]) -> None:
        """Follow the store; events must come in order, repeats of the load do no harm."""
        changed = False
        for event in events:
            # A transaction writes at most one object of a resource: a revision is one change.
            if event.revision > self.changed_at:
                self._apply(event)
                changed = True
        if changed:
            self._trim()
            self.notify()

    def close(self) -> None:
        """Say to all listeners that nothing comes any more; what is here may still be read."""
        self.is_closed = True
        self.notify()

    def notify(self) -> None:
        """Call all listeners."""
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call back after changes were applied, everything was loaded anew, or it was closed."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    def _apply(self, event: Event) -> None:
        key = event.key[self._cut :]
        before = self.entries.get(key)
        self.memo = {}
        now = damage = None
        was_damaged = bool(self.damaged) and key in self.damaged
        if event.value is None:
            self._remove(key)
            self.damaged.pop(key, None)
            if before is not None:
                before = self._deleted(event, before)
            elif not was_damaged:
                return
        else:
            self._put(key, event.value, event.revision)
            now = self.entries.get(key)
            if self.damaged:
                damage = self.damaged.get(key)
            if before is None and now is not None:
                insort(self._keys, key)
        self.changed_at = event.revision
        is_mended = was_damaged and damage is None
        self._append(
            WatchCacheEvent(event.revision, key, now, before, damage=damage, is_mended=is_mended)
        )

    def _append(self, change: WatchCacheEvent) -> None:
        self._changes.append(change)
        self._changes_bytes += _size(change)
        if change.damage is not None or change.is_mended:
            self.has_damaged_changes = True

    def _deleted(self, event: Event, before: Entry) -> Entry:
        """The last state of an object, with the revision at which it was deleted."""
        if event.previous is None:
            return before
        try:
            return self.splicer.serve(event.previous.value, event.revision)
        except StorageError as error:  # its key may be gone: that must not stop the watch
            logger.warning("%s cannot be read as it was deleted: %s", event.key, error)
            return _at_revision(before, event.revision)

    def _put(self, key: str, value: bytes, revision: int) -> None:
        try:
            self.entries[key] = self.splicer.serve(value, revision)
            if self.damaged:
                self.damaged.pop(key, None)
        except StorageError as error:
            self.damaged[key] = _reason(error, revision)
            if len(self.damaged) <= DAMAGED_LOGGED_MAX:
                logger.warning("%s%s cannot be read: %s", self.root, key, error)
            self._remove(key)

    def _remove(self, key: str) -> None:
        if self.entries.pop(key, None) is not None:
            index = bisect_left(self._keys, key)
            if index < len(self._keys) and self._keys[index] == key:
                del self._keys[index]

    def _trim(self) -> None:
        changes = self._changes
        if len(changes) <= self._changes_max and self._changes_bytes <= self._changes_bytes_max:
            return
        # A small part at a time: all its memory is freed in this moment, while others wait.
        count_max = self._changes_max - self._changes_max // TRIMMED_PART
        bytes_max = self._changes_bytes_max - self._changes_bytes_max // TRIMMED_PART
        drop, left, size = 0, len(changes), self._changes_bytes
        while left > 1 and (left > count_max or size > bytes_max):
            size -= _size(changes[drop])
            drop, left = drop + 1, left - 1
        if not drop:
            return
        self._floor = changes[drop - 1].revision
        self._changes_bytes = size
        del changes[:drop]
        self._changes_base += drop

    def has_room(self, count: int, nbytes: int) -> bool:
        """Whether the ring can hold so much more."""
        return (
            len(self._changes) + count <= self._changes_max
            and self._changes_bytes + nbytes <= self._changes_bytes_max
        )

    def prepend(self, events: Iterable[Event], *, after: int) -> None:
        """Put older changes before those in the ring: all that happened after a revision.

        If the keys of some are gone, or their versions, only what came after the last of them:
        whoever would resume before it is told that it is too late, rather than something wrong.
        """
        older: list[WatchCacheEvent] = []
        for event in events:
            if after < event.revision <= self._floor:
                try:
                    older.append(self._past(event))
                except _NOT_OF_THE_PAST as error:
                    logger.info("%s cannot be read as it was: %s", event.key, error)
                    older, after = [], event.revision
        self._changes[:0] = older
        self._changes_base -= len(older)
        self._changes_bytes += sum(map(_size, older))
        self.has_damaged_changes |= any(
            change.damage is not None or change.is_mended for change in older
        )
        self._floor = after

    def _past(self, event: Event) -> WatchCacheEvent:
        """Raises `CannotOpen` when one of its states is encrypted with a key that is gone,
        `PluginSilent` when it cannot be asked for, `VersionUnknown` when it is in a version that
        is gone."""
        now = before = damage = None
        is_mended = False
        previous = event.previous
        try:
            if event.value is not None:
                now = self.splicer.serve(event.value, event.revision)
            if previous is not None:
                revision = event.revision if now is None else previous.revision
                before = self.splicer.serve(previous.value, revision)
        except _NOT_OF_THE_PAST:
            raise
        except StorageError as error:
            if now is None and event.value is not None:
                damage = error.told
            else:
                is_mended = True
        key = event.key[self._cut :]
        return WatchCacheEvent(event.revision, key, now, before, damage=damage, is_mended=is_mended)

    # Reading.

    def get(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def of_key(self, key: str) -> Entry | None:
        """The same by the whole key."""
        return self.entries.get(key[self._cut :])

    def select(self, prefix: str = "", *, start: str = "", limit: int = 0) -> CachedObjects:
        """Objects whose key begins with `prefix`, from `start` on."""
        keys = self._keys
        first = bisect_left(keys, max(prefix, start))
        last = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
        if limit:
            last = min(last, first + limit)
        chosen = keys[first:last]
        return CachedObjects(chosen, list(map(self.entries.__getitem__, chosen)), self.changed_at)

    def count(self, prefix: str = "", *, start: str = "") -> int:
        """How many objects `select` would give without a limit."""
        keys = self._keys
        last = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
        return max(0, last - bisect_left(keys, max(prefix, start)))

    # The ring of changes.

    def cursor_after(self, revision: int) -> int | None:
        """Where changes after a revision begin; None when some of them are no longer here."""
        if revision < self._floor:
            return None
        return self._changes_base + bisect_right(
            self._changes, revision, key=lambda change: change.revision
        )

    @property
    def cursor_end(self) -> int:
        return self._changes_base + len(self._changes)

    @property
    def floor(self) -> int:
        """Changes after this revision are here."""
        return self._floor

    def changes_from(self, cursor: int) -> list[WatchCacheEvent] | None:
        """The changes from a cursor on; None when some of them are no longer here."""
        index = cursor - self._changes_base
        return None if index < 0 else self._changes[index:]


def _size(change: WatchCacheEvent) -> int:
    size = 200
    if change.now is not None:
        size += len(change.now[2])
    if change.before is not None:
        size += len(change.before[2])
    return size


def _reason(error: StorageError, revision: int) -> str:
    """Why an object cannot be read that was stored at a revision."""
    if isinstance(error, PluginSilent):
        return ForNow(error.told)
    if isinstance(error, CannotOpen | VersionUnknown):
        foreign = Foreign(error.told)
        foreign.revision = revision
        return foreign
    return error.told


def _at_revision(entry: Entry, revision: int) -> Entry:
    """The same object with another resource version, which is the first field of its metadata."""
    old, version, body = entry
    field = b'"resourceVersion":"%d"'
    return revision, version, body.replace(field % old, field % revision, 1)
