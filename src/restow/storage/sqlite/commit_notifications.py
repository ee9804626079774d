"""Notifies the other processes that share a file of a commit.

Each has a datagram socket in the peers' directory and sends an empty datagram to all others after
a commit. A notification is only a hint that may be lost: on receipt a process checks the file, and
without one it polls the file anyway. Nothing here reads the store.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

SOCKET_SUFFIX: Final = ".sock"
PEERS_MAX: Final = 256
DRAIN_MAX: Final = 1024
LISTED_SENDS_MAX: Final = 50
"""Sends that reuse a list of peers; the directory's mtime may be too coarse to show a new peer."""


class CommitNotifications:
    """One process's socket, and the addresses of the others."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory_file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # A socket's address is limited to about 100 bytes: use the directory's descriptor instead.
        self._by_number = Path(f"/proc/self/fd/{self._directory_file}")
        self._name = name + SOCKET_SUFFIX
        self._peers: list[str] = []
        self._peers_seen_ns = -1
        self._sends_left = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._by_number / self._name))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self) -> None:
        """Notify all peers; never blocks, as a peer may not read."""
        for name in self._find_peers():
            try:
                self._socket.sendto(b"", str(self._by_number / name))
            except BlockingIOError:
                pass  # its queue is full, so it will check anyway
            except (ConnectionRefusedError, FileNotFoundError):
                self._remove_stale(name)
            except OSError:
                pass  # its poll detects the commit

    def drain(self) -> None:
        """Discard all received notifications."""
        try:
            for _ in range(DRAIN_MAX):
                self._socket.recv(1)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._socket.close()
        self._remove(self._name)
        os.close(self._directory_file)

    def _find_peers(self) -> list[str]:
        changed_ns = os.fstat(self._directory_file).st_mtime_ns
        self._sends_left -= 1
        if changed_ns != self._peers_seen_ns or self._sends_left < 0:
            self._peers_seen_ns = changed_ns
            self._sends_left = LISTED_SENDS_MAX
            names = os.listdir(self._directory_file)  # noqa: PTH208 - by number, not by path
            self._peers = [
                name for name in names if name.endswith(SOCKET_SUFFIX) and name != self._name
            ][:PEERS_MAX]
        return self._peers

    def _remove_stale(self, name: str) -> None:
        """Remove the socket of a process that has exited."""
        self._peers_seen_ns = -1
        self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory_file)
