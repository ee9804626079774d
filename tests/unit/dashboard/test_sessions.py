"""Tickets and sessions: users, expiry, and requests for which they are rejected."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.authentication import (
    Authentication,
    CertificateAuthenticator,
    TokenAuthenticator,
)
from restow.authentication.credentials import Credential
from restow.authentication.sessions import (
    COOKIE,
    SESSION_SECONDS,
    TICKET_SECONDS,
    SessionAuthenticator,
    SessionBinding,
    Sessions,
    cookie_line,
)
from restow.httpserver.request import Headers, HttpRequest, Peer, PeerCertificate
from restow.request.context import User

KEY = b"a key that the servers of a cluster share"
JANE = User("jane", ("developers",), "u-1")


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def sessions(clock: SimulatedClock) -> Sessions:
    return Sessions(KEY, Runtime.simulated("sessions", clock=clock))


def request(method: str = "GET", **headers: str) -> HttpRequest:
    return HttpRequest(method, "/api", "", Headers(list(headers.items())), b"", Peer(1), 0.0)


def test_a_ticket_carries_its_user(sessions: Sessions) -> None:
    """A ticket and its session contain the user with groups and UID."""
    ticket = sessions.open_ticket(sessions.ticket_for(JANE)[0])
    assert ticket is not None
    assert ticket.user == JANE
    session = sessions.open_session(sessions.session_for(ticket.user)[0])
    assert session is not None
    assert session.user == JANE


async def test_both_end_by_the_clock(sessions: Sessions, clock: SimulatedClock) -> None:
    """A ticket and a session are valid until they expire; a session is valid for longer."""
    ticket, ends = sessions.ticket_for(JANE)
    session, _ = sessions.session_for(JANE)
    assert (ends - clock.wall()).total_seconds() == TICKET_SECONDS
    await clock.advance(TICKET_SECONDS - 1)
    assert sessions.open_ticket(ticket) is not None
    await clock.advance(1)
    assert sessions.open_ticket(ticket) is None
    assert sessions.open_session(session) is not None
    await clock.advance(SESSION_SECONDS - TICKET_SECONDS)
    assert sessions.open_session(session) is None


async def test_neither_outlives_its_credential(sessions: Sessions, clock: SimulatedClock) -> None:
    """A ticket expires no later than the credential of its request, and so does its session."""
    ends = clock.wall().timestamp() + 60
    text, expires = sessions.ticket_for(JANE, Credential(ends))
    assert expires.timestamp() == ends
    ticket = sessions.open_ticket(text)
    assert ticket is not None
    session, expires = sessions.session_for(JANE, ticket.bound)
    assert expires.timestamp() == ends
    await clock.advance(59)
    assert sessions.open_session(session) is not None
    await clock.advance(1)
    assert sessions.open_session(session) is None
    assert sessions.open_ticket(text) is None
    # The maximum.
    ends = clock.wall().timestamp() + 2 * SESSION_SECONDS
    bound = SessionBinding(ends_epoch_seconds=ends)
    assert sessions.session_for(JANE, bound)[1].timestamp() == ends - SESSION_SECONDS


def test_removing_a_token_ends_its_sessions(clock: SimulatedClock) -> None:
    """A session is valid while the token file of the server contains the token of its ticket."""
    tokens = TokenAuthenticator({"secret-1": JANE, "secret-2": JANE})
    runtime = Runtime.simulated("tokens", clock=clock)
    sessions = Sessions(KEY, runtime, token_hashes=lambda: tokens.hashes)
    chain = Authentication([CertificateAuthenticator(clock), tokens])
    credential = chain.credential_of(request("POST", authorization="Bearer secret-1"))
    ticket, _ = sessions.ticket_for(JANE, credential)
    found = sessions.open_ticket(ticket)
    assert found is not None
    session, _ = sessions.session_for(JANE, found.bound)
    assert sessions.open_session(session) is not None
    assert "secret" not in repr(credential)
    tokens.take({"secret-2": JANE})
    assert sessions.open_session(session) is None
    assert sessions.open_ticket(ticket) is None
    tokens.take({"secret-1": JANE})
    assert sessions.open_session(session) is not None
    # A server without a token file rejects it.
    assert Sessions(KEY, runtime).open_session(session) is None


def test_expiry_of_credentials(clock: SimulatedClock) -> None:
    """A client certificate has an expiry; a request without a credential has none."""
    ends = clock.wall().timestamp() + 100
    certificate = PeerCertificate(
        common_name="jane",
        organizations=(),
        not_before_epoch_seconds=0,
        not_after_epoch_seconds=ends,
        der=b"der",
    )
    asked = HttpRequest("POST", "/", "", Headers([]), b"", Peer(1, certificate=certificate), 0.0)
    chain = Authentication([CertificateAuthenticator(clock)])
    assert chain.credential_of(asked) == Credential(ends)
    with pytest.raises(status.Unauthorized):
        chain.credential_of(request("POST"))


def test_one_is_not_taken_for_the_other(sessions: Sessions) -> None:
    """A ticket is not accepted as a session, nor a session as a ticket."""
    assert sessions.open_session(sessions.ticket_for(JANE)[0]) is None
    assert sessions.open_ticket(sessions.session_for(JANE)[0]) is None


def test_servers_of_one_cluster_accept_each_others_sessions(sessions: Sessions) -> None:
    """Any server with the same key accepts a session; a server of another cluster does not."""
    session, _ = sessions.session_for(JANE)
    assert Sessions(KEY, Runtime.simulated("another server")).open_session(session) is not None
    assert Sessions(b"other", Runtime.simulated("another cluster")).open_session(session) is None


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_session_is_rejected(position: int, byte: int) -> None:
    """A session with any byte changed is rejected."""
    sessions = Sessions(KEY, Runtime.simulated("changed"))
    session, _ = sessions.session_for(JANE)
    place = position % len(session)
    changed = session[:place] + chr(byte) + session[place + 1 :]
    if changed != session:
        assert sessions.open_session(changed) is None


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """Any text as a cookie or ticket is rejected without an error."""
    sessions = Sessions(KEY, Runtime.simulated("any text"))
    assert sessions.open_session(text) is None
    assert sessions.open_ticket(text) is None


def test_a_valid_signature_of_invalid_content_is_rejected(sessions: Sessions) -> None:
    """Invalid content with a valid signature is rejected."""
    body = base64.urlsafe_b64encode(b'["session"]').rstrip(b"=").decode()
    mark = base64.urlsafe_b64encode(sessions._mark(body)).rstrip(b"=").decode()
    assert sessions.open_session(f"{body}.{mark}") is None


def test_a_cookie_counts_for_reading_only(sessions: Sessions) -> None:
    """A cookie authenticates reads; for writes, which another site could send, it is ignored."""
    authenticator = SessionAuthenticator(sessions)
    cookie = f"theme=dark; {COOKIE}={sessions.session_for(JANE)[0]}"
    for method in ("GET", "HEAD"):
        assert authenticator.authenticate(request(method, cookie=cookie)) == JANE
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert authenticator.authenticate(request(method, cookie=cookie)) is None


def test_a_cookie_opens_no_websocket(sessions: Sessions) -> None:
    """A cookie does not authenticate WebSocket requests: a page of another site could read them."""
    cookie = f"{COOKIE}={sessions.session_for(JANE)[0]}"
    asked = request(cookie=cookie, upgrade="websocket", connection="Upgrade")
    assert SessionAuthenticator(sessions).authenticate(asked) is None


def test_a_cookie_does_not_replace_a_wrong_token(sessions: Sessions) -> None:
    """A request with a token is authenticated by the token only."""
    cookie = f"{COOKIE}={sessions.session_for(JANE)[0]}"
    found = SessionAuthenticator(sessions).authenticate(
        request(cookie=cookie, authorization="Bearer wrong")
    )
    assert found is None


def test_the_cookie_is_out_of_reach() -> None:
    """Scripts, other sites and plain-text connections cannot read the cookie."""
    line = cookie_line("value", seconds=60)
    assert line.startswith("__Host-")
    for part in ("Path=/", "Max-Age=60", "Secure", "HttpOnly", "SameSite=Strict"):
        assert f"; {part}" in line
    assert "Domain" not in line
