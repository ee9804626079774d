"""watch: a stream of changes.

A watcher is a cursor into the ring of changes of a watch cache, and some callbacks of its stream:
it has no task and no queue. When a cache changes, all its watchers are flushed together in the next
iteration of the event loop; watchers of the same changes in the same form share the encoded bytes.
A watcher whose client is slow is skipped until it can take more; one that falls out of the ring
gets 410 Expired and has to list again. When a cache is closed because its resource has changed, its
watches end, and clients start new ones. If the resource is not served any more, they end
`REMOVED_SECONDS` later.

Where a webhook converts objects, a watcher processes the changes in batches and waits for those not
converted yet (`watch_conversion`). Selectors apply to the objects as the client gets them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from restow.aio import Timer
from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusError
from restow.endpoints.handlers.fan_out import FanOut, fan_out_of
from restow.endpoints.handlers.get import (
    FUTURE_SECONDS_MAX,
    parse_resource_version,
    resource_of,
    turn_of,
)
from restow.endpoints.handlers.list_objects import refuse_damaged
from restow.endpoints.handlers.long_encodings import EncodingPending
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.watch_conversion import Translation
from restow.endpoints.handlers.watch_events import EventEncoder, sent_object
from restow.endpoints.list_selectors import ListSelectors
from restow.endpoints.websocket import agreed_headers, as_websocket, asks_for_websocket
from restow.httpserver.response import Answer, HttpResponse
from restow.httpserver.stream import PushStream, StreamWriter
from restow.registry.committer import check_current
from restow.registry.resource import Resource
from restow.registry.watch_cache import Entry, WatchCache, WatchCacheEvent
from restow.request.context import Context
from restow.request.protobuf_messages import FRAME_LENGTH_BYTES
from restow.request.responses import JSON_HEADERS, PROTOBUF_WATCH_HEADERS, warning_lines

TIMEOUT_SECONDS_MAX: Final = 86_400
BOOKMARK_SECONDS: Final = 60.0
INITIAL_ITEMS_PER_WRITE: Final = 100
CHANGES_AT_ONCE: Final = 100
"""Changes that are converted, selected or encoded before other work of the event loop."""
PLAIN_CHANGES_AT_ONCE: Final = 1_000
"""The same for changes that are sent as they are cached."""
REMOVED_SECONDS: Final = 1.0
"""How long a watch outlives its resource, as in kube-apiserver. The client gets the change of the
CRD by another watch; if this one ended first, the client would start it again and get a 404, which
stops some operators."""

_ADDED, _MODIFIED, _DELETED = b"ADDED", b"MODIFIED", b"DELETED"
_END_OF_INITIAL = {"k8s.io/initial-events-end": "true"}


async def watch(server: Server, context: Context) -> Answer:
    """GET of a collection with watch=true."""
    switching = agreed_headers(context.request) if asks_for_websocket(context.request) else b""
    if isinstance(switching, HttpResponse):
        return switching
    resource, info = resource_of(context), context.info
    selection = ListSelectors(resource, info)
    text = info.parameter("resourceVersion")
    version = parse_resource_version(text) if text else 0
    initial = _initial_events(context, version)
    seconds = info.number("timeoutSeconds")
    if not seconds or seconds < 0:
        seconds = int(server.watch_seconds * server.runtime.randomness.uniform(1, 2))
    if text:
        cache = await server.store.loaded(resource)
    else:
        cache = await server.store.read(resource, turn=turn_of(context))
    watcher = WatchResponse(server, context, selection, cache)
    failure = None
    if initial and version > max(server.store.position, cache.changed_at):
        failure = await _wait(server, version)
        check_current(resource)  # else the cache is not updated any more
    elif not initial and version and cache.cursor_after(version) is None:
        await server.store.caches.backfill(resource.root, after=version)
    watcher.begin(version, initial=initial, failure=failure)
    watcher.seconds = min(seconds, TIMEOUT_SECONDS_MAX, context.seconds_max)
    headers = PROTOBUF_WATCH_HEADERS if context.form.media == "protobuf" else JSON_HEADERS
    if context.warnings:
        headers += warning_lines(context.warnings)
    stream = PushStream(200, watcher.start, headers, on_revoked=watcher.fail_with)
    if not switching:
        return stream
    length_bytes = FRAME_LENGTH_BYTES if context.form.media == "protobuf" else None
    clock = server.runtime.clock
    return as_websocket(stream, switching, clock=clock, length_bytes=length_bytes)


async def _wait(server: Server, version: int) -> StatusError | None:
    try:
        async with server.runtime.clock.timeout(FUTURE_SECONDS_MAX):
            await server.store.caches.reach_future(version)
    except TimeoutError:
        return status.resource_version_too_large(version, server.store.position)
    return None


def _initial_events(context: Context, version: int) -> bool:
    """Whether the stream starts with all existing objects. Raises 422."""
    info = context.info
    match = info.parameter("resourceVersionMatch")
    if "sendInitialEvents" not in info.query:
        if match:
            raise _invalid("resourceVersionMatch", "forbidden for watch")
        return version == 0
    if match != "NotOlderThan":
        if not match:
            raise _invalid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        cause = field_errors.not_supported("resourceVersionMatch", match, ["NotOlderThan"])
        raise status.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", [cause])
    return info.flag("sendInitialEvents")


def _invalid(field: str, why: str) -> StatusError:
    cause = field_errors.forbidden(field, why)
    return status.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", [cause])


class WatchResponse:
    """One client's watch."""

    def __init__(
        self, server: Server, context: Context, selection: ListSelectors, cache: WatchCache
    ) -> None:
        self._server = server
        self._context = context
        self._selection = selection
        self._cache = cache
        self._fan_out = fan_out_of(server, cache)
        self._resource: Resource = resource_of(context)
        self._version = self._resource.api_version(context.info.version)
        self._wants_bookmarks = context.info.flag("allowWatchBookmarks")
        self._encoder = EventEncoder(server, context, self._fan_out)
        self._translation: Translation | None = None
        if self._resource.remote is not None:
            self._translation = self._fan_out.translation(self._resource, self._version)
        self._cursor = 0
        self._after = 0
        self._initial: Iterator[bytes | None] | None = None
        self._failure: StatusError | None = None
        self._writer: StreamWriter | None = None
        self._timers: list[Timer] = []
        self._is_continuing = False
        self.seconds: float = server.watch_seconds

    def begin(self, version: int, *, initial: bool, failure: StatusError | None) -> None:
        """Choose the start: all existing objects, or the changes after a version."""
        cache = self._cache
        self._failure = failure
        self._cursor = cache.cursor_end
        if initial and failure is None:
            self._begin_with_all()
            return
        if not version:
            version = max(self._server.store.position, cache.changed_at)
        cursor = cache.cursor_after(version)
        self._after = version
        if cursor is not None:
            self._cursor = cursor
        elif not cache.is_closed:  # else it ends at once, and the client starts another
            self._failure = self._failure or status.resource_version_too_old(version, cache.floor)

    def _begin_with_all(self) -> None:
        """Choose the objects at once: cursor, bookmark and objects must be of the same revision."""
        cache, selection = self._cache, self._selection
        now = max(self._server.store.position, cache.changed_at)
        if cache.damaged:
            try:
                refuse_damaged(self._server, cache, selection)
            except StatusError as error:
                self._failure = error
                return
        page = cache.select(selection.prefix)
        keys, chosen = page.keys, page.entries
        if selection and self._translation is None:
            matching = [
                (path, entry)
                for path, entry in zip(keys, chosen, strict=True)
                if selection.matches(path, entry)
            ]
            keys, chosen = [path for path, _ in matching], [entry for _, entry in matching]
        self._initial = self._initial_chunks(keys, chosen, now)
        self._after = now

    def start(self, writer: StreamWriter) -> None:
        """Start to send after the response head, as far as the client can take it."""
        self._writer = writer
        writer.on_close = self._closed
        writer.on_writable = self.flush
        if self._failure is not None:
            self.fail(self._failure)
            return
        clock = self._server.runtime.clock
        self._timers.append(clock.call_later(self.seconds, self._timed_out))
        if self._wants_bookmarks:
            self._timers.append(clock.call_later(BOOKMARK_SECONDS, self._bookmark_and_again))
        self._fan_out.add(self)
        self.flush()

    def flush(self) -> None:
        """Send pending changes until the client cannot take more."""
        writer = self._writer
        if writer is None or writer.closed:
            return
        while self._initial is not None and writer.writable:
            piece = next(self._initial, b"")
            if piece is None:
                self._wait()
                return
            if piece:
                writer.send_raw_chunk(piece)
                self._continue_later(writer)
                return
            self._initial = None
        if self._initial is not None:
            return
        if writer.writable and self._flush_changes(writer):
            self._continue_later(writer)

    def _continue_later(self, writer: StreamWriter) -> None:
        """Send more after other work of the event loop, when it is the turn of the user."""
        if not self._is_continuing:
            self._is_continuing = True
            writer.do_later(self._continue)

    def _continue(self) -> None:
        self._is_continuing = False
        self.flush()

    def _flush_changes(self, writer: StreamWriter) -> bool:
        """Send changes; return whether more can be sent now."""
        changes = self._cache.changes_from(self._cursor)
        if changes is None:
            self.fail(status.resource_version_too_old(self._after, self._cache.floor))
            return False
        broken = self._first_undecodable(changes) if self._cache.has_damaged_changes else None
        if broken is not None:
            changes = changes[: changes.index(broken)]
        if changes:
            part = changes
            if self._encoder.is_costly or len(changes) > CHANGES_AT_ONCE:
                part = self._next_changes(changes)
            some: list[WatchCacheEvent] | None = part
            if self._translation is not None:
                some = self._translated(self._translation, part)
            if some is None or not self._send_changes(writer, some):
                self._wait()
                return False
            if len(some) < len(changes):
                return True
        if broken is not None and (broken.damage is None or broken.key not in self._cache.damaged):
            # It is readable now, but whether the client has this state is unknown: it has to list
            # again.
            self.fail(status.resource_version_too_old(self._after, broken.revision))
        elif broken is not None:
            found = {broken.key: broken.damage or ""}
            self.fail(self._server.store.damaged(self._resource, found))
        elif self._cache.is_closed:
            self._end_with_cache()
        return False

    def _end_with_cache(self) -> None:
        """End, because the cache gets no more changes: at once if the client can start again."""
        info = self._context.info
        if self._server.catalog.find(info.group, info.version, info.resource) is not None:
            self._end()
            return
        self._timers[0].cancel()
        self._timers[0] = self._server.runtime.clock.call_later(REMOVED_SECONDS, self._end)

    def _next_changes(self, changes: list[WatchCacheEvent]) -> list[WatchCacheEvent]:
        """The changes for one step: some of them, or one that takes long to encode."""
        if not self._encoder.is_costly:
            is_plain = self._translation is None and not self._selection
            return changes[: PLAIN_CHANGES_AT_ONCE if is_plain else CHANGES_AT_ONCE]
        some = changes[:CHANGES_AT_ONCE]
        return some[: self._encoder.fit([sent_object(change) for change in some])]

    def _send_changes(self, writer: StreamWriter, changes: list[WatchCacheEvent]) -> bool:
        """Send changes; return False if they are being encoded."""
        try:
            chunks = (
                self._chunks(changes)
                if self._selection or self._encoder.as_kind
                else self._fan_out.shared(self._cursor, self._key(), lambda: self._chunks(changes))
            )
        except EncodingPending:
            return False
        self._cursor += len(changes)
        self._after = max(self._after, changes[-1].revision)
        if chunks:
            writer.send_raw_chunk(chunks)
        return True

    def _wait(self) -> None:
        """Wait for conversions or encodings; end the watch if the resource has changed, as no
        conversion will finish then."""
        if self._cache.is_closed:
            self._end_with_cache()

    def _translated(
        self, translation: Translation, changes: list[WatchCacheEvent]
    ) -> list[WatchCacheEvent] | None:
        """Changes with converted objects; None while some are still being converted."""
        needed: list[Entry] = []
        for change in changes:
            needed += self._needed_objects(change)
        seen = translation.seen(needed, self)
        if seen is None:
            return None
        found = {before[0]: after for before, after in zip(needed, seen, strict=True)}
        return [_with_objects(change, found) for change in changes]

    def _needed_objects(self, change: WatchCacheEvent) -> list[Entry]:
        """The objects of a change that selectors need, or that are sent."""
        if change.revision <= self._after or not change.key.startswith(self._selection.prefix):
            return []
        if self._selection:
            return [entry for entry in (change.now, change.before) if entry is not None]
        entry = sent_object(change)
        return [] if entry is None else [entry]

    def _first_undecodable(self, changes: list[WatchCacheEvent]) -> WatchCacheEvent | None:
        """The first selected change that cannot be sent, because its object, or the previous state
        of its object, cannot be decoded."""
        for change in changes:
            if (
                (change.damage is not None or change.is_repaired)
                and change.revision > self._after
                and self._selection.may_match(change.key)
            ):
                return change
        return None

    def _key(self) -> object:
        return (self._encoder.key, self._selection.prefix, self._after)

    def _chunks(self, changes: list[WatchCacheEvent]) -> bytes:
        parts = []
        for change in changes:
            if change.revision > self._after:
                chunk = self._chunk(change)
                if chunk:
                    parts.append(chunk)
        return b"".join(parts)

    def _chunk(self, change: WatchCacheEvent) -> bytes | None:
        """A change as an encoded chunk of the stream, filtered for this watcher."""
        selection = self._selection
        if selection.prefix and not change.key.startswith(selection.prefix):
            return None
        if not selection:
            if change.now is None:
                what, entry = _DELETED, change.before
            else:
                what = _ADDED if change.before is None else _MODIFIED
                entry = change.now
            if entry is None:
                return None
            if self._encoder.as_kind == "Table":
                return self._encode(what, entry)
            return change.form((what, self._encoder.key), lambda _: self._encode(what, entry))
        return self._selected_chunk(change)

    def _selected_chunk(self, change: WatchCacheEvent) -> bytes | None:
        matched = change.before is not None and self._selection.matches(change.key, change.before)
        matches = change.now is not None and self._selection.matches(change.key, change.now)
        if matches and change.now is not None:
            return self._encode(_MODIFIED if matched else _ADDED, change.now)
        if matched and change.before is not None:
            return self._encode(_DELETED, self._last_state(change, change.before))
        return None

    def _last_state(self, change: WatchCacheEvent, before: Entry) -> Entry:
        """The previous state of an object, with the resource version of the change that removed
        it."""
        if change.now is None:
            return before  # a deletion has its own version already
        old, new = (b'"resourceVersion":"%d"' % number for number in (before[0], change.revision))
        return change.revision, before[1], before[2].replace(old, new, 1)

    def _encode(self, what: bytes, entry: Entry) -> bytes:
        """Encode an event. Raises EncodingPending if a thread encodes it."""
        return self._encoder.encode(what, entry, self)

    def _initial_chunks(
        self, keys: list[str], chosen: list[Entry], revision: int
    ) -> Iterator[bytes | None]:
        """Existing objects in batches; None each time that a conversion is pending."""
        first = 0
        while first < len(chosen):
            some = chosen[first : first + INITIAL_ITEMS_PER_WRITE]
            last = first + self._encoder.fit([*some])
            some = chosen[first:last]
            if self._translation is not None:
                while (seen := self._translation.seen(some, self)) is None:
                    yield None
                some = self._selected(keys[first:last], seen)
            while some:
                try:
                    piece = b"".join([self._encode(_ADDED, entry) for entry in some])
                except EncodingPending:
                    yield None
                else:
                    yield piece
                    break
            first = last
        if self._wants_bookmarks:
            yield self._encoder.bookmark(revision, annotations=_END_OF_INITIAL)

    def _selected(self, keys: list[str], entries: list[Entry]) -> list[Entry]:
        if not self._selection:
            return entries
        matches = self._selection.matches
        return [entry for path, entry in zip(keys, entries, strict=True) if matches(path, entry)]

    def _bookmark_and_again(self) -> None:
        self._send_bookmark()
        clock = self._server.runtime.clock
        self._timers.append(clock.call_later(BOOKMARK_SECONDS, self._bookmark_and_again))
        del self._timers[1:-1]

    def _send_bookmark(self) -> None:
        """Send a bookmark with the current position, if all changes before it were sent."""
        writer = self._writer
        if writer is None or writer.closed or not writer.writable or self._initial is not None:
            return
        if self._cache.is_closed:
            return  # it does not get the changes up to this position
        self.flush()
        if self._cursor == self._cache.cursor_end and not writer.closed:
            self._after = max(self._after, self._server.store.position)
            writer.send_raw_chunk(self._encoder.bookmark(self._after))

    def _timed_out(self) -> None:
        if self._wants_bookmarks:
            self._send_bookmark()
        self._end()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._closed()

    def fail(self, error: StatusError) -> None:
        """End with an error, which the client gets as the last event."""
        self.fail_with(error.to_bytes())

    def fail_with(self, status_json: bytes) -> None:
        """End with this Status as the last event."""
        writer = self._writer
        if writer is not None and not writer.closed:
            writer.write(self._encoder.event(b"ERROR", status_json))
            writer.close()
        self._closed()

    def _closed(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._initial = None
        if self._translation is not None:
            self._translation.discard(self)
        self._fan_out.discard(self)


def _with_objects(change: WatchCacheEvent, found: dict[int, Entry]) -> WatchCacheEvent:
    """A change with converted objects, by revision."""
    now, before = change.now, change.before
    shown = WatchCacheEvent(
        change.revision,
        change.key,
        now and found.get(now[0], now),
        before and found.get(before[0], before),
        damage=change.damage,
        is_repaired=change.is_repaired,
    )
    if change.forms is None:
        change.forms = {}
    shown.forms = change.forms  # encoded forms are shared here, too
    return shown


__all__ = ["FanOut", "WatchResponse", "fan_out_of", "watch"]
