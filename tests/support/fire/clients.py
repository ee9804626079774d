"""Connections of the load to all servers, and the choice of a server for each request.

A server that did not reply is avoided for a moment, so that a load continues while one is down.
Not here: the requests.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import msgspec

from restow.aio import Randomness, SystemClock
from tests.support.api_client import ApiClient, Reply, WatchStream

REQUEST_SECONDS_MAX: Final = 3.0
AVOIDED_SECONDS: Final = 0.4


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses and credentials of the servers of a cluster."""

    ports: tuple[int, ...]
    token: str
    ca_file: str

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


class NotSent(Exception):
    """The connection was refused: the request had no effect."""


class NoAnswer(Exception):
    """The request was sent, or may have been, and its outcome is unknown."""


class Health:
    """Which servers have replied recently, shared by all clients of a load."""

    def __init__(self, count: int, clock: SystemClock) -> None:
        self._clock = clock
        self._avoided_until = [0.0] * count

    def pick(self, randomness: Randomness) -> int:
        """An available server; any, if none is."""
        now = self._clock.monotonic()
        good = [number for number, until in enumerate(self._avoided_until) if until <= now]
        return randomness.choice(good or range(len(self._avoided_until)))

    def avoid(self, server: int) -> None:
        self._avoided_until[server] = self._clock.monotonic() + AVOIDED_SECONDS


class Connections:
    """One client's connections, one to each server, opened when needed."""

    def __init__(self, target: Target, tls: ssl.SSLContext) -> None:
        self._clients = [ApiClient(port, token=target.token, tls=tls) for port in target.ports]

    async def request(self, server: int, method: str, path: str, body: Any, kind: str) -> Reply:
        """Send a request to one server. Raises NotSent or NoAnswer."""
        client = self._clients[server]
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await client.request(method, path, body, content_type=kind)
        except ConnectionRefusedError as error:
            raise NotSent from error
        except (OSError, EOFError, ValueError, IndexError) as error:
            # A late reply must not be taken for that of the next request.
            client.abort()
            raise NoAnswer from error

    async def watch(self, server: int, path: str) -> WatchStream:
        """A stream that the caller ends with `abort`; raises NoAnswer."""
        client = self._clients[server]
        client.abort()
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await client.watch(path)
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise NoAnswer from error

    def abort(self) -> None:
        for client in self._clients:
            client.abort()
