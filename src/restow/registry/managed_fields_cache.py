"""Entries of `managedFields` whose text was read or written before need not be read again.

They are half of a usual object's text, and most writes find them as the last one left them. So the
text is cut out of what is read, and what it stands for put in its place. It is a pure memory: the
same text always has the same meaning, whoever has sent it, so nothing here can be out of date.

Nobody changes entries that are in an object; whoever needs others makes them.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.registry.resource import Object

TEXT_BYTES_MAX: Final = 16 * 1024
"""Longer ones are rare."""
TEXTS_BYTES_MAX: Final = 1024 * 1024
"""Of all texts together; what they stand for takes ten times that much."""
BODY_BYTES_MAX: Final = 64 * 1024
"""In longer bodies they are the lesser part."""
_NAME: Final = b'"managedFields":'


class ManagedFieldsCache:
    """What the entries of some objects look like, for each as they were last written here."""

    def __init__(self, mark: str) -> None:
        """`mark` stands where a text was cut out: something that nobody else can know."""
        self._mark = mark
        self._marked = _NAME + orjson.dumps(mark)
        self._known: dict[str, tuple[bytes, list[Any], bool]] = {}
        self._nbytes = 0

    def note(self, key: str, entries: list[Any], *, is_whole: bool) -> None:
        """Remember the entries that an object has from now on, and whether all of it is then as
        this server writes objects."""
        known = self._known
        before = known.get(key)
        if before is not None:
            if before[1] is entries:
                return
            del known[key]
            self._nbytes -= len(before[0])
        text = _NAME + orjson.dumps(entries)
        if len(text) > TEXT_BYTES_MAX:
            return
        known[key] = text, entries, is_whole
        self._nbytes += len(text)
        while self._nbytes > TEXTS_BYTES_MAX:
            oldest = next(iter(known))
            self._nbytes -= len(known.pop(oldest)[0])

    def is_whole(self, key: str, obj: Object) -> bool:
        """Whether all of an object is as this server writes objects: nothing in it says in other
        words what this server would say."""
        known = self._known.get(key)
        if known is None or not known[2]:
            return False
        return obj["metadata"].get("managedFields") is known[1]

    def load(self, key: str, body: bytes) -> Object:
        """The object in a text that was stored."""
        short = self.cut(key, body)
        if short is not None:
            obj: Object = orjson.loads(short)
            if self.put_back(key, obj):
                return obj
        whole: Object = orjson.loads(body)
        return whole

    def cut(self, key: str, body: bytes) -> bytes | None:
        """A text without the entries that are known of an object; None if it has not these.

        What is made of it must be given to `put_back`.
        """
        known = self._known.get(key)
        if known is None or len(body) > BODY_BYTES_MAX:
            return None
        text = known[0]
        # The first ones that there are; to look for the whole text takes five times as long.
        begin = body.find(_NAME)
        if begin < 0 or not body.startswith(text, begin):
            return None
        return b"".join((body[:begin], self._marked, body[begin + len(text) :]))

    def put_back(self, key: str, obj: Object) -> bool:
        """Put the entries where they were cut out. False if they stood somewhere else: then the
        whole text must be read."""
        metadata = obj.get("metadata")
        if type(metadata) is not dict or metadata.get("managedFields") != self._mark:
            return False
        metadata["managedFields"] = self._known[key][1]
        return True
