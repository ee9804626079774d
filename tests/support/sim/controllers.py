"""One incarnation of the controllers: trigger and migrator, each with its lease.

Not here: probes and events, which need sockets and change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from restow.client import ApiClient, InProcessTransport, LeaderTiming, lease_elector
from restow.migration.event_sinks import NO_RECORDER
from restow.migration.health import ControllerHealth
from restow.migration.led_controller import TRIGGER, LedController, Part, Runs
from restow.migration.metrics import ControllerMetrics
from restow.migration.migrator.options import EngineOptions, MigratorOptions
from restow.migration.migrator.patch_rewrite import PatchOptions
from restow.migration.parts import PART_NAMES, PartOptions, make_parts
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.values import Settings
from tests.support.sim.clock import ProcessClock, runtime_of
from tests.support.sim.heartbeats import HeartbeatCheck
from tests.support.sim.ledger import Ledger
from tests.support.sim.loop import Process, SimulatedLoop
from tests.support.sim.network import Link
from tests.support.sim.routes import Route

POLL_SECONDS: Final = 15.0
QUICK: Final = Settings(
    poll_seconds=POLL_SECONDS, hold_seconds=POLL_SECONDS, retry_seconds=POLL_SECONDS
)
"""Short periods, so that much happens in a world."""
PAGE_OBJECTS: Final = 4
"""Small pages, so that much can happen between two."""


class SimControllers:
    """Trigger and migrator of one process."""

    def __init__(
        self,
        name: str,
        process: Process,
        loop: SimulatedLoop,
        link: Link,
        routes: Callable[[str], Route],
        *,
        ledger: Ledger,
        seed: str,
        fatal: Any,
        source: TriggerSource = TriggerSource.AUTO,
        skew_seconds: float = 0.0,
        parts: tuple[str, ...] = PART_NAMES,
        rules: Settings = QUICK,
    ) -> None:
        """`parts`: the controllers that this process runs; `rules`: the periods of the trigger."""
        self.name = name
        self.process = process
        self.link = link
        self.clock = ProcessClock(loop, skew_seconds=skew_seconds)
        self.runtime = runtime_of(self.clock, seed, lambda error: fatal(name, error))
        self.source = source
        self._parts = parts
        self._rules = rules
        self._ledger = ledger
        self.routes: list[Route] = []
        self._new_route = routes
        self.failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        return not self.process.is_killed

    def _route(self, address: str = "") -> Route:
        route = self._new_route(address)
        self.routes.append(route)
        return route

    def _client(self, address: str = "") -> ApiClient:
        """A client of any responding server, or of the one at an address."""
        transport = InProcessTransport(self._route(address).handle, server=self.name)
        return ApiClient(transport, runtime=self.runtime)

    def _watched(self) -> tuple[ApiClient, Callable[[Part], Part]]:
        """The client of a trigger that uses discovery, and the trigger: its writes are compared
        with its reads."""
        check = HeartbeatCheck(self._route(), self.clock, self._ledger, poll_seconds=POLL_SECONDS)

        def watched(part: Part) -> Part:
            def make(is_leader: Callable[[], bool]) -> Runs:
                check.begin()
                return part.make(is_leader)

            return replace(part, make=make) if part.name == TRIGGER else part

        transport = InProcessTransport(check.handle, server=self.name)
        return ApiClient(transport, runtime=self.runtime), watched

    async def run(self) -> None:
        """Run until the end of the process."""
        leases, metrics = self._client(), ControllerMetrics(self.clock)
        client: ApiClient = self._client()
        watched: Callable[[Part], Part] = _as_it_is
        if self.source in (TriggerSource.DISCOVERY, TriggerSource.DISCOVERY_HA):
            client, watched = self._watched()
        parts = make_parts(
            PartOptions(names=self._parts, trigger=self._trigger(), migrator=_migrator()),
            client=client,
            bulk=self._client(),
            connect_to=self._client if self.source is TriggerSource.DISCOVERY_HA else None,
            recorder=NO_RECORDER,  # type: ignore[arg-type]
            metrics=metrics,
        )
        health = ControllerHealth(self.clock)
        led = [
            LedController(
                part,
                runtime=self.runtime,
                health=health,
                metrics=metrics,
                elector=lease_elector(
                    leases,
                    namespace="kube-system",
                    name=part.lease,
                    identity=self.name,
                    timing=LeaderTiming(),
                ),
            )
            for part in map(watched, parts)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for each in led:
                    group.create_task(each.run(), name=each.part.name)
        except Exception as error:  # noqa: BLE001 - the end of a process, which the world judges
            self.failure = error
            self.end()

    def _trigger(self) -> TriggerOptions:
        return TriggerOptions(source=self.source, rules=self._rules)

    def end(self) -> None:
        self.process.kill()
        for route in self.routes:
            route.reset()


def _as_it_is(part: Part) -> Part:
    return part


def _migrator() -> MigratorOptions:
    return MigratorOptions(
        engine=EngineOptions(
            page_limit_first=PAGE_OBJECTS,
            page_limit_max=PAGE_OBJECTS,
            position_seconds=0.2,
            progress_seconds=0.5,
            patch=PatchOptions(page_objects=PAGE_OBJECTS, in_flight_max=4),
        ),
        unknown_resource_seconds=20.0,
        discovery_seconds=5.0,
    )
