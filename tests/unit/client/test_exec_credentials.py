"""When a credential plugin runs: its credential is kept, renewed and shared."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from restow.aio import Clock, SimulatedClock
from restow.client import ClientConfig, CredentialsFailed
from restow.client.credentials import ClientCredentials
from restow.client.exec_credentials import RENEW_SECONDS_MIN, ExecCredentials
from restow.client.exec_plugin import API_VERSIONS, ExecPlugin, InteractiveMode, PluginCredential

PLUGIN = ExecPlugin(
    command="p",
    api_version=API_VERSIONS[0],
    mode=InteractiveMode.NEVER,
    server="https://h",
    source="config: user 'u'",
)


class Runs:
    """Counts the runs of a plugin, each of which takes a second."""

    def __init__(self, *, expires_seconds: float | None = None) -> None:
        self.count = 0
        self.expires_seconds = expires_seconds
        self.failure: CredentialsFailed | None = None

    async def run(self, clock: Clock) -> PluginCredential:
        self.count += 1
        number = self.count
        await clock.sleep(1)
        if self.failure is not None:
            raise self.failure
        seconds = self.expires_seconds
        expires = None if seconds is None else clock.wall() + timedelta(seconds=seconds)
        return PluginCredential(f"t{number}", None, expires)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


async def token(credentials: ExecCredentials, clock: SimulatedClock) -> str | None:
    return (await clock.run_until_done(credentials.current(clock))).token


async def test_a_credential_is_kept(clock: SimulatedClock) -> None:
    """A credential without expiry is used until the server refuses it."""
    runs = Runs()
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    assert await token(credentials, clock) == "t1"
    await clock.advance(86_400)
    assert await token(credentials, clock) == "t1"
    credentials.refused(await credentials.current(clock), clock)
    assert await token(credentials, clock) == "t2"


async def test_a_credential_expires(clock: SimulatedClock) -> None:
    """The plugin runs again after the expiry, and not before it."""
    runs = Runs(expires_seconds=60)
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    assert await token(credentials, clock) == "t1"
    await clock.advance(60)
    assert await token(credentials, clock) == "t1"
    await clock.advance(0.1)
    assert await token(credentials, clock) == "t2"


async def test_a_credential_that_has_always_expired(clock: SimulatedClock) -> None:
    """A plugin whose credentials have always expired does not run for each request."""
    runs = Runs(expires_seconds=-3600)
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    for _ in range(10):
        assert await token(credentials, clock) == "t1"
    await clock.advance(RENEW_SECONDS_MIN)
    assert await token(credentials, clock) == "t2"


async def test_a_credential_that_is_always_refused(clock: SimulatedClock) -> None:
    """A server that refuses every credential does not make the plugin run for each request."""
    runs = Runs()
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    for _ in range(10):
        credentials.refused(await clock.run_until_done(credentials.current(clock)), clock)
    assert runs.count == 2
    await clock.advance(RENEW_SECONDS_MIN)
    credentials.refused(await credentials.current(clock), clock)
    assert await token(credentials, clock) == "t3"


async def test_an_old_credential_is_refused_late(clock: SimulatedClock) -> None:
    """A 401 for a credential that was renewed meanwhile does not renew it again."""
    runs = Runs()
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    old = await clock.run_until_done(credentials.current(clock))
    credentials.refused(old, clock)
    assert await token(credentials, clock) == "t2"
    await clock.advance(RENEW_SECONDS_MIN)
    credentials.refused(old, clock)
    assert await token(credentials, clock) == "t2"


async def test_one_run_at_a_time(clock: SimulatedClock) -> None:
    """Concurrent requests share one run, also of connections of other configurations that are
    derived from the same user."""
    runs = Runs()
    config = ClientConfig(server="https://h", plugin=ExecCredentials(PLUGIN, run=runs.run))
    users = [ClientCredentials(config, clock) for _ in range(20)]
    await clock.run_until_done(asyncio.gather(*(each.prepare() for each in users)))
    assert runs.count == 1
    assert all(each.headers() == [("Authorization", "Bearer t1")] for each in users)


async def test_a_failure_is_shared(clock: SimulatedClock) -> None:
    """Requests that wait for a run that fails get its error; the next request runs it again."""
    runs = Runs()
    runs.failure = CredentialsFailed("https://h", "it failed", advice="Do this")
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    calls = (credentials.current(clock) for _ in range(20))
    found = await clock.run_until_done(asyncio.gather(*calls, return_exceptions=True))
    assert {str(each) for each in found} == {"https://h: it failed. Do this"}
    assert runs.count == 1
    runs.failure = None
    assert await token(credentials, clock) == "t2"


async def test_a_cancelled_run_is_taken_over(clock: SimulatedClock) -> None:
    """When the request that runs the plugin is cancelled, one of the others runs it."""
    runs = Runs()
    credentials = ExecCredentials(PLUGIN, run=runs.run)
    first = asyncio.ensure_future(credentials.current(clock))
    await clock.settle()
    others = [asyncio.ensure_future(credentials.current(clock)) for _ in range(3)]
    await clock.settle()
    first.cancel()
    found = await clock.run_until_done(asyncio.gather(*others))
    assert [each.token for each in found] == ["t2"] * 3
    assert runs.count == 2
