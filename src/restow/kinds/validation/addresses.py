"""Validation of IP addresses, CIDR ranges and port names.

An address with leading zeros is rejected: some parsers read `010.0.0.1` as octal, others do not, so
that a check by one may not apply to the connection by the other.

Not here: ownership and reachability of an address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_EXAMPLE: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_ZEROS: Final = re.compile(r"(?:.*[.:])?0[0-9]+\.[0-9.]*|[0-9.]+\.0[0-9]+(?:\.[0-9.]*)?")
_RANGE_EXAMPLE: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LENGTH_MAX: Final = 64
_PORT_NAME_LENGTH_MAX: Final = 15
_PORT_CHARACTERS: Final = re.compile(r"[-a-z0-9]+")


def address_problem(text: str) -> str | None:
    """Return why an IP address is invalid; None if it is valid."""
    if len(text) > _LENGTH_MAX:
        return _EXAMPLE
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "must not have leading 0s" if _ZEROS.fullmatch(text) else _EXAMPLE
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return _EXAMPLE
        if found.ipv4_mapped is not None:
            return "must not be an IPv4-mapped IPv6 address"
    return None


def cidr_problem(text: str) -> str | None:
    """Return why a CIDR is invalid; None if it is valid."""
    if len(text) > _LENGTH_MAX or "/" not in text:
        return _RANGE_EXAMPLE
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return _RANGE_EXAMPLE
    return None


def special_address_problem(text: str) -> str | None:
    """Return why a valid address cannot be used for another host; None if it can."""
    found = ipaddress.ip_address(text)
    if found.is_unspecified:
        return f"may not be unspecified ({text})"
    if found.is_loopback:
        return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    if found.is_link_local:
        return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    if _is_link_local_multicast(found):
        return "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    return None


def _is_link_local_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address in ipaddress.IPv6Network("ff02::/16")


def port_name_problem(text: str) -> str | None:
    """Return why a port name is not a valid IANA service name; None if it is."""
    if len(text) > _PORT_NAME_LENGTH_MAX:
        return f"must be no more than {_PORT_NAME_LENGTH_MAX} characters"
    if not _PORT_CHARACTERS.fullmatch(text):
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not any("a" <= each <= "z" for each in text):
        return "must contain at least one letter (a-z)"
    if "--" in text:
        return "must not contain consecutive hyphens"
    if text[0] == "-" or text[-1] == "-":
        return "must not begin or end with a hyphen"
    return None
