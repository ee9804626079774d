"""Proxy addresses: from `proxy-url`, or from the environment by the rules of Go.

`proxy-url` applies to every request of its cluster. Otherwise HTTPS_PROXY, or HTTP_PROXY for a
plain http server, applies unless NO_PROXY excludes the server; localhost is never proxied.

Not here: connections through a proxy (`tunnels`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from restow.client.errors import ConfigInvalid

_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_VARIABLES: Final = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAddress:
    """A proxy. `repr` hides the password."""

    scheme: str
    """http or https: the method CONNECT; socks5 and socks5h: SOCKS5, which resolves names."""
    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)
    source: str
    """Which setting it comes from, for messages."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def read_proxy(text: str, *, source: str) -> ProxyAddress:
    """Parse a proxy URL. Raises ConfigInvalid, without the password in its text."""
    advice = "it must be an address such as http://proxy:3128 or socks5://proxy:1080"
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ConfigInvalid(f"{source} is not a proxy address: {advice}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigInvalid(f"{source} is not a proxy address: {advice}") from error
    if parts.scheme not in _PORTS:
        raise ConfigInvalid(
            f"{source}: unsupported scheme {parts.scheme[:32]!r}: must be http, https or socks5"
        )
    if not parts.hostname or port == 0:
        raise ConfigInvalid(f"{source} is not a proxy address: {advice}")
    return ProxyAddress(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        source=source,
    )


def environment_proxy(
    environ: Mapping[str, str], *, scheme: str, host: str, port: int
) -> ProxyAddress | None:
    """The proxy that the environment selects for a server; None: connect directly."""
    name, text = _first(environ, _VARIABLES[scheme])
    if not text or (scheme == "http" and "REQUEST_METHOD" in environ):
        return None  # HTTP_PROXY of a CGI program comes from its client
    _, excluded = _first(environ, ("NO_PROXY", "no_proxy"))
    if _is_local(host) or _is_excluded(excluded, host, port):
        return None
    return read_proxy(text if "://" in text else f"http://{text}", source=f"${name}")


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[0], ""))


def _is_local(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _is_excluded(rules: str, host: str, port: int) -> bool:
    """Whether NO_PROXY lists the server: `*`, an address, a network, a domain, each with a port."""
    address, name = _address(host), host.lower().rstrip(".")
    return any(
        _matches(each.strip().lower(), name, address, port)
        for each in rules.split(",")
        if each.strip()
    )


def _matches(
    rule: str, name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int
) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    rule, rule_port = _split_port(rule)
    if rule_port and rule_port != str(port):
        return False
    wanted = _address(rule)
    if wanted is not None or address is not None:
        return wanted is not None and wanted == address
    if rule.startswith(("*.", ".")):
        return name.endswith(rule.lstrip("*"))
    return name == rule or name.endswith(f".{rule}")


def _split_port(rule: str) -> tuple[str, str]:
    if rule.startswith("["):
        host, _, rest = rule[1:].partition("]")
        return host, rest.removeprefix(":")
    host, colon, port = rule.rpartition(":")
    return (host, port) if colon and ":" not in host else (rule, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
