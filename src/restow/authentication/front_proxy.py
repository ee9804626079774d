"""Authenticating front proxy: a proxy that sends the user of a request in headers.

The proxy is trusted by its client certificate only: signed by a dedicated CA, with an allowed
common name. The headers of all other clients are ignored.

    X-Remote-User: jane
    X-Remote-Uid: 4711
    X-Remote-Group: developers
    X-Remote-Extra-Scopes: view

Not here: client certificates of users (`certificates`), and how a proxy sets these headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import orjson

from restow.aio import Clock
from restow.apimachinery import status
from restow.authentication.authorities import Authorities
from restow.authentication.credentials import Credential
from restow.httpserver.request import Headers, HttpRequest
from restow.request.context import User

USERNAME_HEADERS: Final = ("X-Remote-User",)
UID_HEADERS: Final = ("X-Remote-Uid",)
GROUP_HEADERS: Final = ("X-Remote-Group",)
EXTRA_PREFIXES: Final = ("X-Remote-Extra-",)
KEPT_SECONDS: Final = 1.0
"""How long a connection of a proxy is still trusted after its trust is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxyTrust:
    """The trusted proxies, and the headers in which they send the user."""

    ca_pem: str
    allowed_names: tuple[str, ...] = ()
    """Allowed common names of their certificates; empty: any certificate of these CAs."""
    username_headers: tuple[str, ...] = USERNAME_HEADERS
    uid_headers: tuple[str, ...] = UID_HEADERS
    group_headers: tuple[str, ...] = GROUP_HEADERS
    extra_prefixes: tuple[str, ...] = EXTRA_PREFIXES

    def __post_init__(self) -> None:
        for names in (
            self.username_headers,
            self.uid_headers,
            self.group_headers,
            self.extra_prefixes,
        ):
            if not all(name.strip() for name in names):
                raise ValueError("the name of a request header must not be empty")
        if not self.username_headers:
            raise ValueError("at least one username header is required")


def read_trust(data: Mapping[str, str]) -> FrontProxyTrust | None:
    """Read the ConfigMap `kube-system/extension-apiserver-authentication`.

    Return None if it contains no front proxy settings. Raises ValueError for invalid settings.
    """
    ca_pem = data.get("requestheader-client-ca-file") or ""
    if not ca_pem:
        return None
    return FrontProxyTrust(
        ca_pem=ca_pem,
        allowed_names=_listed(data, "requestheader-allowed-names"),
        username_headers=_listed(data, "requestheader-username-headers"),
        uid_headers=_listed(data, "requestheader-uid-headers"),
        group_headers=_listed(data, "requestheader-group-headers"),
        extra_prefixes=_listed(data, "requestheader-extra-headers-prefix"),
    )


class FrontProxyAuthenticator:
    """Authenticates requests of trusted front proxies. It comes first, because the proxy
    authenticates other users."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, trust: FrontProxyTrust | None, clock: Clock) -> None:
        """`trust` may be set later by `take`; until then no proxy is trusted. Raises ValueError if
        the bundle contains no certificate."""
        self._clock = clock
        self.take(trust)

    @property
    def trust(self) -> FrontProxyTrust | None:
        return self._trust

    def take(self, trust: FrontProxyTrust | None) -> None:
        """Replace the trusted proxies. Raises ValueError and changes nothing if the bundle is
        invalid."""
        self._authorities = None if trust is None else Authorities(trust.ca_pem.encode())
        self._trust = trust

    def authenticate(self, request: HttpRequest) -> User | None:
        trust, authorities = self._trust, self._authorities
        certificate = request.peer.certificate
        if trust is None or authorities is None or certificate is None:
            return None
        if trust.allowed_names and certificate.common_name not in trust.allowed_names:
            return None
        if not authorities.have_signed(certificate.der, self._clock.wall()):
            return None
        headers = request.headers
        name = _first(headers, trust.username_headers)
        if not name:
            return None
        return User(
            name,
            tuple(_all(headers, trust.group_headers)),
            _first(headers, trust.uid_headers),
            _extra(headers, trust.extra_prefixes),
        )

    def credential_of(self, request: HttpRequest) -> Credential:
        """Return the credential of the proxy; that of the user is not available here."""
        certificate = request.peer.certificate
        assert certificate is not None
        return Credential(certificate.not_after_epoch_seconds)


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    for name in names:
        if value := headers.get(name.strip().lower()):
            return _decoded(value)
    return ""


def _all(headers: Headers, names: tuple[str, ...]) -> list[str]:
    return [
        _decoded(value)
        for name in names
        for value in headers.get_all(name.strip().lower())
        if value
    ]


def _extra(headers: Headers, prefixes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for prefix in prefixes:
        start = prefix.strip().lower()
        for name, value in headers.items():
            if name.startswith(start):
                # Characters that a header name cannot contain are percent-encoded.
                found.setdefault(unquote(name[len(start) :]), []).append(_decoded(value))
    return tuple((name, tuple(values)) for name, values in found.items())


def _decoded(value: str) -> str:
    """Return the text of a header value: proxies send UTF-8, the listener decodes Latin-1.

    Raises 401 for invalid UTF-8, because a guessed name could be that of another user.
    """
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError as error:
        raise status.unauthorized() from error


def _listed(data: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = data.get(name)
    if not text:
        return ()
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{name} is not a list of strings")
    return tuple(found)
