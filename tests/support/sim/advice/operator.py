"""Requests of an operator to a simulated cluster: preflight, the check of a step, status.

They are those of the commands, sent by the production code through the in-process client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from restow.aio import InvariantViolation
from restow.apimachinery.status_error import StatusError
from restow.census import KeyValueSource
from restow.cli.preflight_key import count_under
from restow.client import ApiClient, ClientError, InProcessTransport
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import readable_ids
from restow.localcluster.step_check import Situation, check_step
from restow.migration import overview
from restow.migration.overview_values import ClusterOverview
from restow.migration.preflight import (
    PreflightReport,
    judge,
    judge_key_removal,
    read_cluster,
    read_keys,
    target_of_release,
)
from tests.support.sim.clock import ProcessClock, runtime_of
from tests.support.sim.keys import file_of, id_of
from tests.support.sim.loop import Process, SimulatedLoop
from tests.support.sim.releases import release_of
from tests.support.sim.routes import Route

ANSWER_SECONDS_MAX: Final = 60.0
T = TypeVar("T")


class Operator:
    """Sends requests; a failed one returns None."""

    def __init__(self, process: Process, loop: SimulatedLoop, seed: str) -> None:
        self._process = process
        self._runtime = runtime_of(ProcessClock(loop), seed, _fatal)

    async def preflight(
        self, route: Route, release: str, keys: Collection[str] | None
    ) -> PreflightReport | None:
        """The report of `restow preflight --to RELEASE`; `keys` are those of
        `--encryption-provider-config FILE`."""
        target = target_of_release(release_of(release))
        if keys is not None:
            configuration = read_configuration(file_of(keys))
            target = replace(target, readable_keys=partial(readable_ids, configuration))

        async def ask(client: ApiClient) -> PreflightReport:
            return judge(await read_cluster(client, target), target)

        return await self._answer(route, ask, f"preflight {release}")

    async def step(
        self, route: Route, release: str, situation: Situation
    ) -> PreflightReport | None:
        """The check before each step of `restow upgrade --to RELEASE`."""

        async def ask(client: ApiClient) -> PreflightReport:
            return await check_step(client, target=release_of(release), situation=situation)

        return await self._answer(route, ask, f"step to {release}")

    async def removal(
        self, route: Route, key: str, source: KeyValueSource
    ) -> PreflightReport | None:
        """The report of `restow preflight --drop-key KEY` with the address of the store."""
        name = id_of(key)

        async def ask(client: ApiClient) -> PreflightReport:
            view = await read_keys(client)
            store = await count_under(source, view, name, address="")
            return judge_key_removal(name, await read_keys(client), store)

        return await self._answer(route, ask, f"preflight without {key}")

    async def status(self, route: Route) -> ClusterOverview | None:
        """The overview that `restow status` shows."""
        return await self._answer(route, overview.look, "status")

    async def _answer(
        self, route: Route, ask: Callable[[ApiClient], Awaitable[T]], name: str
    ) -> T | None:
        async def answer() -> T | None:
            client = ApiClient(InProcessTransport(route.handle, server=name), runtime=self._runtime)
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    return await ask(client)
            except (ClientError, StatusError, OSError, EOFError, TimeoutError):
                return None

        return await self._process.task(answer(), name)


def _fatal(error: InvariantViolation) -> None:
    raise AssertionError("a client has broken an invariant") from error
