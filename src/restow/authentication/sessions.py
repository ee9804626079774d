"""Sessions of people at a browser: a ticket, good once and shortly, becomes a cookie.

    a user with a credential -> ticket (in a link) -> cookie -> the same user, for reading

Both are sealed texts: who it is, until when, and a mark made with a key that the servers of a
cluster share. So any of them can open what another has sealed, and nothing is kept anywhere but
the tickets that were used. A cookie is sent by a browser whoever asks it to, so it counts for
reading only, and only where no other credential is sent; and not for a WebSocket, since what comes
through one is not kept from the pages of others. Neither is good for longer than the credential
that they stand for: they end with it, and with a token that is taken out of its list. Not here: how
a ticket travels.
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
"""A working day. Longer than that, who it is must be shown again."""
COOKIE: Final = "__Host-restow-session"
"""The prefix makes browsers take it from this host only, over TLS, for all paths."""
SEALED_LENGTH_MAX: Final = 8_192
NONCE_BYTES: Final = 16
_KEY_PURPOSE: Final = b"restow sessions 2"
_TOKEN_PURPOSE: Final = b"restow token of a session "
_TOKEN_MARK_BYTES: Final = 16
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

Purpose = Literal["ticket", "session"]


class SessionBinding(NamedTuple):
    """What a ticket or a session depends on."""

    ends_epoch_seconds: float | None = None
    """When the credential ends that was shown."""
    token_mark: str = ""
    """Tells a token that must still be known, to those who have the key; empty: it was none."""


UNBOUND: Final = SessionBinding()


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    purpose: Purpose
    name: str
    groups: tuple[str, ...]
    uid: str
    expires_epoch_seconds: float
    nonce: str
    bound: SessionBinding


@dataclass(frozen=True, slots=True)
class SessionPass:
    """Who may come in, until when. The nonce tells one from every other."""

    user: User
    expires: datetime
    nonce: str
    bound: SessionBinding


class Sessions:
    """Seals and opens tickets and cookies."""

    def __init__(
        self,
        key: bytes,
        runtime: Runtime,
        *,
        token_hashes: Callable[[], Mapping[bytes, object]] = dict,
    ) -> None:
        """`token_hashes`: those of the tokens that are good now."""
        # A key of its own, so that nothing sealed for another purpose can be taken for a session.
        self._key = hmac.digest(key, _KEY_PURPOSE, hashlib.sha256)
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._token_hashes = token_hashes
        self._marked: Mapping[bytes, object] = {}
        self._token_marks: frozenset[str] = frozenset()

    def ticket_for(self, user: User, credential: Credential = WITHOUT_END) -> tuple[str, datetime]:
        """A ticket for a user who has shown a credential, and when it ends."""
        mark = self._token_mark(credential.token_hash) if credential.token_hash else ""
        bound = SessionBinding(credential.ends_epoch_seconds, mark)
        return self._seal("ticket", user, TICKET_SECONDS, bound)

    def session_for(self, user: User, bound: SessionBinding = UNBOUND) -> tuple[str, datetime]:
        """A cookie's value for the user of a ticket, bound as that is, and when it ends."""
        return self._seal("session", user, SESSION_SECONDS, bound)

    def open_ticket(self, text: str) -> SessionPass | None:
        """Who a ticket is for; None if it is none, or too late. Whether it was used is not known
        here."""
        return self._open("ticket", text)

    def open_session(self, text: str) -> SessionPass | None:
        """Who a cookie's value is for; None if it is none, or too late."""
        return self._open("session", text)

    def session_of(self, request: HttpRequest) -> SessionPass | None:
        """The session that a request may use: for reading, and in the absence of anything else."""
        if request.method not in _SAFE_METHODS or "authorization" in request.headers:
            return None
        value = cookie_of(request)
        return None if value is None else self.open_session(value)

    def _seal(
        self, purpose: Purpose, user: User, seconds: float, bound: SessionBinding
    ) -> tuple[str, datetime]:
        expires = self._clock.wall() + timedelta(seconds=seconds)
        ends = bound.ends_epoch_seconds
        if ends is not None and ends < expires.timestamp():
            expires = datetime.fromtimestamp(ends, UTC)
        sealed = _Sealed(
            purpose=purpose,
            name=user.name,
            groups=user.groups,
            uid=user.uid,
            expires_epoch_seconds=expires.timestamp(),
            nonce=self._ids.nonce(NONCE_BYTES),
            bound=bound,
        )
        body = _encode(msgspec.json.encode(sealed))
        return f"{body}.{_encode(self._mark(body))}", expires

    def _open(self, purpose: Purpose, text: str) -> SessionPass | None:
        if len(text) > SEALED_LENGTH_MAX or not text.isascii():
            return None
        body, _, mark = text.partition(".")
        if not hmac.compare_digest(_encode(self._mark(body)), mark):
            return None
        try:
            sealed = msgspec.json.decode(_decode(body), type=_Sealed)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            return None
        expires = datetime.fromtimestamp(sealed.expires_epoch_seconds, UTC)
        if sealed.purpose != purpose or self._clock.wall() >= expires:
            return None
        if sealed.bound.token_mark and not self._is_known(sealed.bound.token_mark):
            return None
        user = User(sealed.name, sealed.groups, sealed.uid)
        return SessionPass(user, expires, sealed.nonce, sealed.bound)

    def _is_known(self, token_mark: str) -> bool:
        """Whether the token of a mark is still good. They are marked anew when others are good."""
        hashes = self._token_hashes()
        if hashes is not self._marked:
            self._token_marks = frozenset(map(self._token_mark, hashes))
            self._marked = hashes
        return token_mark in self._token_marks

    def _token_mark(self, token_hash: bytes) -> str:
        """With the key: from a cookie that was stolen nobody guesses the token."""
        digest = hmac.digest(self._key, _TOKEN_PURPOSE + token_hash, hashlib.sha256)
        return digest[:_TOKEN_MARK_BYTES].hex()

    def _mark(self, body: str) -> bytes:
        return hmac.digest(self._key, body.encode(), hashlib.sha256)


class SessionAuthenticator:
    """Knows people by their cookie.

    One that is not good counts as none. Other credentials are sent on purpose; this one comes by
    itself, also from a cluster that was at this address yesterday, and the page that asks for a
    new one must not be refused for it.
    """

    keeps_seconds: Final = 0.0  # A cookie counts for some methods only.

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def authenticate(self, request: HttpRequest) -> User | None:
        headers = request.headers
        if "cookie" not in headers or "upgrade" in headers:
            return None
        found = self._sessions.session_of(request)
        return None if found is None else found.user


def cookie_of(request: HttpRequest) -> str | None:
    """The value of the session's cookie, if a request carries one."""
    for line in request.headers.get_all("cookie"):
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                return value
    return None


def cookie_line(value: str, *, seconds: float) -> str:
    """What a Set-Cookie header says; no seconds take the cookie away."""
    return f"{COOKIE}={value}; Path=/; Max-Age={int(seconds)}; Secure; HttpOnly; SameSite=Strict"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
