"""Short gets: objects as memory holds them, for somebody who was seen a moment ago.

    quick        at once, from the request line and the header lines, before there is a request
    when_fresh   as soon as memory has all that was acknowledged before; without a task

What was decided about a get is kept with its sender. Roles, or what is to be written down, may
change: that begins another epoch, and what was decided in an earlier one does not count.

Not here: any get that is more than that. It goes the long way (`restow.endpoints.app`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from restow.audit import AuditIds, Auditor
from restow.audit.records import Noted
from restow.authorization.authorizer import Authorizer, Lasting
from restow.endpoints.handlers.server import Server
from restow.httpserver import Deferred, Headers, HttpRequest, HttpResponse, RequestLine
from restow.registry.watch_cache import WatchCache
from restow.request.context import Context, Sender
from restow.request.limits import InFlight
from restow.request.responses import GZIP_BYTES_MIN, JSON_HEADERS
from restow.request.routes import Route, Routes, ShortGet
from restow.storage.errors import StorageError

KNOWN_GETS_MAX: Final = 32
"""Of each connection. Who reads more objects again and again is asked for more often."""

KnownGet: TypeAlias = "tuple[object, Noted | None]"
"""In which epoch a get was found to be allowed, and what is written down of it."""

LongWay: TypeAlias = "Callable[[Context, Deferred, WatchCache | None, StorageError | None], None]"
"""Keeps the promise of a get that has waited and is no short one after all. Its sender may make it;
without a cache, something else may be hosted there by now."""


def may_be_short(line: RequestLine) -> bool:
    """Whether a request line may be that of a short get. Others are not worth remembering: deletes
    name each object once, and watches begin at another resource version each time."""
    return line.method == "GET" and not line.query


class ShortGets:
    """The short gets of one server."""

    def __init__(
        self,
        server: Server,
        *,
        authorizer: Authorizer,
        routes: Routes,
        in_flight: InFlight,
        audit: Auditor | None,
        audit_ids: AuditIds,
        long_way: LongWay,
    ) -> None:
        self._routes = routes
        self._in_flight = in_flight
        self._audit = audit
        self._long_way = long_way
        self._monotonic = server.runtime.clock.monotonic
        self._allows = authorizer.allows
        self._caches = server.store.caches
        self._new_audit_line = audit_ids.line
        self._epoch = object()
        self._is_lasting = isinstance(authorizer, Lasting)
        if isinstance(authorizer, Lasting):
            authorizer.listeners.append(self._forget)
        if audit is not None:
            audit.listeners.append(self._forget)

    def quick(
        self, line: RequestLine, headers: Headers, received_seconds: float
    ) -> tuple[bytes, bytes] | None:
        """The most travelled way, in as few steps as can be; None: go the long one."""
        short: ShortGet | None = line.memo
        if short is None:
            short = line.memo = self._routes.short(line)
            if short is None:
                return None
        elif short.is_stale:
            line.memo = None
            return None
        sender: Sender | None = headers.memo
        if sender is None or received_seconds > sender.good_until_seconds or not sender.is_plain:
            return None
        known: KnownGet | None = sender.gets.get(short)
        if known is None or known[0] is not self._epoch:
            known = self._decide(sender, headers, short)
            if known is None:
                return None
        cache = self._caches.fresh(short.root)
        if cache is None:
            return None
        entry = cache.entries.get(short.path)
        if entry is None or entry[1] != short.api_version or len(entry[2]) > GZIP_BYTES_MIN:
            return None
        now, mark = self._monotonic(), self._new_audit_line()
        short.tally.add(now - received_seconds)
        noted = known[1]
        if noted is not None and (audit := self._audit) is not None:
            # As `Auditor.note_short` does, written out.
            level, received, complete = noted
            audit.levels[level] += 1
            if received is not None:
                audit.put((received, mark, received_seconds, received_seconds), 0)
            if complete is not None:
                audit.put((complete, mark, received_seconds, now), 0)
        return mark, entry[2]

    def _decide(self, sender: Sender, headers: Headers, short: ShortGet) -> KnownGet | None:
        """What is decided about a get, if it may go the short way. It is kept with its sender, as
        long as that is known to hold."""
        if not self._allows(sender.user, short.info):
            return None
        noted = None
        if self._audit is not None:
            noted = self._audit.short(short, headers, sender.user)
            if noted is None:
                return None  # there is more to write down than the short way knows
        known = self._epoch, noted
        if self._is_lasting:
            if len(sender.gets) >= KNOWN_GETS_MAX:
                sender.gets.clear()
            sender.gets[short] = known
        return known

    def _forget(self) -> None:
        """Roles, or what is to be written down, have changed."""
        self._epoch = object()

    def when_fresh(self, request: HttpRequest, route: Route, short: ShortGet) -> Deferred | None:
        """Answer a get when memory has all that was acknowledged before it, without a task; None
        if that is not what it lacks."""
        sender: Sender | None = request.headers.memo
        if (
            sender is None
            or request.received_seconds > sender.good_until_seconds
            or not sender.is_plain
        ):
            return None
        known: KnownGet | None = sender.gets.get(short)
        if known is None or known[0] is not self._epoch:
            known = self._decide(sender, request.headers, short)
        cache = self._caches.ready(short.root)
        if known is None or cache is None or self._caches.fresh(short.root) is not None:
            return None
        user, noted = sender.user, known[1]
        slot = None
        if not user.is_master:
            pool = self._in_flight.pool_of(short.info)
            if pool is not None:
                if not pool.has_slot_for(user.name):
                    return None  # the long way tells it
                slot = pool.take(user.name)
        deferred = Deferred()

        def answer(error: StorageError | None) -> None:
            if slot is not None:
                slot.leave()
            if error is None and not short.is_stale:
                body = self._body(short, cache, request.received_seconds)
                if body is not None:
                    if self._audit is not None and noted is not None:
                        at, now = request.received_seconds, self._monotonic()
                        self._audit.note_short(noted, request.answer_lines, at, now)
                    deferred.resolve(HttpResponse(200, body, JSON_HEADERS))
                    return
            context = Context(request, route.info)
            context.user, context.resource = user, route.resource
            # Nobody keeps the cache of what is hosted no longer up to date.
            self._long_way(context, deferred, None if short.is_stale else cache, error)

        self._caches.when_fresh(answer)
        return deferred

    def _body(self, short: ShortGet, cache: WatchCache, received_seconds: float) -> bytes | None:
        entry = cache.get(short.path)
        if entry is None or entry[1] != short.api_version or len(entry[2]) > GZIP_BYTES_MIN:
            return None
        short.tally.add(self._monotonic() - received_seconds)
        return entry[2]
