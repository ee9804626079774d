"""Whether the servers of other APIs can be asked: every server finds out for itself.

Now and then, soon after a failure, and at once when an APIService or the endpoints of its service
have changed, one of the servers behind it is asked for the document that each must have. What comes
of it is noted in the directory, for the requests of this server. What the server that has the turn
has found is written to the APIService, for people and clients to see.

Many are asked at a time, each within its own deadline: one that does not answer holds up nobody.
Not here: the requests of clients.
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
from restow.registry.reconcile_loops import repeat, work_off
from restow.registry.store import ResourceStore

CHECK_SECONDS: Final = 30.0
"""Between two looks at an API that can be asked."""
DEADLINE_SECONDS: Final = 5.0
ATTEMPTS_MAX: Final = 2
CHECKS_AT_ONCE: Final = 16
TEND_SECONDS: Final = 1.0
"""How soon a change of endpoints is noticed, and a condition that is not as it should be."""
BUSY_SECONDS: Final = 2.0
BACKOFF: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=CHECK_SECONDS, jitter=0.2)
# With these rights nothing is refused that is there.
_HEADERS: Final = (
    ("Accept", "application/json"),
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-Group", "system:masters"),
)

logger = logging.getLogger(__name__)

Where = Sequence[ServiceEndpoint] | str
"""Where the servers of an API are, or why that is not known."""


class Availability:
    """Finds out about all APIs in a directory."""

    def __init__(
        self,
        directory: ApiDirectory,
        backends: Backends,
        services: Services,
        store: ResourceStore,
        runtime: Runtime,
        *,
        is_leading: Callable[[], bool],
        on_looked: Callable[[Mapping[str, Sequence[ServiceEndpoint]]], None] = lambda _: None,
    ) -> None:
        """`is_leading`: whether this server writes what it finds to the APIServices.

        `on_looked` is told every second where the servers are, by the names of the APIs for which
        it is known; an API without servers has no places.
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
        self._on_looked = on_looked

    def start(self) -> None:
        """Look at all APIs, and go on with it."""
        self._tasks = tasks = self._runtime.tasks("availability", on_failure=lambda _: None)
        self._directory.changed.append(self.recheck)
        for name in self._directory.names():
            self.recheck(name)
        for number in range(CHECKS_AT_ONCE):
            tasks.spawn_loop(f"check-{number}", work_off(self._queue, self._check))
        tasks.spawn_loop("tend", repeat("availability of APIs", self._tend, self._runtime))

    async def close(self) -> None:
        if self._tasks is not None:
            self._directory.changed.remove(self.recheck)
            await self._tasks.close()
            self._tasks = None

    def recheck(self, name: str) -> None:
        """Something has happened to an API: look at it at once."""
        self._failures.pop(name, None)
        self._queue.add(name)

    # Finding out.

    async def _check(self, name: str) -> float | None:
        api = self._directory.named(name)
        if api is None:
            for known in (self._findings, self._failures, self._where):
                known.pop(name, None)
            return None
        finding = await self._find(api)
        if self._directory.named(name) != api:
            return 0.0  # it is another by now
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
        """What is the matter with an API; None when nothing was found out."""
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
                return None  # it has more to do than it should, but it is there
            if not problem:
                return PASSED
        if not await self._has_service(api):
            return ApiServiceAvailability("False", "ServiceNotFound", f"{shown} is not present")
        return ApiServiceAvailability("False", "FailedDiscoveryCheck", problem)

    async def _ask(self, api: RemoteApi) -> str:
        """Ask one server of an API for what it must have; what is wrong, if anything is."""
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
        """Whether there is a Service object at all; without one it was reached for by name."""
        resource = self._directory.services
        if resource is None:
            return True
        try:
            cache = await self._store.loaded(resource)
        except StatusError:
            return True  # not known to be absent
        return cache.get(resource.path_of(api.service.namespace, api.service.name)) is not None

    # Keeping it so.

    async def _tend(self) -> float:
        await self._directory.refresh()
        names = self._directory.names()
        for name in names:
            await self._look_for_endpoints(name)
        known = {name: self._where[name] for name in names if name in self._where}
        self._on_looked({name: () if isinstance(at, str) else at for name, at in known.items()})
        for name in names:
            await self._write(name)
        return TEND_SECONDS

    async def _look_for_endpoints(self, name: str) -> None:
        api = self._directory.named(name)
        if api is None:
            return
        try:
            where: Where = await self._services.places(api.service)
        except NoServiceEndpoint as error:
            where = str(error)
        except StatusError:
            return  # what was known before may still be so
        before = self._where.get(name)
        if where != before:
            self._where[name] = where
            if before is not None:
                self.recheck(name)

    async def _write(self, name: str) -> None:
        """Let the APIService say what was found, if that is for this server to do."""
        resource, found = self._directory.resource, self._findings.get(name)
        obj: ApiService | None = self._directory.object_of(name)
        if resource is None or found is None or obj is None or not self._is_leading():
            return
        api, finding = found
        if self._directory.named(name) != api:
            return
        await write_finding(self._store, resource, obj, finding, self._runtime.clock)
