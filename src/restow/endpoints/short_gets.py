"""Short gets: the byte-level shortcut for a get of an object by a known sender.

The response is made from the request line and the header lines, before a request object exists.
Authorization and audit decisions are cached with the sender; a change of roles or of the audit
policy starts a new epoch, which invalidates the decisions of earlier ones.

It is a second path beside `handlers.get`, kept because it saves 58 % of the CPU of such a get, the
listener included (`docs/reference/performance.md`). Any other get takes the chain
(`restow.endpoints.app`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from restow.audit import AuditIds, Auditor
from restow.audit.records import GetEvents
from restow.authorization.authorizer import Authorizer, CacheableAuthorizer
from restow.endpoints.handlers.server import Server
from restow.httpserver import Headers, RequestLine
from restow.request.context import Sender
from restow.request.responses import GZIP_BYTES_MIN
from restow.request.routes import Routes, ShortGet

KNOWN_GETS_MAX: Final = 32
"""Decisions cached per connection. If a client repeats gets of more objects than this, they are
decided again."""

KnownGet: TypeAlias = "tuple[object, GetEvents | None]"
"""The epoch in which a get was authorized, and the audit events to write for it."""


def may_be_short(line: RequestLine) -> bool:
    """Whether a request line may be that of a short get. Others are not worth caching: deletes name
    each object once, and watches start at another resource version each time."""
    return line.method == "GET" and not line.query


class ShortGets:
    """The short gets of one server."""

    def __init__(
        self,
        server: Server,
        *,
        authorizer: Authorizer,
        routes: Routes,
        audit: Auditor | None,
        audit_ids: AuditIds,
    ) -> None:
        self._routes = routes
        self._audit = audit
        self._monotonic = server.runtime.clock.monotonic
        self._allows = authorizer.allows
        self._caches = server.store.caches
        self._new_audit_line = audit_ids.line
        self._epoch = object()
        self._is_lasting = isinstance(authorizer, CacheableAuthorizer)
        if isinstance(authorizer, CacheableAuthorizer):
            authorizer.changed.subscribe(self._forget)
        if audit is not None:
            audit.changed.subscribe(self._forget)

    def quick(
        self, line: RequestLine, headers: Headers, received_seconds: float
    ) -> tuple[bytes, bytes] | None:
        """The response in as few steps as possible; None if the request has to take the chain."""
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
            # The events of `Auditor.events_of_get`; a call for them costs measurably.
            level, received, complete = noted
            audit.levels[level] += 1
            if received is not None:
                audit.put((received, mark, received_seconds, received_seconds), 0)
            if complete is not None:
                audit.put((complete, mark, received_seconds, now), 0)
        return mark, entry[2]

    def _decide(self, sender: Sender, headers: Headers, short: ShortGet) -> KnownGet | None:
        """Decide about a get, if it may take the shortcut. The decision is cached with its sender
        while it is known to be valid."""
        if not self._allows(sender.user, short.info):
            return None
        noted = None
        if self._audit is not None:
            noted = self._audit.events_of_get(short, headers, sender.user)
            if noted is None:
                return None  # its audit event needs more than the shortcut has
        known = self._epoch, noted
        if self._is_lasting:
            if len(sender.gets) >= KNOWN_GETS_MAX:
                sender.gets.clear()
            sender.gets[short] = known
        return known

    def _forget(self) -> None:
        """Invalidate the cached decisions: roles or the audit policy have changed."""
        self._epoch = object()
