"""The credential of an exec plugin: one run at a time, kept until it expires or is refused.

One object belongs to one user of a kubeconfig; all connections of this user share it, as do the
configurations that are derived from the same one.

Not here: the process (`exec_process`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from restow.aio import Clock
from restow.client.errors import CredentialsFailed
from restow.client.exec_plugin import ExecPlugin, PluginCredential
from restow.client.exec_process import ExecProcess, Terminal

RENEW_SECONDS_MIN: Final = 10.0
"""Minimum time between two runs because of one cause: a plugin whose credential has always
expired, or is always refused, does not run for each request."""

Run = Callable[[Clock], Awaitable[PluginCredential]]


class ExecCredentials:
    """The current credential of one plugin."""

    def __init__(self, plugin: ExecPlugin, *, run: Run | None = None) -> None:
        self.plugin = plugin
        self._run = run or self._run_process
        self._credential: PluginCredential | None = None
        self._obtained_at = 0.0
        self._is_refused = False
        self._refused_at: float | None = None
        self._running: asyncio.Future[CredentialsFailed | None] | None = None

    async def current(self, clock: Clock) -> PluginCredential:
        """The credential; the plugin runs if there is none, or a new one is needed.

        Concurrent callers share one run, and its failure. Raises CredentialsFailed.
        """
        while (credential := self._fresh(clock)) is None:
            if self._running is None:
                await self._renew(clock)
                continue
            running = self._running
            await asyncio.wait([running])
            if (failure := running.result()) is not None:
                raise CredentialsFailed(
                    failure.server, failure.what, advice=failure.advice
                ) from failure
        return credential

    def refused(self, credential: PluginCredential, clock: Clock) -> None:
        """The server returned 401 to this credential: run the plugin before the next request."""
        now = clock.monotonic()
        if credential is not self._credential or self._is_refused:
            return
        if self._refused_at is None or now - self._refused_at >= RENEW_SECONDS_MIN:
            self._is_refused, self._refused_at = True, now

    def _fresh(self, clock: Clock) -> PluginCredential | None:
        found = self._credential
        if found is None or self._is_refused:
            return None
        has_expired = found.expires is not None and clock.wall() > found.expires
        if has_expired and clock.monotonic() - self._obtained_at >= RENEW_SECONDS_MIN:
            return None
        return found

    async def _renew(self, clock: Clock) -> None:
        running = self._running = asyncio.get_running_loop().create_future()
        failure: CredentialsFailed | None = None
        try:
            self._credential = await self._run(clock)
            self._obtained_at, self._is_refused = clock.monotonic(), False
        except CredentialsFailed as error:
            failure = error
            raise
        finally:
            # After a cancellation there is no result, and one of the others runs the plugin.
            self._running = None
            running.set_result(failure)

    async def _run_process(self, clock: Clock) -> PluginCredential:
        return await ExecProcess(self.plugin, clock, Terminal.of_process()).run()
