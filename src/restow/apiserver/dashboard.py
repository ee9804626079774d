"""HTTP handlers of the dashboard.

    GET  /dashboard, /dashboard/login      the page
    GET  /dashboard/static/...             its assets
    GET  /dashboard/watch?watch=...        several watches of the API, for authenticated users
    POST /dashboard/tickets                creates a one-time login link for the sender
    GET  /dashboard/session                the current user
    POST /dashboard/session                exchanges a ticket for a session cookie; with `dryRun` it
                                           only returns the user of the ticket
    DELETE /dashboard/session              ends the session on all servers, deletes the cookie

A ticket is the fragment (after `#`) of a link, which browsers do not send, and is sent in a body,
so that no log contains it. Not here: anything about objects; the page uses the API like every
client.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec
import orjson

from restow.aio import Clock, Tasks
from restow.apimachinery import status
from restow.apiserver.ended_sessions import EndedSessions
from restow.apiserver.used_tickets import UsedTickets
from restow.authentication.credentials import Credential
from restow.authentication.impersonation import requested_user
from restow.authentication.sessions import Sessions, cookie_line, cookie_of
from restow.dashboard import INDEX, SECURITY_LINES, load_assets
from restow.endpoints.bundle import SECONDS_MAX, App, bundle
from restow.httpserver import Answer, HttpRequest, HttpResponse, header_block
from restow.request.context import ANONYMOUS, Context, User
from restow.request.responses import respond_text

ROOT: Final = "dashboard"
TICKET_BODY_BYTES_MAX: Final = 16_384

_STATIC: Final = "static/"
_HOST: Final = re.compile(
    r"[A-Za-z0-9.\-]{1,253}(?::\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?"
)
_JSON_LINES: Final = (
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
    *SECURITY_LINES,
)
_ACCOUNT: Final = "system:serviceaccount:"
_TICKET_REJECTED: Final = "the ticket is invalid, expired or already used: request a new link"


class _TicketBody(msgspec.Struct):
    ticket: str
    dry_run: bool = msgspec.field(default=False, name="dryRun")
    """Return the user of the ticket and do not use it: the page asks before it signs in, because a
    link can be anybody's."""


