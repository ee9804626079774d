"""Caches the documents of all aggregated APIs, so that clients get them from memory.

A backend is queried when an API is added, changed or becomes available again, once a minute, and
with exponential backoff after failures. Discovery and OpenAPI have separate workers, and each query
has a timeout: a slow, stopped or broken backend delays neither others nor clients.

Not here: the queries to one backend (`documents_backend`), and merging the documents into those of
this server (`restow.endpoints.discovery`, `restow.endpoints.openapi_paths`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from restow.aggregator.documents_backend import BackendDocuments, BackendOrigin
from restow.aggregator.documents_fetch import FetchFailed
from restow.aggregator.documents_index import RemoteVersion
from restow.aggregator.interface import Backends, Directory, RemoteApi
from restow.aio import Backoff, QueueFull, Runtime, WorkQueue
from restow.aio.events import EventChannel

REFRESH_SECONDS: Final = 60.0
BACKENDS_MAX: Final = 1_000
RETRY: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=REFRESH_SECONDS, jitter=0.1)

logger = logging.getLogger(__name__)

Part = Literal["discovery", "openapi"]
# Number of backends queried concurrently.
_WORKERS: Final[dict[Part, int]] = {"discovery": 8, "openapi": 4}


@dataclass(slots=True)
class _Known:
    """A backend, and the result of its last round of queries, by part."""

    documents: BackendDocuments
    asked: set[Part]
    problems: dict[Part, str]


class RemoteDocuments:
    """Implements `Remotes`. Run it in a task; it subscribes to the directory itself."""

    def __init__(self, directory: Directory, backends: Backends, runtime: Runtime) -> None:
        self._directory = directory
        self._backends = backends
        self._runtime = runtime
        self._reading = asyncio.Lock()
        self.discovery_changed: EventChannel[[str]] = EventChannel()
        self.openapi_changed: EventChannel[[]] = EventChannel()
        self._known: dict[BackendOrigin, _Known] = {}
        self._versions: dict[tuple[str, str], RemoteVersion] = {}
        self._unavailable: dict[str, str | None] = {}
        """By APIService name."""
        self._queues: dict[Part, WorkQueue[BackendOrigin]] = {
            part: WorkQueue(
                f"{part} of backends",
                clock=runtime.clock,
                randomness=runtime.randomness,
                retry_backoff=RETRY,
                keys_max=BACKENDS_MAX,
            )
            for part in _WORKERS
        }
        directory.changed.subscribe(self._directory_changed)
        self._directory_changed()

    def versions(self) -> Iterable[RemoteVersion]:
        return self._versions.values()

    def version(self, group: str, version: str) -> RemoteVersion | None:
        return self._versions.get((group, version))

    def is_whole(self) -> bool:
        """Whether each backend was queried for its resources at least once, with any result."""
        return all("discovery" in known.asked for known in self._known.values())

    def problems(self) -> dict[str, str]:
        """The reasons why documents of an API are missing or stale, by APIService name."""
        found: dict[str, str] = {}
        for known in self._known.values():
            for problem in known.problems.values():
                found |= {api.name: problem for api in known.documents.apis}
        return found

    async def run(self) -> None:
        """Query backends, forever."""
        async with asyncio.TaskGroup() as group:
            for part, workers in _WORKERS.items():
                for number in range(workers):
                    group.create_task(self._work(part), name=f"{part} of backends {number}")

    async def _work(self, part: Part) -> None:
        queue = self._queues[part]
        while True:
            origin = await queue.get()
            try:
                await self._fetch_round(part, origin)
            finally:
                queue.done(origin)

    async def _fetch_round(self, part: Part, origin: BackendOrigin) -> None:
        """Run one round of queries to one backend."""
        queue, known = self._queues[part], self._known.get(origin)
        if known is None:  # no API uses it any more
            queue.forget(origin)
            return
        try:
            await self._query(part, known.documents)
        except FetchFailed as error:
            self._failed(part, origin, known, str(error))
        except Exception as error:  # task boundary: one backend must not end the loop
            logger.exception("cannot read %s of the aggregated server %s", part, origin)
            self._failed(part, origin, known, f"{type(error).__name__}: {error}")
        else:
            if known.problems.pop(part, None) is not None:
                logger.info("%s of the aggregated server %s is readable again", part, origin)
            queue.forget(origin)
            queue.add_after(origin, REFRESH_SECONDS)
        known.asked.add(part)
        if self._known.get(origin) is known:
            self._refresh()

    async def _query(self, part: Part, documents: BackendDocuments) -> None:
        reasons = {api: self._directory.unavailable(api) for api in documents.apis}
        apis = [api for api, reason in reasons.items() if reason is None]
        if not apis:
            raise FetchFailed(next(iter(reasons.values())) or "it has no APIs")
        if part == "discovery":
            await documents.discover(apis)
        else:
            await documents.describe(apis)

    def _failed(self, part: Part, origin: BackendOrigin, known: _Known, problem: str) -> None:
        if known.problems.get(part) != problem:
            logger.warning("%s of the aggregated server %s: %s", part, origin, problem)
        known.problems[part] = problem
        self._queues[part].retry(origin)

    def _directory_changed(self) -> None:
        """Handle added, removed and changed APIs, and changes of their availability."""
        by_origin: dict[BackendOrigin, list[RemoteApi]] = {}
        for api in self._directory.all():
            by_origin.setdefault(BackendOrigin.of(api), []).append(api)
        for origin in self._known.keys() - by_origin.keys():
            del self._known[origin]
        before, self._unavailable = self._unavailable, {}
        for origin, apis in by_origin.items():
            self._unavailable |= {api.name: self._directory.unavailable(api) for api in apis}
            # Treat it as new, so that it is queried now.
            is_back = any(
                self._unavailable[api.name] is None and before.get(api.name, "") is not None
                for api in apis
            )
            if self._has_changed(origin, apis) or is_back:
                self._want(origin)
        self._refresh()

    def _has_changed(self, origin: BackendOrigin, apis: list[RemoteApi]) -> bool:
        """Record the APIs that a backend serves; returns whether they have changed."""
        known = self._known.get(origin)
        if known is None:
            documents = BackendDocuments(
                self._backends, self._runtime.clock, reading=self._reading, apis=apis
            )
            self._known[origin] = _Known(documents, set(), {})
            return True
        if {api.group_version for api in known.documents.apis} == {
            api.group_version for api in apis
        }:
            known.documents.renew(apis)
            return False
        known.documents.replace(apis)
        return True

    def _want(self, origin: BackendOrigin) -> None:
        for queue in self._queues.values():
            queue.forget(origin)  # earlier failures say nothing about the current state
            try:
                queue.add(origin)
            except QueueFull:
                logger.warning("too many aggregated servers: %s is not queried", origin)

    def _refresh(self) -> None:
        """Update the merged view, and emit its changes."""
        before, now = self._versions, self._current()
        self._versions = now
        keys = list(dict.fromkeys([*before, *now]))
        shown = [key[0] for key in keys if _shown(before.get(key)) != _shown(now.get(key))]
        if list(before) != list(now):  # the order may be visible in documents
            shown += [key[0] for key in keys]
        for group in dict.fromkeys(shown):
            self.discovery_changed.emit(group)
        if [_described(before.get(key)) for key in keys] != [
            _described(now.get(key)) for key in keys
        ]:
            self.openapi_changed.emit()

    def _current(self) -> dict[tuple[str, str], RemoteVersion]:
        found: dict[tuple[str, str], RemoteVersion] = {}
        for api in self._directory.all():
            known = self._known.get(BackendOrigin.of(api))
            if known is None:
                continue
            documents, name = known.documents, api.group_version
            found[api.group, api.version] = RemoteVersion(
                api=api,
                is_fresh=(name in documents.fresh and self._unavailable.get(api.name) is None),
                resources=documents.resources.get(name, b""),
                v3=documents.v3.get(name),
                v2=documents.v2.get(name),
            )
        return found


def _shown(version: RemoteVersion | None) -> RemoteVersion | None:
    """The part that discovery shows."""
    return None if version is None else replace(version, v3=None, v2=None)


def _described(version: RemoteVersion | None) -> tuple[object, ...] | None:
    """The part from which OpenAPI documents are built."""
    if version is None or (version.v3 is None and version.v2 is None):
        return None
    v3, v2 = version.v3, version.v2
    return (v3 and v3.etag, v2 and v2.digest)
