"""A proxy in front of this server that says, in headers, who has asked it.

It is believed for its client certificate alone: signed by an authority that signs for nothing
else, with a name among those that are allowed. From anybody else these headers are nothing.

    X-Remote-User: jane
    X-Remote-Uid: 4711
    X-Remote-Group: developers
    X-Remote-Extra-Scopes: view

Not here: the certificates of users (`certificates`), and how a proxy sets these headers.
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
"""How long a proxy is believed that is trusted no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxyTrust:
    """Which proxies are believed, and where they say who has asked."""

    ca_pem: str
    allowed_names: tuple[str, ...] = ()
    """Common names of their certificates; none: whoever has one of these authorities."""
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
                raise ValueError("a header that tells who has asked must have a name")
        if not self.username_headers:
            raise ValueError("at least one header must tell the name of the user")


def read_trust(data: Mapping[str, str]) -> FrontProxyTrust | None:
    """What the ConfigMap `kube-system/extension-apiserver-authentication` says of proxies.

    None when it says nothing. Raises ValueError for what cannot be understood.
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
    """Believes a trusted proxy. Comes before all others, as what it says is about someone else."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, trust: FrontProxyTrust | None, clock: Clock) -> None:
        """`trust` may come later: until then nobody is believed. Raises ValueError for what holds
        no certificate."""
        self._clock = clock
        self.take(trust)

    @property
    def trust(self) -> FrontProxyTrust | None:
        return self._trust

    def take(self, trust: FrontProxyTrust | None) -> None:
        """Trust these proxies from now on. Raises ValueError, with nothing changed."""
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
        """The proxy's: what it was shown itself is not known here."""
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
                # What a name of a header cannot hold was escaped.
                found.setdefault(unquote(name[len(start) :]), []).append(_decoded(value))
    return tuple((name, tuple(values)) for name, values in found.items())


def _decoded(value: str) -> str:
    """The text of a header's value: proxies send UTF-8, and the listener reads byte by byte.

    Raises 401 for other bytes: a name that is guessed could be that of somebody else.
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
        raise ValueError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{name} is no list of texts")
    return tuple(found)
