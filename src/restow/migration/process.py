"""A controller process: trigger, migrator, or both, from the checks at start to the shutdown.

Start, in order: connect to the server -> check its APIs -> check permissions -> listen for probes
-> acquire the leases -> ready. Stop: not ready -> stop the controllers -> release the leases
-> write the last events -> close, all within two seconds.

Leases, events and the trigger have their own connections: a migration with many requests in flight
must not delay the renewal of a lease.

Not here: cluster configuration, signals, and output (`restow.cli.controllers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from restow.aio import Runtime, Tasks
from restow.apimachinery.status_error import StatusError
from restow.apis.resources import STATES
from restow.client import ApiClient, ConnectionFailed, LeaderTiming, key_of, lease_elector
from restow.migration.events import EventRecorder
from restow.migration.health import ControllerHealth
from restow.migration.installation import missing_kinds
from restow.migration.led_controller import MIGRATOR, TRIGGER, LedController, Part
from restow.migration.metrics import CONTENT_TYPE, ControllerMetrics
from restow.migration.migration_objects import MIGRATION_APIS
from restow.migration.names import NAMESPACE_DEFAULT
from restow.migration.probes import ProbeAnswer, ProbeServer
from restow.migration.rights import missing_rights, rights_of
from restow.migration.trigger.observations import state_seen

PORT_DEFAULT: Final = 2112
STOP_SECONDS_MAX: Final = 2.0
PARTS_SECONDS_MAX: Final = 1.2
"""The share of the controllers: to stop, and to release their leases."""
EVENTS_SECONDS_MAX: Final = 0.3
PROBE_SECONDS: Final = 10.0
"""Interval of the requests that check the connection to the server."""
CONNECTION: Final = "connection"
"""The health part for the connection to the server."""

logger = logging.getLogger(__name__)


class NotPossible(Exception):
    """The controllers cannot run on this server. The message contains the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Options of the process."""

    namespace: str = NAMESPACE_DEFAULT
    """The namespace of the leases."""
    is_elected: bool = True
    """Whether leader election is used. Without it, only one such process may run."""
    identity: str = "restow"
    """Holder identity of the leases: host and process."""
    is_identity_unique: bool = False
    """Whether no other process has this identity. If not, a unique suffix is added."""
    reporter_id: str = ""
    """The id of its reports in StorageStates; empty: it writes none."""
    host: str = ""
    bind: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    """0 selects a free port."""
    timing: LeaderTiming = field(default_factory=LeaderTiming)


class ControllersProcess:
    """Runs parts. `start` returns when it is ready, `stop` when nothing runs any more."""

    def __init__(
        self,
        client: ApiClient,
        options: ProcessOptions,
        make_parts: Callable[[EventRecorder, ControllerMetrics], list[Part]],
    ) -> None:
        """The client is for leases, probes and events; the parts have their own clients."""
        self._client = client
        self._options = options
        self._runtime: Runtime = client.runtime
        clock = self._runtime.clock
        self.health = ControllerHealth(clock)
        self.metrics = ControllerMetrics(
            clock, on_success=self.health.succeed, on_trouble=self.health.have_trouble
        )
        self.recorder = EventRecorder(
            client,
            component="restow-controllers",
            host=options.host,
            on_written=self.metrics.event_written,
            on_dropped=self.metrics.event_dropped,
        )
        self.metrics.health(self.health.states)
        self._parts = [self._led(part) for part in make_parts(self.recorder, self.metrics)]
        self._undo = AsyncExitStack()
        self._is_ready = False
        self.port = 0

    @property
    def names(self) -> list[str]:
        return [each.part.name for each in self._parts]

    async def start(self) -> None:
        """Check, listen, start the parts. Raises NotPossible, OSError for the port, and API errors.

        `stop` undoes everything that was started, after an error too.
        """
        await self.check()
        probes = await ProbeServer.start(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics_page},
            runtime=self._runtime,
            bind=self._options.bind,
            port=self._options.port,
        )
        self._undo.push_async_callback(probes.close)
        self.port = probes.port
        events = self._runtime.tasks("events")
        self._undo.push_async_callback(events.close)
        events.spawn("write", self.recorder.run())
        self._undo.push_async_callback(self._last_events)
        tasks = self._runtime.tasks("controllers")
        self._undo.push_async_callback(self._end_parts, tasks)
        self.health.begin(CONNECTION, silence_seconds_max=6 * PROBE_SECONDS)
        tasks.spawn("connection", self._probe_server())
        for led in self._parts:
            tasks.spawn(led.part.name, led.run())
        self._is_ready = True

    async def stop(self) -> None:
        """Stop everything within two seconds; leases that were not released then expire."""
        self._is_ready = False
        try:
            async with self._runtime.clock.timeout(STOP_SECONDS_MAX):
                await self._undo.aclose()
        except TimeoutError:
            logger.warning("not all tasks have stopped in time")

    async def check(self) -> None:
        """Raise NotPossible unless the server has the needed APIs and this user has the rights."""
        await self._client.version()
        names = self.names
        missing = await missing_kinds(self._client)
        if MIGRATOR in names and TRIGGER not in names and await self._has_migration_api():
            missing = []  # the migrator can process the migrations that exist
        if missing:
            raise NotPossible(
                f"{self._client.server} does not have {' and '.join(missing)}: run `restow"
                " controllers --install` once, with the rights to create custom resources"
            )
        await self._check_reporter()
        served = await self._served()
        rights = rights_of(names, is_elected=self._options.is_elected)
        found = await missing_rights(
            self._client, rights, namespace=self._options.namespace, served=served
        )
        for each in found:
            if not each.is_needed:
                logger.warning("this user may not %s", each.text)
        needed = [each.text for each in found if each.is_needed]
        if needed:
            raise NotPossible(
                "this user may not:\n  " + "\n  ".join(needed) + "\ndeploy/kubernetes/rbac.yaml"
                " grants all permissions that the controllers need"
            )

    async def _check_reporter(self) -> None:
        """Check that no other process uses the reporter id: it belongs to one process."""
        wanted = self._options.reporter_id
        if not wanted:
            return
        async for state in self._client.items(STATES):
            if wanted in {each.reporter_id for each in state_seen(state).status.reports}:
                raise NotPossible(
                    f"another process reports as {wanted} in the StorageState {key_of(state).name}:"
                    " stop it, or give each process its own identity"
                )

    async def _served(self) -> frozenset[str]:
        """The served resources and subresources, named as in rights."""
        found = (await self._client.discover()).resources
        names = {(each.name, each.group) for each in found}
        names.update(
            (f"{each.name}/{part}", each.group) for each in found for part in each.subresources
        )
        return frozenset(f"{name}.{group}" if group else name for name, group in names)

    async def _has_migration_api(self) -> bool:
        groups = {group.name: group.versions for group in await self._client.groups()}
        for wanted in MIGRATION_APIS:
            if wanted.version in groups.get(wanted.group, ()):
                found = await self._client.resources(wanted.group_version)
                if any(each.name == wanted.resource for each in found):
                    return True
        return False

    def _led(self, part: Part) -> LedController:
        elector = None
        if self._options.is_elected:
            elector = lease_elector(
                self._client,
                namespace=self._options.namespace,
                name=part.lease,
                identity=self._options.identity,
                is_unique=self._options.is_identity_unique,
                timing=self._options.timing,
            )
        return LedController(
            part,
            runtime=self._runtime,
            health=self.health,
            metrics=self.metrics,
            elector=elector,
        )

    async def _probe_server(self) -> None:
        """Read `/version` periodically, so that a standby has a health status too."""
        has_trouble = False
        while True:
            try:
                await self._client.version()
            except (StatusError, ConnectionFailed) as error:
                self.health.have_trouble(CONNECTION, str(error))
                if not has_trouble:
                    logger.warning("%s", error)
                has_trouble = True
            else:
                self.health.succeed(CONNECTION)
                if has_trouble:
                    logger.info("%s responds again", self._client.server)
                has_trouble = False
            for led in self._parts:
                led.check_health()
            await self._runtime.clock.sleep(PROBE_SECONDS)

    async def _end_parts(self, tasks: Tasks) -> None:
        try:
            async with self._runtime.clock.timeout(PARTS_SECONDS_MAX):
                await tasks.close()
        except TimeoutError:
            logger.warning("the server does not respond; the leases will expire")

    async def _last_events(self) -> None:
        self.recorder.close()
        try:
            async with self._runtime.clock.timeout(EVENTS_SECONDS_MAX):
                await self.recorder.settle()
        except TimeoutError:
            logger.info("the last events could not be written in time")

    # The probe pages.

    def _healthz(self) -> ProbeAnswer:
        is_well, lines = self.health.report()
        return ProbeAnswer(
            200 if is_well else 500, lines.encode() + (b"ok\n" if is_well else b"failed\n")
        )

    def _readyz(self) -> ProbeAnswer:
        if not self._is_ready:
            return ProbeAnswer(500, b"not ready: starting or stopping\n")
        lines = [
            f"{each.part.name}: {'leads' if each.is_leading else f'waits for {each.leader}'}"
            for each in self._parts
        ]
        page = self._healthz()
        return ProbeAnswer(page.status, page.body + "\n".join(lines).encode() + b"\n")

    def _metrics_page(self) -> ProbeAnswer:
        return ProbeAnswer(200, self.metrics.document(), CONTENT_TYPE)
