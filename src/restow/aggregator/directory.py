"""The APIs that other servers serve: the APIServices with a Service, from the watch cache.

All servers follow the APIServices in their watch cache. A group version that this server hosts
itself is never aggregated, whatever an APIService says: own groups cannot be redirected to another
server. `directory_availability` records here whether an API is available.

Not here: calling the APIs, and their documents.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from restow.aggregator.interface import RemoteApi, ServiceRef
from restow.aio.events import EventChannel
from restow.apimachinery.names import version_priority
from restow.controllers.api_service_objects import (
    GROUP,
    HTTPS_PORT,
    KIND,
    ApiService,
    read_api_service,
)
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import WatchCache, WatchCacheEvent

APIS_MAX: Final = 1_000
"""Limit of aggregated APIs; further ones are not served, and logged."""

logger = logging.getLogger(__name__)


class ApiDirectory:
    """The known APIs. Implements `Directory`."""

    def __init__(self, catalog: Catalog, store: ResourceStore) -> None:
        self.changed: EventChannel[[]] = EventChannel()
        self.api_changed: EventChannel[[str]] = EventChannel()
        """Called with the name of each API that was added, removed or changed."""
        self._catalog = catalog
        self._store = store
        self.resource = catalog.of_kind(GROUP, KIND)
        """The resource of the APIServices themselves."""
        self.services = catalog.of_kind("", "Service")
        self._cache: WatchCache | None = None
        self._cursor = 0
        self._objects: dict[str, ApiService] = {}
        """The APIServices with a Service, by name."""
        self._apis: dict[str, RemoteApi] = {}
        self._by_version: dict[tuple[str, str], RemoteApi] = {}
        self._problems: dict[str, str] = {}
        self._ordered: tuple[int, tuple[RemoteApi, ...]] | None = None

    async def start(self) -> None:
        """Read all APIServices, and follow their changes. Raises when they cannot be read."""
        if self.resource is None:
            return
        self._begin(await self._store.loaded(self.resource))
        self._catalog.changed.subscribe(self._hosting_changed)

    async def refresh(self) -> None:
        """Follow the current cache, if the previous one was discarded."""
        if self.resource is not None and self._cache is not None and self._cache.is_closed:
            cache = await self._store.loaded(self.resource)
            if self._cache is not None:
                self._begin(cache)

    def close(self) -> None:
        """Stop following; the known APIs stay."""
        if self._cache is not None:
            self._cache.unlisten(self._follow)
            self._catalog.changed.unsubscribe(self._hosting_changed)
            self._cache = None

    # Queries.

    def find(self, group: str, version: str) -> RemoteApi | None:
        """Return the remote API; None if the group version is served here or does not exist."""
        found = self._by_version.get((group, version))
        return None if found is None or self._hosts(found) else found

    def all(self) -> Sequence[RemoteApi]:
        """All remote APIs, in order of priority."""
        if self._ordered is None or self._ordered[0] != self._catalog.changes:
            apis = [api for api in self._apis.values() if not self._hosts(api)]
            self._ordered = (self._catalog.changes, tuple(_in_order(apis)))
        return self._ordered[1]

    def unavailable(self, api: RemoteApi) -> str | None:
        """The reason why an API is currently unavailable; None if no problem is known."""
        known = self._apis.get(api.name)
        if known is None or known.uid != api.uid:
            return f"APIService {api.name} was deleted"
        return self._problems.get(api.name)

    def named(self, name: str) -> RemoteApi | None:
        """Return a remote API by APIService name, even if this server hosts its group version."""
        return self._apis.get(name)

    def names(self) -> list[str]:
        return list(self._apis)

    def object_of(self, name: str) -> ApiService | None:
        """The APIService of a remote API."""
        return self._objects.get(name)

    def note(self, api: RemoteApi, problem: str | None) -> None:
        """Record whether an API is available."""
        if self._apis.get(api.name) != api or self._problems.get(api.name) == problem:
            return
        was_good = api.name not in self._problems
        if problem is None:
            del self._problems[api.name]
        else:
            self._problems[api.name] = problem
        if was_good != (problem is None):
            self._notify()

    def _hosts(self, api: RemoteApi) -> bool:
        return api.version in self._catalog.groups.get(api.group, ())

    # Following changes.

    def _begin(self, cache: WatchCache) -> None:
        self._cache = cache
        cache.listen(self._follow)
        self._read_all(cache)

    def _follow(self) -> None:
        cache = self._cache
        if cache is None:
            return
        changes = cache.changes_from(self._cursor)
        if changes is None:
            self._read_all(cache)
        elif changes:
            self._cursor = cache.cursor_end
            self._end_changes([name for change in changes for name in self._apply(change)])

    def _read_all(self, cache: WatchCache) -> None:
        self._cursor = cache.cursor_end
        selection = cache.select()
        changed: list[str] = []
        for name in self._apis.keys() - set(selection.keys) - cache.damaged.keys():
            changed += self._set(name, None)
        for name, entry in zip(selection.keys, selection.entries, strict=True):
            changed += self._set(name, read_api_service(entry[2]))
        self._end_changes(changed)

    def _apply(self, change: WatchCacheEvent) -> list[str]:
        if change.damage is not None:
            return []  # an update without a relevant change
        found = None if change.now is None else read_api_service(change.now[2])
        return self._set(change.key, found)

    def _set(self, name: str, found: ApiService | None) -> list[str]:
        """Record the current APIService; returns its name if the API has changed."""
        if found is not None and found.is_local:
            found = None
        before = self._apis.get(name)
        api = None if found is None else _remote_api(found)
        if found is not None and before is None and len(self._apis) >= APIS_MAX:
            logger.error("APIService %s is not served: the limit is %d", name, APIS_MAX)
            return []
        if found is None or api is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = found
        if api == before:
            return []
        self._problems.pop(name, None)
        if before is not None:
            del self._apis[name]
            self._by_version.pop((before.group, before.version), None)
        if api is not None:
            self._apis[name] = self._by_version[api.group, api.version] = api
        return [name]

    def _end_changes(self, changed: list[str]) -> None:
        if not changed:
            return
        self._ordered = None
        for name in changed:
            self.api_changed.emit(name)
        self._notify()

    def _hosting_changed(self, group: str) -> None:
        if any(api.group == group for api in self._apis.values()):
            self._notify()

    def _notify(self) -> None:
        for listener in self.changed:
            try:
                listener()
            except Exception:
                # One failing listener must not affect the others or the watch.
                logger.exception("a listener of aggregated APIs failed")


def _remote_api(found: ApiService) -> RemoteApi | None:
    spec, service = found.spec, found.spec.service
    if service is None or not service.name or not service.namespace:
        return None
    return RemoteApi(
        name=found.name,
        uid=found.uid,
        group=spec.group,
        version=spec.version,
        service=ServiceRef(
            namespace=service.namespace, name=service.name, port=service.port or HTTPS_PORT
        ),
        ca_pem=_pem(spec.ca_bundle) if spec.ca_bundle else None,
        is_unverified=spec.skips_verification,
        group_priority=spec.group_priority_minimum,
        version_priority=spec.version_priority,
    )


def _pem(bundle: str) -> str:
    """Decode a CA bundle. An invalid one is kept as it is, so that no server is trusted."""
    try:
        return base64.b64decode(bundle).decode("ascii", "replace")
    except (binascii.Error, ValueError):
        return bundle


def _in_order(apis: Iterable[RemoteApi]) -> list[RemoteApi]:
    """Groups by the highest group priority of their versions, then by name."""
    apis = list(apis)
    of_group: dict[str, int] = {}
    for api in apis:
        of_group[api.group] = max(of_group.get(api.group, 0), api.group_priority)
    return sorted(
        apis,
        key=lambda api: (
            -of_group[api.group],
            api.group,
            -api.version_priority,
            version_priority(api.version),
        ),
    )
