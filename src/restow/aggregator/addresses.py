"""Which addresses a backend may have. Pure.

Where a backend is comes from objects that only trusted users write, as in Kubernetes. Still, this
server talks with a certificate of its own and from a place where others may not be: so an address
is checked when it is known as a number, and that number is what is connected to. A name that means
something else the next time changes nothing.

    refused always      link-local (the metadata services of clouds), unspecified, multicast,
                        broadcast; each also as an IPv6 address that holds an IPv4 address
    refused by default  loopback: it is this machine, and may be let in where servers live on one

Not here: who may write those objects, and TLS, which tells who answers.
"""

from __future__ import annotations

import ipaddress
from typing import Final

NAME_LENGTH_MAX: Final = 253

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


def parse_address(text: str) -> Address | None:
    """An address written as a number; None when it is none, as with zeros in front or a zone."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        return None
    return found


def refusal_of(text: str, *, allows_loopback: bool) -> str | None:
    """Why nobody connects to an address; None when it is good."""
    found = parse_address(text)
    if found is None:
        return f"{text[:NAME_LENGTH_MAX]!r} is no address"
    for each in (found, *_within(found)):
        if each.is_link_local:
            return f"{text} is link-local"
        if each.is_unspecified or each.is_multicast or each == _BROADCAST:
            return f"{text} is the address of no server"
        if each.is_loopback and not allows_loopback:
            return f"{text} is loopback"
    return None


def is_host_name(text: str) -> bool:
    """Whether a text can be asked for in DNS; a number is none."""
    labels = text.removesuffix(".").split(".")
    if not text or len(text) > NAME_LENGTH_MAX or parse_address(text) is not None:
        return False
    # A last label of digits would be read as an old form of a number.
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
    """IPv4 addresses that an IPv6 address stands for."""
    if isinstance(found, ipaddress.IPv4Address):
        return []
    held: list[Address] = [each for each in (found.ipv4_mapped, found.sixtofour) if each]
    if found.teredo is not None:
        held += found.teredo
    if found in _TRANSLATED or (found.packed[:12] == bytes(12) and int(found) > 1):
        held.append(ipaddress.IPv4Address(found.packed[12:]))
    return held
