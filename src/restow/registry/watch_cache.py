"""The watch cache: all objects of one resource in memory, as bytes, and their newest changes.

Reads are served from here: a get is a dictionary look-up, a list a join of byte strings. Entries
are plain tuples of numbers and bytes, which Python's garbage collector does not track. Changes are
kept in a bounded ring buffer, from which watches are served; each change is encoded once for all
watchers that need the same encoding.

A cache is filled by `Caches` (see `caches`) and does no I/O itself. Not here: authorization,
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
"""Divisor: a full ring buffer is trimmed by this part of its limits, oldest changes first."""
DAMAGED_LOGGED_MAX: Final = 20
_NOT_OF_THE_PAST: Final = (CannotOpen, PluginSilent, VersionUnknown)
"""Reasons why a former state cannot be read although nothing is damaged."""

logger = logging.getLogger(__name__)

Entry = tuple[int, str, bytes]
"""Revision, `apiVersion` it is stored in, and body as served in it, with its resource version.

A plain tuple of numbers and bytes, so that the garbage collector does not track it."""


class WatchCacheEvent:
    """One change of one object, encoded at most once per encoding."""

    __slots__ = ("before", "damage", "forms", "is_repaired", "key", "now", "revision")

    def __init__(
        self,
        revision: int,
        key: str,
        now: Entry | None,
        before: Entry | None,
        *,
        damage: str | None = None,
        is_repaired: bool = False,
    ) -> None:
        self.revision = revision
        self.key = key
        """The key without the root of its resource: `namespace/name`, or `name`."""
        self.now = now
        """The object after the change; None when it was deleted."""
        self.before = before
        """The object before the change; for a deletion, its body has the revision of the
        deletion."""
        self.damage = damage
        """Why the object after the change cannot be read, if so. The object still exists."""
        self.is_repaired = is_repaired
        """Whether the object before the change could not be read. Clients may have seen it earlier
        or on another server, so the type of this change is unknown for them."""
        self.forms: dict[object, bytes] | None = None

    def form(self, key: object, make: Callable[[WatchCacheEvent], bytes]) -> bytes:
        """Return the bytes of this change in some encoding, made on first use."""
        if self.forms is None:
            self.forms = {}
        found = self.forms.get(key)
        if found is None:
            found = self.forms[key] = make(self)
        return found


class CachedObjects(NamedTuple):
    """Objects in order of their keys, all at one revision."""

    keys: list[str]
    entries: list[Entry]
    revision: int


class ForNow(str):
    """Why an object cannot be read until the KMS plugin responds."""

    __slots__ = ()


class Foreign(str):
    """Why this server cannot read an object that others can: unknown version or encryption key."""

    __slots__ = ("revision",)

    revision: int
    """The revision at which it was stored."""


class WatchCache:
    """The objects under one key prefix."""

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
        """Turns stored values into entries."""
        self._changes_max = changes_max
        self._changes_bytes_max = changes_bytes_max
        self.entries: dict[str, Entry] = {}
        """By key without the root. Read-only; public for code that reads many entries."""
        self._keys: list[str] = []
        self._changes: list[WatchCacheEvent] = []
        self._changes_base = 0  # absolute index of _changes[0]; cursors are absolute
        self._changes_bytes = 0
        self._floor = 0
        self.changed_at = 0
        """The revision of the newest change or load."""
        self.damaged: dict[str, str] = {}
        """Objects that cannot be read, with the reason; never omitted silently."""
        self.has_damaged_changes = False
        """Whether changes in the ring must be checked for damage."""
        self.memo: dict[object, Any] = {}
        """Results that readers computed from the current objects. Every change clears it."""
        self._listeners: dict[Callable[[], None], None] = {}
        self.is_closed = False
        """Whether the cache was replaced by another one: it gets no more changes, and watches
        end."""

    def __len__(self) -> int:
        return len(self.entries)

    # Filling.

    def load(self, items: Iterable[Item], revision: int) -> None:
        """Replace everything with the contents of the store at a revision."""
        self.entries = {}
        self.damaged = {}
        self.has_damaged_changes = False
        self.add(items)
        self.end_load(revision)

    def add(self, items: Iterable[Item]) -> None:
        """Add a part of the objects of a load; the cache is not in use yet."""
        for item in items:
            self._put(item.key[self._cut :], item.value, item.revision)

    def end_load(self, revision: int) -> None:
        """Complete a load: all objects at this revision have been added."""
        self._keys = sorted(self.entries)
        self.memo = {}
        self._changes = []
        self._changes_base += 1 << 32  # invalidates all existing cursors
        self._changes_bytes = 0
        self.changed_at = self._floor = revision

    def apply(self, events: Iterable[Event]) -> None:
        """Apply changes from the store; they must be in order, repeated changes are ignored."""
        changed = False
        for event in events:
            # A transaction writes at most one object of a resource: one change per revision.
            if event.revision > self.changed_at:
                self._apply(event)
                changed = True
        if changed:
            self._trim()
            self.notify()

    def close(self) -> None:
        """Notify all listeners that no more changes come; existing entries can still be read."""
        self.is_closed = True
        self.notify()

    def notify(self) -> None:
        """Call all listeners."""
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a callback for applied changes, a reload, and the end of the cache."""
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
        is_repaired = was_damaged and damage is None
        self._append(
            WatchCacheEvent(
                event.revision, key, now, before, damage=damage, is_repaired=is_repaired
            )
        )

    def _append(self, change: WatchCacheEvent) -> None:
        self._changes.append(change)
        self._changes_bytes += _size(change)
        if change.damage is not None or change.is_repaired:
            self.has_damaged_changes = True

    def _deleted(self, event: Event, before: Entry) -> Entry:
        """Return the last state of an object, with the revision at which it was deleted."""
        if event.previous is None:
            return before
        try:
            return self.splicer.serve(event.previous.value, event.revision)
        except StorageError as error:  # e.g. the encryption key is missing: must not stop the watch
            logger.warning("cannot read the last state of deleted object %s: %s", event.key, error)
            return _at_revision(before, event.revision)

    def _put(self, key: str, value: bytes, revision: int) -> None:
        try:
            self.entries[key] = self.splicer.serve(value, revision)
            if self.damaged:
                self.damaged.pop(key, None)
        except StorageError as error:
            self.damaged[key] = _reason(error, revision)
            if len(self.damaged) <= DAMAGED_LOGGED_MAX:
                logger.warning("cannot read object %s%s from the store: %s", self.root, key, error)
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
        # A small part at a time: freeing all its memory at once would block the event loop.
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
        """Whether the ring buffer has space for this many more changes and bytes."""
        return (
            len(self._changes) + count <= self._changes_max
            and self._changes_bytes + nbytes <= self._changes_bytes_max
        )

    def prepend(self, events: Iterable[Event], *, after: int) -> None:
        """Insert older changes before those in the ring: all changes after a revision.

        If a change cannot be read because its encryption key or version is not available, only the
        changes after it are inserted: a client that resumes earlier gets 410 Gone, not wrong
        events.
        """
        older: list[WatchCacheEvent] = []
        for event in events:
            if after < event.revision <= self._floor:
                try:
                    older.append(self._past(event))
                except _NOT_OF_THE_PAST as error:
                    logger.info("cannot read a former state of %s: %s", event.key, error)
                    older, after = [], event.revision
        self._changes[:0] = older
        self._changes_base -= len(older)
        self._changes_bytes += sum(map(_size, older))
        self.has_damaged_changes |= any(
            change.damage is not None or change.is_repaired for change in older
        )
        self._floor = after

    def _past(self, event: Event) -> WatchCacheEvent:
        """Decode an older change. Raises `CannotOpen` if a state is encrypted with a missing key,
        `PluginSilent` if the KMS plugin does not respond, `VersionUnknown` for a version that this
        server cannot decode."""
        now = before = damage = None
        is_repaired = False
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
                damage = error.client_message
            else:
                is_repaired = True
        key = event.key[self._cut :]
        return WatchCacheEvent(
            event.revision, key, now, before, damage=damage, is_repaired=is_repaired
        )

    # Reading.

    def get(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def of_key(self, key: str) -> Entry | None:
        """Return the entry of a whole key."""
        return self.entries.get(key[self._cut :])

    def select(self, prefix: str = "", *, start: str = "", limit: int = 0) -> CachedObjects:
        """Return objects whose keys begin with `prefix`, starting at `start`."""
        keys = self._keys
        first = bisect_left(keys, max(prefix, start))
        last = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
        if limit:
            last = min(last, first + limit)
        chosen = keys[first:last]
        return CachedObjects(chosen, list(map(self.entries.__getitem__, chosen)), self.changed_at)

    def count(self, prefix: str = "", *, start: str = "") -> int:
        """Return the number of objects that `select` would return without a limit."""
        keys = self._keys
        last = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
        return max(0, last - bisect_left(keys, max(prefix, start)))

    # The ring buffer of changes.

    def cursor_after(self, revision: int) -> int | None:
        """Return the cursor of the changes after a revision; None if some of them were dropped."""
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
        """The ring contains all changes after this revision."""
        return self._floor

    def changes_from(self, cursor: int) -> list[WatchCacheEvent] | None:
        """Return the changes from a cursor on; None if some of them were dropped."""
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
    """Return why an object that was stored at a revision cannot be read."""
    if isinstance(error, PluginSilent):
        return ForNow(error.client_message)
    if isinstance(error, CannotOpen | VersionUnknown):
        foreign = Foreign(error.client_message)
        foreign.revision = revision
        return foreign
    return error.client_message


def _at_revision(entry: Entry, revision: int) -> Entry:
    """Return an entry with another resource version, the first field of its metadata."""
    old, version, body = entry
    field = b'"resourceVersion":"%d"'
    return revision, version, body.replace(field % old, field % revision, 1)
