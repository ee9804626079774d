"""Short gets: the byte-level shortcut for a get of an object by a sender that was seen before.

The answer is made from the request line and the header lines, before there is a request. What was
decided about a get is kept with its sender; when roles or the audit policy change, a new epoch
begins, and decisions of an earlier one do not count.

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
"""Of each connection. Who reads more objects again and again is asked for more often."""

KnownGet: TypeAlias = "tuple[object, GetEvents | None]"
"""In which epoch a get was found to be allowed, and what is written down of it."""


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
            # As `Auditor.write_get` does, written out.
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
            noted = self._audit.events_of_get(short, headers, sender.user)
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
