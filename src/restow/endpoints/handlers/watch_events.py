"""Encodes the events of one watch: JSON or protobuf, objects in the form that the client asks for.

Not here: which events are sent, and when (`watch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson

from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.endpoints.handlers.fan_out import FanOut
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.watch_conversion import WaitingWatcher
from restow.endpoints.representations import event_in_form
from restow.httpserver.stream import encode_chunk
from restow.registry.watch_cache import Entry, WatchCacheEvent
from restow.request.context import Context
from restow.request.protobuf_messages import event_frame

COSTLY_BYTES_AT_ONCE: Final = 16 * 1024
"""Bytes of objects that are encoded in another form before other work of the event loop."""
PLAIN_BYTES_AT_ONCE: Final = 64 * 1024
"""The same for objects that are sent as they are cached."""


class EventEncoder:
    """Encodes events as chunks of the stream."""

    def __init__(self, server: Server, context: Context, fan_out: FanOut) -> None:
        self._server = server
        self._context = context
        self._fan_out = fan_out
        self._resource = resource_of(context)
        self._version = self._resource.api_version(context.info.version)
        self._is_protobuf = context.form.media == "protobuf"
        self.as_kind: Final = context.form.as_kind
        self.is_costly: Final = self._is_protobuf or bool(self.as_kind)
        """Whether encoding takes long enough for a thread, if the object is long."""
        self.key: Final = (
            self._version,
            self.as_kind,
            context.info.parameter("includeObject"),
            context.form.media,
        )
        """Watchers with the same key get the same bytes."""
        self._with_definitions = self.as_kind == "Table"
        """Whether the next event has the column definitions: only the first one has."""

    def encode(self, what: bytes, entry: Entry, watcher: WaitingWatcher) -> bytes:
        """Encode an event for a watcher. Raises EncodingPending if a thread encodes it."""
        with_definitions = self._with_definitions
        is_costly = self.is_costly or entry[1] != self._version
        if is_costly and len(entry[2]) > LONG_BODY_SIZE:
            found = self._fan_out.long_encodings.get(
                # By user, too: a user without a free thread delays and fails its own watches only.
                (self.key, what, entry[0], with_definitions, self._context.user.name),
                partial(self._encode, what, entry, with_definitions=with_definitions),
                context=self._context,
                watcher=watcher,
            )
        else:
            found = self._encode(what, entry, with_definitions=with_definitions)
        self._with_definitions = False
        return found

    def _encode(self, what: bytes, entry: Entry, *, with_definitions: bool) -> bytes:
        body = self._server.store.body_of(self._resource, entry, self._version)
        return encode_chunk(self.event(what, self._in_form(body, with_definitions)))

    def _in_form(self, body: bytes, with_definitions: bool) -> bytes:  # noqa: FBT001 - one caller
        if not self.as_kind:
            return body
        clock = self._server.runtime.clock
        return event_in_form(self._context, body, clock=clock, with_definitions=with_definitions)

    def event(self, what: bytes, body: bytes) -> bytes:
        if self._is_protobuf:
            return event_frame(what, body)
        return b'{"type":"%b","object":%b}\n' % (what, body)

    def bookmark(self, revision: int, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        kind = self._resource.kind.kind
        body = orjson.dumps({"kind": kind, "apiVersion": self._version, "metadata": metadata})
        return encode_chunk(self.event(b"BOOKMARK", self._in_form(body, False)))

    def fit(self, entries: list[Entry | None]) -> int:
        """The number of objects to encode at once: at least one."""
        bytes_max = COSTLY_BYTES_AT_ONCE if self.is_costly else PLAIN_BYTES_AT_ONCE
        nbytes = 0
        for index, entry in enumerate(entries):
            nbytes += 0 if entry is None else len(entry[2])
            if nbytes > bytes_max:
                return max(index, 1)
        return len(entries)


def sent_object(change: WatchCacheEvent) -> Entry | None:
    """The object that an event of a change contains."""
    return change.before if change.now is None else change.now
