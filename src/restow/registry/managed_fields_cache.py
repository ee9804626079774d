"""Cache of parsed `managedFields`, so that unchanged ones are not parsed again.

They are half the text of a typical object, and most writes find them as the previous one left them.
Their text is cut out before an object is parsed, and the cached entries are put in its place. The
cache cannot be stale, since the same text always has the same meaning. Threads may call `note`,
`is_whole` and `load`.

Entries in an object are never changed in place; changed entries are new ones.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import orjson

from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.registry.resource import Object

TEXT_BYTES_MAX: Final = 16 * 1024
"""Limit of one text; longer ones are rare."""
TEXTS_BYTES_MAX: Final = 1024 * 1024
"""Limit of all texts together; the parsed entries take ten times as much memory."""
BODY_BYTES_MAX: Final = LONG_BODY_SIZE
"""Longer bodies are parsed in full: managed fields are their smaller part, and a thread parses
them."""
_NAME: Final = b'"managedFields":'


class ManagedFieldsCache:
    """The managed fields of some objects, as this server last wrote them, by storage key."""

    def __init__(self, mark: str) -> None:
        """`mark` replaces a text that was cut out; it must be unpredictable for clients."""
        self._mark = mark
        self._marked = _NAME + orjson.dumps(mark)
        self._known: dict[str, tuple[bytes, list[Any], bool]] = {}
        self._nbytes = 0
        self._lock = threading.Lock()

    def note(self, key: str, entries: list[Any], *, is_whole: bool) -> None:
        """Cache the managed fields of an object. `is_whole`: the object is entirely in the
        normalized form that this server writes."""
        before = self._known.get(key)
        if before is not None and before[1] is entries:
            return
        text = _NAME + orjson.dumps(entries)
        with self._lock:
            self._replace(key, (text, entries, is_whole))

    def _replace(self, key: str, new: tuple[bytes, list[Any], bool]) -> None:
        known = self._known
        before = known.pop(key, None)
        if before is not None:
            self._nbytes -= len(before[0])
        if len(new[0]) > TEXT_BYTES_MAX:
            return
        known[key] = new
        self._nbytes += len(new[0])
        while self._nbytes > TEXTS_BYTES_MAX:
            oldest = next(iter(known))
            self._nbytes -= len(known.pop(oldest)[0])

    def is_whole(self, key: str, obj: Object) -> bool:
        """Whether an object is entirely in the normalized form that this server writes, so that
        equal content has equal text."""
        known = self._known.get(key)
        if known is None or not known[2]:
            return False
        return obj["metadata"].get("managedFields") is known[1]

    def load(self, key: str, body: bytes) -> Object:
        """Parse the text of a stored object."""
        short = self.cut(key, body)
        if short is not None:
            obj: Object = orjson.loads(short)
            if self.put_back(key, obj):
                return obj
        whole: Object = orjson.loads(body)
        return whole

    def cut(self, key: str, body: bytes) -> bytes | None:
        """Return a text without the cached managed fields; None if it does not contain these.

        The object that is parsed from it must be passed to `put_back`.
        """
        known = self._known.get(key)
        if known is None or len(body) > BODY_BYTES_MAX:
            return None
        text = known[0]
        # Check the first occurrence only; a search for the whole text takes five times as long.
        begin = body.find(_NAME)
        if begin < 0 or not body.startswith(text, begin):
            return None
        return b"".join((body[:begin], self._marked, body[begin + len(text) :]))

    def put_back(self, key: str, obj: Object) -> bool:
        """Put the cached managed fields into an object that was parsed from a cut text. Return
        False if they were not at the expected place: the whole text must be parsed."""
        metadata = obj.get("metadata")
        if type(metadata) is not dict or metadata.get("managedFields") != self._mark:
            return False
        metadata["managedFields"] = self._known[key][1]
        return True
