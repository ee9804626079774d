"""The order of authenticators, the caching of users, and invalid credentials."""

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
    """An invalid credential is rejected even where anonymous access is disabled."""
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
    """An invalid token among the WebSocket protocols is not treated as anonymous."""
    with pytest.raises(StatusError) as refused:
        chain().authenticate(websocket(*BAD_PROTOCOLS[case]))
    assert refused.value.code == 401


def test_websocket_tokens_among_protocols() -> None:
    """A token among the protocols counts for WebSocket requests only, in one header line or
    several."""
    for asked in (
        websocket(f"{encoded(GOOD)}, v4.channel.k8s.io"),
        websocket("v4.channel.k8s.io", encoded(GOOD)),
    ):
        assert chain().authenticate(asked).name == "bob"
    no_upgrade = request(("sec-websocket-protocol", f"{encoded(GOOD)}, v4.channel.k8s.io"))
    assert chain().authenticate(no_upgrade).name == "system:anonymous"


def test_anonymous_access() -> None:
    """Anonymous access is enabled, disabled, or limited to some paths."""
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


def test_users_are_cached_for_a_short_time() -> None:
    """A removed token is rejected after a short time, also on an open connection."""
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
    """An authenticator of tokens that is unavailable."""

    keeps_seconds = 0.0

    def __init__(self, error: StatusError) -> None:
        self._error = error

    def authenticate(self, request: HttpRequest) -> User | None:
        raise self._error

    def user_of(self, token: str) -> User | None:
        raise self._error


def test_an_unavailable_authenticator_does_not_deny() -> None:
    """A TokenReview reports an invalid token as unauthenticated, and fails if it cannot be
    verified."""
    assert Authentication([_Silent(status.unauthorized())]).user_of(GOOD) is None
    with pytest.raises(status.ServiceUnavailable):
        Authentication([_Silent(status.unavailable("later"))]).user_of(GOOD)


def test_impersonation_is_not_cached() -> None:
    """A request with impersonation headers is not cached, because fast paths would run it as the
    sender."""
    asked = request(("authorization", f"Bearer {GOOD}"), ("impersonate-user", "jane"))
    assert chain().authenticate(asked).name == "bob"
    assert asked.headers.memo is None


def test_a_certificate_counts_until_its_end() -> None:
    """An expired certificate on an open connection is a 401, unless the request has a token."""
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


def test_a_certificate_without_a_common_name_is_ignored() -> None:
    """As in kube-apiserver: the request is anonymous, or has the user of its token."""
    clock = SimulatedClock()
    peer = Peer(1, certificate=certificate("", not_after=clock.wall().timestamp() + 10))
    authentication = Authentication(
        [CertificateAuthenticator(clock), TokenAuthenticator({GOOD: User("bob")})]
    )
    assert authentication.authenticate(request(peer=peer)).name == "system:anonymous"
    with_token = request(("authorization", f"Bearer {GOOD}"), peer=peer)
    assert authentication.authenticate(with_token).name == "bob"


def test_system_authenticated_is_added_once() -> None:
    """`system:authenticated` is added unless the user has it or `system:unauthenticated`."""
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
