"""Checks whether the servers of aggregated APIs are available; every server checks on its own.

Periodically, soon after a failure, and at once when an APIService or the endpoints of its Service
change, the discovery document is requested from one of the servers. The result is recorded in the
directory, for the requests of this server. The leader also writes its result to the conditions of
the APIService, for users and clients.

Checks run concurrently, each with its own timeout, so a hanging server delays no others. Not here:
requests of clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from restow.aggregator.directory import ApiDirectory
from restow.aggregator.interface import Backends, RemoteApi
from restow.aggregator.pools import BackendBusy
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint, Services, name_of
from restow.aio import Backoff, Runtime, Tasks, WorkQueue
from restow.apimachinery.status_error import StatusError
from restow.client.errors import ConnectionFailed
from restow.client.transport import ClientRequest
from restow.controllers.api_service_objects import (
    PASSED,
    ApiService,
    ApiServiceAvailability,
    write_finding,
)
from restow.registry.reconcile_loops import repeat, run_worker
from restow.registry.store import ResourceStore

CHECK_SECONDS: Final = 30.0
"""Interval of the checks of an available API."""
DEADLINE_SECONDS: Final = 5.0
ATTEMPTS_MAX: Final = 2
CHECKS_AT_ONCE: Final = 16
TEND_SECONDS: Final = 1.0
"""How soon a change of endpoints or a wrong condition is detected."""
BUSY_SECONDS: Final = 2.0
BACKOFF: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=CHECK_SECONDS, jitter=0.2)
# With these rights no existing object is rejected.
_HEADERS: Final = (
    ("Accept", "application/json"),
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-Group", "system:masters"),
)

logger = logging.getLogger(__name__)

Where = Sequence[ServiceEndpoint] | str
"""The endpoints of an API, or the reason why they are unknown."""


class Availability:
    """Checks the availability of all APIs in a directory."""

    def __init__(
        self,
        directory: ApiDirectory,
        backends: Backends,
        services: Services,
        store: ResourceStore,
        runtime: Runtime,
        *,
        is_leading: Callable[[], bool],
        on_located: Callable[[Mapping[str, Sequence[ServiceEndpoint]]], None] = lambda _: None,
    ) -> None:
        """`is_leading`: whether this server writes its results to the APIServices.

        `on_located` is called every second with the known endpoints, by API name; an API without
        servers has none.
        """
        self._directory = directory
        self._backends = backends
        self._services = services
        self._store = store
        self._runtime = runtime
        self._findings: dict[str, tuple[RemoteApi, ApiServiceAvailability]] = {}
        self._failures: dict[str, int] = {}
        self._where: dict[str, Where] = {}
        self._tasks: Tasks | None = None
        self._queue: WorkQueue[str] = runtime.work_queue("availability")
        self._is_leading = is_leading
        self._on_looked = on_located

    def start(self) -> None:
        """Check all APIs, and repeat that."""
        self._tasks = tasks = self._runtime.tasks("availability", on_failure=lambda _: None)
        self._directory.api_changed.subscribe(self.recheck)
        for name in self._directory.names():
            self.recheck(name)
        for number in range(CHECKS_AT_ONCE):
            tasks.spawn_loop(f"check-{number}", run_worker(self._queue, self._check))
        tasks.spawn_loop("maintain", repeat("availability of APIs", self._maintain, self._runtime))

    async def close(self) -> None:
        if self._tasks is not None:
            self._directory.api_changed.unsubscribe(self.recheck)
            await self._tasks.close()
            self._tasks = None

    def recheck(self, name: str) -> None:
        """Check an API now, because a request to it has failed."""
        self._failures.pop(name, None)
        self._queue.add(name)

    # Checks.

    async def _check(self, name: str) -> float | None:
        api = self._directory.named(name)
        if api is None:
            for known in (self._findings, self._failures, self._where):
                known.pop(name, None)
            return None
        finding = await self._find(api)
        if self._directory.named(name) != api:
            return 0.0  # it was replaced meanwhile
        if finding is None:
            return BUSY_SECONDS
        before = self._findings.get(name)
        if before is None or before[1].status != finding.status:
            logger.info("APIService %s: %s: %s", name, finding.reason, finding.message)
        self._findings[name] = (api, finding)
        problem = None if finding.holds else f"{finding.reason}: {finding.message}"
        self._directory.note(api, problem)
        await self._write(name)
        if finding.holds:
            self._failures.pop(name, None)
            return CHECK_SECONDS
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        return BACKOFF.delay_seconds(failures, self._runtime.randomness)

    async def _find(self, api: RemoteApi) -> ApiServiceAvailability | None:
        """Return the condition of an API; None if the check was inconclusive."""
        service = api.service
        shown = f'service/{service.name} in "{service.namespace}"'
        try:
            await self._services.places(service)
        except NoServiceEndpoint as error:
            return ApiServiceAvailability("False", error.reason, error.message)
        except StatusError as error:
            why = f"{shown} cannot be checked due to: {error.message}"
            return ApiServiceAvailability("Unknown", "ServiceAccessError", why)
        problem = ""
        for _ in range(ATTEMPTS_MAX):
            try:
                problem = await self._ask(api)
            except BackendBusy:
                return None  # overloaded, but available
            if not problem:
                return PASSED
        if not await self._has_service(api):
            return ApiServiceAvailability("False", "ServiceNotFound", f"{shown} is not present")
        return ApiServiceAvailability("False", "FailedDiscoveryCheck", problem)

    async def _ask(self, api: RemoteApi) -> str:
        """Request the discovery document from one server of an API; returns the problem, if any."""
        path = f"/apis/{api.group}/{api.version}" if api.group else f"/api/{api.version}"
        url = f"https://{name_of(api.service)}:{api.service.port}{path}"
        request = ClientRequest(method="GET", target=path, headers=_HEADERS)
        try:
            async with (
                self._runtime.clock.timeout(DEADLINE_SECONDS),
                self._backends.send(api, request) as response,
            ):
                status = response.status
        except TimeoutError:
            return f"timed out waiting for {url}"
        except BackendBusy:
            raise
        except ConnectionFailed as error:
            return f"failing or missing response from {url}: {error.what}"
        except ValueError as error:
            return f"failing or missing response from {url}: {error}"
        if not 200 <= status < 300:
            return f"failing or missing response from {url}: bad status from {url}: {status}"
        return ""

    async def _has_service(self, api: RemoteApi) -> bool:
        """Whether the Service object exists; without one the server was reached by DNS name."""
        resource = self._directory.services
        if resource is None:
            return True
        try:
            cache = await self._store.loaded(resource)
        except StatusError:
            return True  # unknown, so do not report it as missing
        return cache.get(resource.path_of(api.service.namespace, api.service.name)) is not None

    # Maintenance.

    async def _maintain(self) -> float:
        await self._directory.refresh()
        names = self._directory.names()
        for name in names:
            await self._update_endpoints(name)
        known = {name: self._where[name] for name in names if name in self._where}
        self._on_looked({name: () if isinstance(at, str) else at for name, at in known.items()})
        for name in names:
            await self._write(name)
        return TEND_SECONDS

    async def _update_endpoints(self, name: str) -> None:
        api = self._directory.named(name)
        if api is None:
            return
        try:
            where: Where = await self._services.places(api.service)
        except NoServiceEndpoint as error:
            where = str(error)
        except StatusError:
            return  # keep the last known endpoints
        before = self._where.get(name)
        if where != before:
            self._where[name] = where
            if before is not None:
                self.recheck(name)

    async def _write(self, name: str) -> None:
        """Write the result to the APIService if this server is the leader."""
        resource, found = self._directory.resource, self._findings.get(name)
        obj: ApiService | None = self._directory.object_of(name)
        if resource is None or found is None or obj is None or not self._is_leading():
            return
        api, finding = found
        if self._directory.named(name) != api:
            return
        await write_finding(self._store, resource, obj, finding, self._runtime.clock)