class DashboardPages:
    """Handles requests below `/dashboard`."""

    def __init__(
        self,
        sessions: Sessions,
        used: UsedTickets,
        ended: EndedSessions,
        chain: App,
        *,
        credential_of: Callable[[HttpRequest], Credential],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """`chain` handles the watches."""
        self._chain = chain
        self._sessions = sessions
        self._used = used
        self._ended = ended
        self._credential_of = credential_of
        self._clock = clock
        self._tasks = tasks
        self._assets = {
            path: (asset, header_block(asset.lines())) for path, asset in load_assets().items()
        }

    async def __call__(self, context: Context) -> Answer:
        path = context.info.path.removeprefix(f"/{ROOT}").strip("/")
        method = context.info.method
        match path, "GET" if method == "HEAD" else method:
            case (("" | "login"), "GET"):
                return self._file(context, INDEX)
            case "session", "GET":
                return self._session_info(context)
            case "session", "POST":
                return await self._redeem(context)
            case "session", "DELETE":
                return await self._log_out(context)
            case "tickets", "POST":
                return self._mint(context)
            case "watch", "GET":
                return self._watch(context)
            case _, "GET" if path.startswith(_STATIC):
                return self._file(context, path.removeprefix(_STATIC))
        if path in ("", "login", "session", "tickets", "watch"):
            return respond_text(405, "405 method not allowed\n")
        return respond_text(404, "404 page not found\n")

    def _file(self, context: Context, path: str) -> HttpResponse:
        found = self._assets.get(path)
        if found is None:
            return respond_text(404, "404 page not found\n")
        asset, lines = found
        if asset.is_known_to(context.request.headers.get("if-none-match")):
            return HttpResponse(304, b"", lines)
        return HttpResponse(200, asset.body, lines)

    def _mint(self, context: Context) -> HttpResponse:
        """Create a login link for the authenticated user, who did not authenticate by cookie."""
        sender = context.impersonator or context.user
        if sender.name.startswith(_ACCOUNT) or context.user.name.startswith(_ACCOUNT):
            # Their tokens end with the account or the object they are bound to, which is not
            # checked again for each page.
            raise status.forbidden("a service account cannot open a session: log in as a user")
        credential = self._credential_of(context.request)
        if context.impersonator is not None:
            # The request, not its result: the rights are checked for each request of the session.
            sender = replace(sender, acts_as=requested_user(context.request.headers))
        ticket, expires = self._sessions.ticket_for(sender, credential)
        path = f"/{ROOT}/login#{ticket}"
        host = context.request.headers.get("host") or ""
        url = f"https://{host}{path}" if _HOST.fullmatch(host) else path
        return _json(201, {"url": url, "ticket": ticket, "expires": expires.isoformat()})

    async def _redeem(self, context: Context) -> HttpResponse:
        _reject_cross_origin(context)
        body = _read_ticket(context)
        found = self._sessions.open_ticket(body.ticket)
        if found is not None and body.dry_run:
            user = _acting(found.user).name
            return _json(200, {"user": user, "expires": found.expires.isoformat()})
        if found is None or not await self._used.use(found.nonce, found.expires):
            # Not the text for an invalid token, but no more specific than that.
            return _json(401, {"message": _TICKET_REJECTED})
        cookie, expires = self._sessions.session_for(found.user, found.bound)
        seconds = (expires - self._clock.wall()).total_seconds()
        return _json(
            201,
            {"user": _acting(found.user).name, "expires": expires.isoformat()},
            cookie=cookie_line(cookie, seconds=seconds),
        )

    async def _log_out(self, context: Context) -> HttpResponse:
        _reject_cross_origin(context)
        value = cookie_of(context.request)
        session = None if value is None else self._sessions.open_session(value)
        if session is not None:
            await self._ended.end(session)
        return _json(200, {"user": None}, cookie=cookie_line("", seconds=0))

    def _session_info(self, context: Context) -> HttpResponse:
        """Return null instead of an error without a session: the page checks this first."""
        if context.user.name == ANONYMOUS.name:
            return _json(200, {"user": None})
        found = self._sessions.session_of(context.request)
        by_cookie = found is not None and _acting(found.user).name == context.user.name
        expires = found.expires.isoformat() if found is not None and by_cookie else None
        return _json(200, {"user": context.user.name, "expires": expires})

    def _watch(self, context: Context) -> Answer:
        if context.user.name == ANONYMOUS.name:
            raise status.unauthorized()  # else one request would be ten, each with an audit event
        seconds = SECONDS_MAX
        ends = self._credential_of(context.request).ends_epoch_seconds
        if ends is not None:
            seconds = ends - self._clock.wall().timestamp()
        return bundle(
            context, self._chain, clock=self._clock, tasks=self._tasks, seconds_max=seconds
        )


def _acting(user: User) -> User:
    """The user that a session acts as."""
    return user if user.acts_as is None else user.acts_as


def _read_ticket(context: Context) -> _TicketBody:
    body = context.request.body
    if len(body) > TICKET_BODY_BYTES_MAX:
        raise status.bad_request("the body is too large for a ticket")
    try:
        return msgspec.json.decode(body, type=_TicketBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise status.bad_request('the body must be JSON: {"ticket": "..."}') from None


def _reject_cross_origin(context: Context) -> None:
    """Reject cross-origin requests: they could log a user in as another user."""
    headers = context.request.headers
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if context.info.method == "POST" and media != "application/json":
        raise status.unsupported_media_type(["application/json"])
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site not in (None, "same-origin") or (
        origin is not None and origin.partition("://")[2] != headers.get("host")
    ):
        raise status.forbidden("cross-origin requests are not allowed")


def _json(code: int, value: object, *, cookie: str = "") -> HttpResponse:
    lines = [*_JSON_LINES, ("Set-Cookie", cookie)] if cookie else _JSON_LINES
    return HttpResponse(code, orjson.dumps(value), header_block(lines))
