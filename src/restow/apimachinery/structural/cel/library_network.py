"""CEL functions that Kubernetes adds: URLs, IP addresses, CIDRs.

Not here: other kinds of values (`library_kubernetes`), and DNS lookups.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, ClassVar, Final
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from restow.apimachinery.structural.cel.functions import (
    TRAVERSAL,
    Cost,
    Overload,
    ceil,
    member,
    traversal,
)
from restow.apimachinery.structural.cel.library_kubernetes import holds
from restow.apimachinery.structural.cel.types import (
    BOOL,
    CIDR,
    INT,
    IP,
    STRING,
    URL,
    list_of,
    map_of,
)
from restow.apimachinery.structural.cel.values import CelError
from restow.apimachinery.structural.formats import format_check

_ADDRESS_LENGTH_MAX: Final = 100


@dataclass(slots=True, frozen=True)
class Url:
    """A parsed URL."""

    CEL_NAME: ClassVar = "kubernetes.URL"
    parts: SplitResult


@dataclass(slots=True, frozen=True)
class IpAddress:
    """An IP address."""

    CEL_NAME: ClassVar = "net.IP"
    address: IPv4Address | IPv6Address


@dataclass(slots=True, frozen=True)
class Network:
    """An address with a prefix length."""

    CEL_NAME: ClassVar = "net.CIDR"
    address: IPv4Address | IPv6Address
    length: int

    def masked(self) -> Network:
        """Return the network with the host bits cleared."""
        bits = self.address.max_prefixlen - self.length
        return Network(type(self.address)(int(self.address) >> bits << bits), self.length)

    def has(self, other: IPv4Address | IPv6Address) -> bool:
        """Report whether an address is in the network."""
        if other.version != self.address.version:
            return False
        return self.masked().address == Network(other, self.length).masked().address


def _is_url(text: str) -> bool:
    check = format_check("uri")
    assert check is not None
    if not check(text):
        return False
    try:
        urlsplit(text).port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    return True


def _url(text: str) -> Url:
    if not _is_url(text):
        why = f'parse "{text[:100]}": invalid URI for request'
        raise CelError(f"URL parse error during conversion from string: {why}")
    return Url(urlsplit(text))


def _host(url: Url) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Url) -> str:
    return (
        _host(url).rpartition("]")[2].rpartition(":")[2]
        if ":" in _host(url).rpartition("]")[2]
        else ""
    )


def _query(url: Url) -> dict[str, list[str]]:
    return parse_qs(url.parts.query, keep_blank_values=True)


def _address(text: str) -> IPv4Address | IPv6Address:
    quoted = f'"{text[:_ADDRESS_LENGTH_MAX]}"'
    try:
        if len(text) > _ADDRESS_LENGTH_MAX:
            raise ValueError("unable to parse IP")
        found = ip_address(text)
    except ValueError:
        why = f"IP Address {quoted} parse error during conversion from string: "
        raise CelError(f"{why}ParseAddr({quoted}): unable to parse IP") from None
    if isinstance(found, IPv6Address):
        if found.scope_id:
            raise CelError(f"IP address {quoted} with zone value is not allowed")
        if found.ipv4_mapped is not None:
            raise CelError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return found


def _network(text: str) -> Network:
    address, slash, length = text.partition("/")
    plain = length.isascii() and length.isdecimal() and len(length) <= 3
    if not slash or not plain or (length[0] == "0" and length != "0"):
        why = f"netip.ParsePrefix(\"{text[:_ADDRESS_LENGTH_MAX]}\"): no '/'"
        raise CelError(f"network address parse error during conversion from string: {why}")
    try:
        found = _address(address)
    except CelError as error:
        why = f"network address parse error during conversion from string: {error}"
        raise CelError(why) from None
    if int(length) > found.max_prefixlen:
        why = f'netip.ParsePrefix("{text[:_ADDRESS_LENGTH_MAX]}"): prefix length out of range'
        raise CelError(f"network address parse error during conversion from string: {why}")
    return Network(found, int(length))


def _has_network(one: Network, other: Network) -> bool:
    return one.has(other.address) and one.length <= other.length


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    is_broadcast = address.version == 4 and int(address) == 2**32 - 1
    return not (
        is_broadcast
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


def _is_local_multicast(address: IPv4Address | IPv6Address) -> bool:
    number = int(address)
    if address.version == 4:
        return number >> 8 == 0xE00000
    return number >> 120 == 0xFF and number >> 112 & 0x0F == 0x02


def _in_network(factor: int, *, parses: bool) -> Cost:
    """Return the cost of comparing the bytes of an address, plus parsing the other if it is a
    string.
    """

    def cost(args: tuple[Any, ...], _: Any) -> int:
        size = args[0].address.max_prefixlen // 8
        total = ceil(2 * size * TRAVERSAL)
        if factor > 1:
            total += ceil(size * TRAVERSAL) + 1
        return total + (ceil(len(args[1]) * TRAVERSAL) if parses else 0)

    return cost


_READ: Final = traversal()

NETWORK: Final[list[Overload]] = [
    Overload("url", "string_to_url", (STRING,), URL, _url, cost=_READ),
    Overload("isURL", "is_url_string", (STRING,), BOOL, _is_url),
    member("getScheme", "url_get_scheme", (URL,), STRING, lambda url: url.parts.scheme),
    member("getHost", "url_get_host", (URL,), STRING, _host),
    member("getHostname", "url_get_hostname", (URL,), STRING, _hostname),
    member("getPort", "url_get_port", (URL,), STRING, _port),
    member(
        "getEscapedPath",
        "url_get_escaped_path",
        (URL,),
        STRING,
        lambda url: quote(url.parts.path, safe="/:@!$&'()*+,;=%~-._"),
    ),
    member("getQuery", "url_get_query", (URL,), map_of(STRING, list_of(STRING)), _query),
    Overload(
        "ip", "string_to_ip", (STRING,), IP, lambda text: IpAddress(_address(text)), cost=_READ
    ),
    Overload("isIP", "is_ip", (STRING,), BOOL, holds(_address), cost=_READ),
    Overload(
        "ip.isCanonical",
        "ip_is_canonical",
        (STRING,),
        BOOL,
        lambda text: str(_address(text)) == text,
        cost=traversal(2),
    ),
    member("family", "ip_family", (IP,), INT, lambda ip: ip.address.version),
    member("isUnspecified", "ip_is_unspecified", (IP,), BOOL, lambda ip: ip.address.is_unspecified),
    member("isLoopback", "ip_is_loopback", (IP,), BOOL, lambda ip: ip.address.is_loopback),
    member(
        "isLinkLocalMulticast",
        "ip_is_link_local_multicast",
        (IP,),
        BOOL,
        lambda ip: _is_local_multicast(ip.address),
    ),
    member(
        "isLinkLocalUnicast",
        "ip_is_link_local_unicast",
        (IP,),
        BOOL,
        lambda ip: ip.address.is_link_local,
    ),
    member(
        "isGlobalUnicast", "ip_is_global_unicast", (IP,), BOOL, lambda ip: _is_global(ip.address)
    ),
    Overload("string", "ip_to_string", (IP,), STRING, lambda ip: str(ip.address)),
    Overload("cidr", "string_to_cidr", (STRING,), CIDR, _network, cost=_READ),
    Overload("isCIDR", "is_cidr", (STRING,), BOOL, holds(_network), cost=_READ),
    member(
        "containsIP",
        "cidr_contains_ip_string",
        (CIDR, STRING),
        BOOL,
        lambda net, text: net.has(_address(text)),
        _in_network(1, parses=True),
    ),
    member(
        "containsIP",
        "cidr_contains_ip_ip",
        (CIDR, IP),
        BOOL,
        lambda net, ip: net.has(ip.address),
        _in_network(1, parses=False),
    ),
    member(
        "containsCIDR",
        "cidr_contains_cidr_string",
        (CIDR, STRING),
        BOOL,
        lambda net, text: _has_network(net, _network(text)),
        _in_network(2, parses=True),
    ),
    member(
        "containsCIDR",
        "cidr_contains_cidr",
        (CIDR, CIDR),
        BOOL,
        _has_network,
        _in_network(2, parses=False),
    ),
    member("ip", "cidr_ip", (CIDR,), IP, lambda net: IpAddress(net.address)),
    member("prefixLength", "cidr_prefix_length", (CIDR,), INT, lambda net: net.length),
    member("masked", "cidr_masked", (CIDR,), CIDR, Network.masked),
    Overload(
        "string", "cidr_to_string", (CIDR,), STRING, lambda net: f"{net.address}/{net.length}"
    ),
]
