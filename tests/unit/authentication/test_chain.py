"""The order of credentials, how long what they say is kept, and what is no credential."""

from __future__ import annotations

import base64
import math
from datetime import timedelta

import pytest

from restow.aio import SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.authentication import (
    NOWHERE,
    AnonymousAccess,
    Authentication,
    CertificateAuthenticator,
    TokenAuthenticator,
)
from restow.authentication.tokens import TOKEN_LENGTH_MAX
from restow.httpserver.request import Headers, HttpRequest, Peer, PeerCertificate
from restow.request.context import Sender, User

GOOD = "a-good-token"
PROTOCOL = "base64url.bearer.authorization.k8s.io."


def encoded(token: str) -> str:
    return PROTOCOL + base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def request(
    *lines: tuple[str, str], path: str = "/api", peer: Peer | None = None, at: float = 0.0
) -> HttpRequest:
    return HttpRequest("GET", path, "", Headers(lines), b"", peer or Peer(1), at)


def websocket(*protocols: str) -> HttpRequest:
    lines = [("sec-websocket-protocol", each) for each in protocols]
    return request(("upgrade", "websocket"), ("connection", "upgrade"), *lines)


def chain() -> Authentication:
    return Authentication([TokenAuthenticator({GOOD: User("bob")})])


BAD = {
    "an unknown token": ("authorization", "Bearer other"),
    "a longer token": ("authorization", f"Bearer {GOOD}x"),
    "two tokens": ("authorization", f"Bearer {GOOD} {GOOD}"),
    "no token": ("authorization", "Bearer"),
    "an empty token": ("authorization", "Bearer  "),
    "an empty header": ("authorization", ""),
    "a token that is too long": ("authorization", "Bearer " + "x" * (TOKEN_LENGTH_MAX + 1)),
    "another scheme": ("authorization", "Basic Ym9iOnB3"),
    "no scheme": ("authorization", GOOD),
    "other bytes": ("authorization", "Bearer \xff\xfe"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_credential_is_a_401(case: str) -> None:
    """It is never taken for none, although nobody would be let in here."""
    asked = request(BAD[case])
    with pytest.raises(StatusError) as refused:
        chain().authenticate(asked)
    assert (refused.value.code, str(refused.value)) == (401, "Unauthorized")
    assert asked.headers.memo is None


BAD_PROTOCOLS = {
    "an unknown token": (encoded("other"), "v4.channel.k8s.io"),
    "no other protocol": (encoded(GOOD),),
    "two tokens": (encoded(GOOD), encoded(GOOD), "v4.channel.k8s.io"),
    "no token": (PROTOCOL, "v4.channel.k8s.io"),
    "padding": (encoded(GOOD) + "=", "v4.channel.k8s.io"),
    "no base64": (PROTOCOL + "!", "v4.channel.k8s.io"),
    "half a character": (PROTOCOL + "A", "v4.channel.k8s.io"),
    "other bytes": (PROTOCOL + "__79", "v4.channel.k8s.io"),
    "too long": (encoded("x" * (TOKEN_LENGTH_MAX + 1)), "v4.channel.k8s.io"),
}


@pytest.mark.parametrize("case", BAD_PROTOCOLS)
def test_a_bad_token_among_protocols_is_a_401(case: str) -> None:
    """A page that opens a WebSocket and shows it badly is not nobody."""
    with pytest.raises(StatusError) as refused:
        chain().authenticate(websocket(*BAD_PROTOCOLS[case]))
    assert refused.value.code == 401


def test_a_page_shows_its_token_among_protocols() -> None:
    """It counts where a WebSocket is opened, in one line or in several, and nowhere else."""
    for asked in (
        websocket(f"{encoded(GOOD)}, v4.channel.k8s.io"),
        websocket("v4.channel.k8s.io", encoded(GOOD)),
    ):
        assert chain().authenticate(asked).name == "bob"
    no_upgrade = request(("sec-websocket-protocol", f"{encoded(GOOD)}, v4.channel.k8s.io"))
    assert chain().authenticate(no_upgrade).name == "system:anonymous"


def test_nobody_is_let_in_where_that_is_allowed() -> None:
    """Everywhere, nowhere, or at certain paths alone."""
    some = AnonymousAccess(paths=frozenset({"/livez"}))
    for access, path, is_in in (
        (AnonymousAccess(), "/api", True),
        (NOWHERE, "/livez", False),
        (some, "/livez", True),
        (some, "/livez/", False),
        (some, "/%6civez", False),
        (some, "/api", False),
    ):
        authentication = Authentication([TokenAuthenticator({})], anonymous=access)
        if is_in:
            assert authentication.authenticate(request(path=path)).name == "system:anonymous"
        else:
            with pytest.raises(StatusError) as refused:
                authentication.authenticate(request(path=path))
            assert refused.value.code == 401


def test_what_is_known_is_kept_for_moments() -> None:
    """A token that is taken back is good for nothing soon, also on an open connection."""
    tokens = TokenAuthenticator({GOOD: User("bob")})
    authentication = Authentication([tokens])
    asked = request(("authorization", f"Bearer {GOOD}"), at=100.0)
    assert authentication.authenticate(asked).name == "bob"
    memo = asked.headers.memo
    assert isinstance(memo, Sender)
    assert memo.good_until_seconds == 100.0 + tokens.keeps_seconds
    tokens.take({})
    asked.received_seconds = memo.good_until_seconds
    assert authentication.authenticate(asked).name == "bob"
    asked.received_seconds = math.nextafter(memo.good_until_seconds, math.inf)
    with pytest.raises(StatusError) as refused:
        authentication.authenticate(asked)
    assert refused.value.code == 401
    assert asked.headers.memo is None


class _Silent:
    """Knows tokens, and cannot say so now."""

    keeps_seconds = 0.0

    def __init__(self, error: StatusError) -> None:
        self._error = error

    def authenticate(self, request: HttpRequest) -> User | None:
        raise self._error

    def user_of(self, token: str) -> User | None:
        raise self._error


def test_what_cannot_be_known_is_not_denied() -> None:
    """A review says of a bad token that it is nobody's, and of one that cannot be looked at now
    nothing at all."""
    assert Authentication([_Silent(status.unauthorized())]).user_of(GOOD) is None
    with pytest.raises(status.ServiceUnavailable):
        Authentication([_Silent(status.unavailable("later"))]).user_of(GOOD)


def test_whoever_wishes_to_be_another_is_not_kept() -> None:
    """The short ways look at what is kept alone, and would do it as the sender."""
    asked = request(("authorization", f"Bearer {GOOD}"), ("impersonate-user", "jane"))
    assert chain().authenticate(asked).name == "bob"
    assert asked.headers.memo is None


def test_a_certificate_counts_until_its_end() -> None:
    """A connection outlives it; then it is a 401, unless a token is shown besides."""
    clock = SimulatedClock()
    end = clock.wall() + timedelta(seconds=10)
    peer = Peer(1, certificate=certificate("ann", not_after=end.timestamp()))
    tokens = TokenAuthenticator({GOOD: User("bob")})
    authentication = Authentication([CertificateAuthenticator(clock), tokens])
    assert authentication.authenticate(request(peer=peer)).name == "ann"
    later = SimulatedClock(end + timedelta(seconds=1))
    authentication = Authentication([CertificateAuthenticator(later), tokens])
    with pytest.raises(StatusError) as refused:
        authentication.authenticate(request(peer=peer))
    assert refused.value.code == 401
    with_token = request(("authorization", f"Bearer {GOOD}"), peer=peer)
    assert authentication.authenticate(with_token).name == "bob"


def test_a_certificate_without_a_name_is_as_good_as_none() -> None:
    """As with the reference: nobody, or whoever the token says."""
    clock = SimulatedClock()
    peer = Peer(1, certificate=certificate("", not_after=clock.wall().timestamp() + 10))
    authentication = Authentication(
        [CertificateAuthenticator(clock), TokenAuthenticator({GOOD: User("bob")})]
    )
    assert authentication.authenticate(request(peer=peer)).name == "system:anonymous"
    with_token = request(("authorization", f"Bearer {GOOD}"), peer=peer)
    assert authentication.authenticate(with_token).name == "bob"


def test_the_group_of_all_who_are_known_is_added_once() -> None:
    """Not to those who are in it, nor to those in its opposite."""
    users = {
        "a": User("a", ("x",)),
        "b": User("b", ("system:authenticated",)),
        "c": User("c", ("system:unauthenticated",)),
    }
    authentication = Authentication([TokenAuthenticator(users)])
    found = {name: authentication.user_of(name) for name in users}
    assert {name: user.groups for name, user in found.items() if user is not None} == {
        "a": ("x", "system:authenticated"),
        "b": ("system:authenticated",),
        "c": ("system:unauthenticated",),
    }
    assert authentication.user_of("d") is None


def certificate(name: str, *, not_after: float) -> PeerCertificate:
    return PeerCertificate(
        common_name=name,
        organizations=("people",),
        not_before_epoch_seconds=0.0,
        not_after_epoch_seconds=not_after,
        der=b"der",
    )
