"""How the processes that share a file tell each other of a commit.

Each has a datagram socket in the peers' directory and sends an empty datagram to all others after
a commit. A notice is only a hint that may be lost: who gets one looks into the file, and who gets
none looks now and then anyway. Nothing here reads the store.
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
"""How often a list of peers is used: a directory's time may be too coarse to show a new one."""


class CommitNotifications:
    """One process's socket, and the addresses of the others."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory_file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # A socket's address holds about 100 bytes: reach the directory by its number instead.
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
        """Tell all peers; never waits, since one that does not listen must not hold us up."""
        for name in self._find_peers():
            try:
                self._socket.sendto(b"", str(self._by_number / name))
            except BlockingIOError:
                pass  # it has notices enough waiting
            except (ConnectionRefusedError, FileNotFoundError):
                self._bury(name)
            except OSError:
                pass  # its poll will see the commit

    def drain(self) -> None:
        """Take what has arrived."""
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

    def _bury(self, name: str) -> None:
        """Remove the socket of a process that is gone."""
        self._peers_seen_ns = -1
        self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory_file)
