"""Browser sessions: a short-lived, single-use ticket is exchanged for a session cookie.

    a user with a credential -> ticket (in a link) -> cookie -> the same user, for reading

Tickets and cookies are signed texts: the user, the expiry, and an HMAC with a key that the servers
of a cluster share. So any server can verify what another has signed, and the only stored state is
the set of used tickets and ended sessions. A ticket that was created while impersonating contains
both users, and each request of its session needs the right to impersonate. A browser sends a cookie
with cross-origin requests too, so a session allows reads only, and only without another credential;
and no WebSockets, which the same-origin policy does not protect. A ticket or session expires with
the credential that it was created with, and when a token is removed from the token file.

Not here: the transport of a ticket.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

import msgspec

from restow.aio import Runtime
from restow.authentication.credentials import WITHOUT_END, Credential
from restow.httpserver.request import HttpRequest
from restow.request.context import User

TICKET_SECONDS: Final = 15 * 60.0
SESSION_SECONDS: Final = 8 * 3600.0
"""A working day. After that, the user must authenticate again."""
COOKIE: Final = "__Host-restow-session"
"""The `__Host-` prefix restricts the cookie to this host, TLS and all paths."""
SIGNED_LENGTH_MAX: Final = 8_192
NONCE_BYTES: Final = 16
_KEY_PURPOSE: Final = b"restow sessions 2"
_TOKEN_PURPOSE: Final = b"restow token of a session "
_TOKEN_MARK_BYTES: Final = 16
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

Purpose = Literal["ticket", "session"]


class SessionBinding(NamedTuple):
    """The credential that a ticket or a session depends on."""

    ends_epoch_seconds: float | None = None
    """When the credential expires."""
    token_mark: str = ""
    """A keyed hash of a token that must still be valid; empty for other credentials."""


UNBOUND: Final = SessionBinding()


class _ActsAs(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The impersonated user, as it was requested."""

    name: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class _SignedContent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    purpose: Purpose
    name: str
    groups: tuple[str, ...]
    uid: str
    expires_epoch_seconds: float
    nonce: str
    bound: SessionBinding
    acts_as: _ActsAs | None = None


@dataclass(frozen=True, slots=True)
class SessionPass:
    """The content of a valid ticket or session. The nonce is unique."""

    user: User
    """The authenticated user; `acts_as` is the impersonated one."""
    expires: datetime
    nonce: str
    bound: SessionBinding


