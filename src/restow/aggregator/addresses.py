"""Decides which addresses a backend may have. Pure.

As in Kubernetes, only trusted users may write the objects that contain backend addresses. Still,
this server connects with its own certificate and from its own network: so each address is checked
after name resolution, and exactly that address is used. Resolving to another address later (DNS
rebinding) has no effect.

    always rejected      link-local (cloud metadata services), unspecified, multicast, broadcast;
                         each also as an IPv6 address that embeds an IPv4 address
    rejected by default  loopback: this machine, which may be allowed where all servers run on one

Not here: who may write those objects, and TLS, which authenticates the server.
"""

from __future__ import annotations

import ipaddress
from typing import Final

NAME_LENGTH_MAX: Final = 253

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


def parse_address(text: str) -> Address | None:
    """Parse a numeric address; None if it is invalid, such as with leading zeros or a zone."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        return None
    return found


def refusal_of(text: str, *, allows_loopback: bool) -> str | None:
    """The reason why connecting to an address is not permitted; None if it is."""
    found = parse_address(text)
    if found is None:
        return f"{text[:NAME_LENGTH_MAX]!r} is not an IP address"
    for each in (found, *_within(found)):
        if each.is_link_local:
            return f"{text} is link-local"
        if each.is_unspecified or each.is_multicast or each == _BROADCAST:
            return f"{text} is not a unicast address of a server"
        if each.is_loopback and not allows_loopback:
            return f"{text} is loopback"
    return None


def is_host_name(text: str) -> bool:
    """Whether a text is a name for DNS; a number is not."""
    labels = text.removesuffix(".").split(".")
    if not text or len(text) > NAME_LENGTH_MAX or parse_address(text) is not None:
        return False
    # A last label of digits would be parsed as an old form of an IPv4 address.
    return all(map(_is_label, labels)) and not labels[-1].isdigit()


def _is_label(text: str) -> bool:
    return (
        0 < len(text) <= 63
        and text.isascii()
        and text.replace("-", "").replace("_", "").isalnum()
        and not text.startswith("-")
        and not text.endswith("-")
    )


def _within(found: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address embeds."""
    if isinstance(found, ipaddress.IPv4Address):
        return []
    held: list[Address] = [each for each in (found.ipv4_mapped, found.sixtofour) if each]
    if found.teredo is not None:
        held += found.teredo
    if found in _TRANSLATED or (found.packed[:12] == bytes(12) and int(found) > 1):
        held.append(ipaddress.IPv4Address(found.packed[12:]))
    return held
