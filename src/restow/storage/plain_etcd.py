"""Connections to etcd without TLS: only within one machine, unless the user accepts the risk.

Anybody on the network between both machines could read every Secret and the password of etcd, and
change what is stored. Needs no etcd library, so that commands can check an address without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

ACCEPTED: Final = "insecure=true"
"""The option of an address by which the user accepts it."""
FLAG: Final = "--etcd-insecure"
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost.", "ip6-localhost"})


def accept(address: str) -> str:
    """The address with the option."""
    place, _, query = address.partition("?")
    parts = [part for part in query.split("&") if part and part != ACCEPTED]
    return f"{place}?{'&'.join([*parts, ACCEPTED])}"


def is_plain(address: str) -> bool:
    """Whether this is the address of an etcd without TLS."""
    return address.startswith("etcd://")


def is_accepted(address: str) -> bool:
    return ACCEPTED in address.partition("?")[2].split("&")


def problem_of(address: str) -> str | None:
    """Why a store may not be used in this way, and what to do; None if it may, or is no etcd
    without TLS."""
    if not is_plain(address) or is_accepted(address):
        return None
    place = address.removeprefix("etcd://").partition("?")[0]
    return refusal(place.split(","))


def refusal(endpoints: Sequence[str]) -> str | None:
    """The same for the endpoints of an etcd without TLS, HOST:PORT each."""
    remote = remote_hosts(endpoints)
    if not remote:
        return None
    return (
        f"etcd:// is not encrypted, and {', '.join(remote)} is not this machine: use etcds:// with"
        f" --etcd-cafile, --etcd-certfile and --etcd-keyfile, or accept the risk with {FLAG}"
    )


def remote_hosts(endpoints: Sequence[str]) -> list[str]:
    """The hosts that are not certainly this machine. Endpoints without a host are reported by the
    driver."""
    hosts = (endpoint.rpartition(":")[0] for endpoint in endpoints)
    return [host for host in hosts if host and not _is_loopback(host)]


def _is_loopback(host: str) -> bool:
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False  # a name, whose address others control
