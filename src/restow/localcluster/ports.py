"""Ports: check whether one is free, and choose a replacement.

Another process can take a free port before it is used; the later bind reports that. Not here: the
listening sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from restow.aio import Randomness
from restow.localcluster.errors import ClusterRefused

IsFree = Callable[[int], bool]

# Below the range that the kernel gives to outgoing connections, so that a port stays free while its
# server is down.
SPARE_PORTS: Final = range(18_000, 32_000)
DRAWS_MAX: Final = 1_000


def is_free(bind: str, port: int) -> bool:
    """Whether no process listens on the port, not even with SO_REUSEPORT."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # SO_REUSEADDR ignores closed connections; without SO_REUSEPORT a shared listener conflicts.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class PortChooser:
    """Chooses ports, each only once."""

    def __init__(self, is_free: IsFree, randomness: Randomness, taken: Iterable[int] = ()) -> None:
        self._is_free = is_free
        self._randomness = randomness
        self._taken = set(taken)

    def take(self, *wanted: int) -> int:
        """The first preferred port that is free, else a random one."""
        for port in wanted:
            if port not in self._taken and 0 < port < 65_536 and self._is_free(port):
                self._taken.add(port)
                return port
        for _ in range(DRAWS_MAX):
            port = self._randomness.choice(SPARE_PORTS)
            if port not in self._taken and self._is_free(port):
                self._taken.add(port)
                return port
        raise ClusterRefused(
            f"no free port found between {SPARE_PORTS.start} and {SPARE_PORTS.stop}"
        )