class Sessions:
    """Signs and verifies tickets and cookies."""

    def __init__(
        self,
        key: bytes,
        runtime: Runtime,
        *,
        token_hashes: Callable[[], Mapping[bytes, object]] = dict,
        is_ended: Callable[[str], bool] = lambda _nonce: False,
    ) -> None:
        """`token_hashes` returns the hashes of the currently valid tokens; `is_ended` returns
        whether a session was ended before its expiry, and may raise `DoAgain`."""
        # A derived key, so that nothing signed for another purpose can be used as a session.
        self._key = hmac.digest(key, _KEY_PURPOSE, hashlib.sha256)
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._token_hashes = token_hashes
        self._is_ended = is_ended
        self._marked: Mapping[bytes, object] = {}
        self._token_marks: frozenset[str] = frozenset()

    def ticket_for(self, user: User, credential: Credential = WITHOUT_END) -> tuple[str, datetime]:
        """Return a ticket for a user with a credential, and its expiry."""
        mark = self._token_mark(credential.token_hash) if credential.token_hash else ""
        bound = SessionBinding(credential.ends_epoch_seconds, mark)
        return self._sign("ticket", user, TICKET_SECONDS, bound)

    def session_for(self, user: User, bound: SessionBinding = UNBOUND) -> tuple[str, datetime]:
        """Return a cookie value for the user of a ticket, with the same binding, and its expiry."""
        return self._sign("session", user, SESSION_SECONDS, bound)

    def open_ticket(self, text: str) -> SessionPass | None:
        """Verify a ticket, or return None if it is invalid or expired. It does not check whether
        the ticket was used."""
        return self._open("ticket", text)

    def open_session(self, text: str) -> SessionPass | None:
        """Verify a cookie value, or return None if it is invalid, expired or ended."""
        return self._open("session", text)

    def session_of(self, request: HttpRequest) -> SessionPass | None:
        """Return the session of a request: for reads only, and only without another credential."""
        if request.method not in _SAFE_METHODS or "authorization" in request.headers:
            return None
        value = cookie_of(request)
        return None if value is None else self.open_session(value)

    def _sign(
        self, purpose: Purpose, user: User, seconds: float, bound: SessionBinding
    ) -> tuple[str, datetime]:
        expires = self._clock.wall() + timedelta(seconds=seconds)
        ends = bound.ends_epoch_seconds
        if ends is not None and ends < expires.timestamp():
            expires = datetime.fromtimestamp(ends, UTC)
        acts_as = user.acts_as
        content = _SignedContent(
            purpose=purpose,
            name=user.name,
            groups=user.groups,
            uid=user.uid,
            expires_epoch_seconds=expires.timestamp(),
            nonce=self._ids.nonce(NONCE_BYTES),
            bound=bound,
            acts_as=None
            if acts_as is None
            else _ActsAs(acts_as.name, acts_as.groups, acts_as.uid, acts_as.extra),
        )
        body = _encode(msgspec.json.encode(content))
        return f"{body}.{_encode(self._mark(body))}", expires

    def _open(self, purpose: Purpose, text: str) -> SessionPass | None:
        if len(text) > SIGNED_LENGTH_MAX or not text.isascii():
            return None
        body, _, mark = text.partition(".")
        if not hmac.compare_digest(_encode(self._mark(body)), mark):
            return None
        try:
            content = msgspec.json.decode(_decode(body), type=_SignedContent)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            return None
        expires = datetime.fromtimestamp(content.expires_epoch_seconds, UTC)
        if content.purpose != purpose or self._clock.wall() >= expires:
            return None
        if content.bound.token_mark and not self._is_token_valid(content.bound.token_mark):
            return None
        if purpose == "session" and self._is_ended(content.nonce):
            return None
        named, acts_as = content.acts_as, None
        if named is not None:
            acts_as = User(named.name, named.groups, named.uid, named.extra)
        user = User(content.name, content.groups, content.uid, acts_as=acts_as)
        return SessionPass(user, expires, content.nonce, content.bound)

    def _is_token_valid(self, token_mark: str) -> bool:
        """Return whether the token of a mark is still valid. Marks are recomputed when the tokens
        change."""
        hashes = self._token_hashes()
        if hashes is not self._marked:
            self._token_marks = frozenset(map(self._token_mark, hashes))
            self._marked = hashes
        return token_mark in self._token_marks

    def _token_mark(self, token_hash: bytes) -> str:
        """Return a keyed hash, so that a stolen cookie does not help to guess the token."""
        digest = hmac.digest(self._key, _TOKEN_PURPOSE + token_hash, hashlib.sha256)
        return digest[:_TOKEN_MARK_BYTES].hex()

    def _mark(self, body: str) -> bytes:
        return hmac.digest(self._key, body.encode(), hashlib.sha256)


class SessionAuthenticator:
    """Authenticates users by their session cookie.

    An invalid cookie is ignored. A browser may still send the cookie of another cluster that had
    this address before, and must nevertheless get the page that requests a new cookie.
    """

    keeps_seconds: Final = 0.0  # Not cached, because a cookie is valid for some methods only.

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def authenticate(self, request: HttpRequest) -> User | None:
        headers = request.headers
        if "cookie" not in headers or "upgrade" in headers:
            return None
        found = self._sessions.session_of(request)
        return None if found is None else found.user

    def credential_of(self, request: HttpRequest) -> Credential:
        found = self._sessions.session_of(request)
        return WITHOUT_END if found is None else Credential(found.expires.timestamp())


def cookie_of(request: HttpRequest) -> str | None:
    """Return the value of the session cookie, or None."""
    for line in request.headers.get_all("cookie"):
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                return value
    return None


def cookie_line(value: str, *, seconds: float) -> str:
    """Return a Set-Cookie header value; zero seconds delete the cookie."""
    return f"{COOKIE}={value}; Path=/; Max-Age={int(seconds)}; Secure; HttpOnly; SameSite=Strict"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
