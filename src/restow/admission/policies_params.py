"""Policy parameters: finds the objects that a binding selects, of the kind that the policy names.

They are read from the watch caches in the version that the policy names. If a named object is not
in the cache, a consistent read follows, so that a parameter created just before is found.

Not here: the use of the parameters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from restow.admission.matchers import labels_of
from restow.admission.policies_compiled import (
    ConfigurationError,
    ParamKind,
    ParamRef,
)
from restow.registry.catalog import Catalog
from restow.registry.errors import DoAgain
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry, WatchCache

PARAMS_MAX: Final = 1_000
"""Maximum number of objects that one binding may select."""

NO_PARAMS: Final[list[Object | None]] = [None]


class DataMissing(DoAgain):
    """Data must be loaded before the review can continue."""

    def __init__(self, wait: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._wait = wait

    async def settle(self) -> None:
        await self._wait()


class Params:
    """Finds parameter objects in the store."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def resource_of(self, kind: ParamKind) -> Resource:
        """Return the resource of a kind. Raises a ConfigurationError."""
        resource = self._catalog.of_kind(kind.group, kind.kind)
        if resource is None or kind.version not in resource.served or not resource.kind.persisted:
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{kind}'")
        return resource

    def find(
        self, kind: ParamKind, reference: ParamRef, namespace: str, *, looked_up: set[str]
    ) -> list[Object | None]:
        """Return the parameters of a binding for a write in a namespace, read-only.

        `looked_up` has the roots of the resources that were read again for this write. Raises a
        ConfigurationError or `DataMissing`.
        """
        resource = self.resource_of(kind)
        params_namespace = _params_namespace(resource, reference, namespace)
        cache = self._store.ready(resource)
        if cache is None:
            raise DataMissing(lambda: self._store.loaded(resource))
        api_version = resource.api_version(kind.version)
        found: list[Object | None]
        if reference.selector is None:
            path = resource.path_of(params_namespace, reference.name)
            entry = cache.get(path)
            if entry is None and resource.root not in looked_up:
                looked_up.add(resource.root)
                raise DataMissing(lambda: self._store.read(resource))
            found = [] if entry is None else [self._parsed(cache, resource, entry, api_version)]
        else:
            found = self._selected(cache, resource, reference, params_namespace, api_version)
        if not found and reference.is_denied_without:
            raise ConfigurationError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return found

    def _selected(
        self,
        cache: WatchCache,
        resource: Resource,
        reference: ParamRef,
        params_namespace: str,
        api_version: str,
    ) -> list[Object | None]:
        key = ("params", api_version, params_namespace, str(reference.selector))
        known: list[Object | None] | None = cache.memo.get(key)
        if known is not None:
            return known
        entries = cache.select(f"{params_namespace}/" if params_namespace else "").entries
        if any(self._store.known(resource, entry, api_version) is None for entry in entries):
            raise DataMissing(lambda: self._store.in_version(resource, entries, api_version))
        assert reference.selector is not None
        matches = reference.selector.matches
        found: list[Object | None] = []
        for entry in entries:
            obj = self._store.object_of(resource, entry, api_version)
            if matches(labels_of(obj)):
                found.append(obj)
        if len(found) > PARAMS_MAX:
            raise ConfigurationError(f"more than {PARAMS_MAX} params found for policy binding")
        # A conversion webhook may return another result the next time, so it is not cached.
        if resource.remote is None:
            cache.memo[key] = found
        return found

    def _parsed(
        self, cache: WatchCache, resource: Resource, entry: Entry, api_version: str
    ) -> Object:
        if resource.remote is not None:
            return self._store.object_of(resource, entry, api_version)
        key = ("param", api_version, entry[0])
        found: Object | None = cache.memo.get(key)
        if found is None:
            found = cache.memo[key] = self._store.object_of(resource, entry, api_version)
        return found


def _params_namespace(resource: Resource, reference: ParamRef, namespace: str) -> str:
    """Return the namespace of the parameters. Raises a ConfigurationError."""
    if not resource.kind.namespaced:
        if reference.namespace:
            raise ConfigurationError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    params_namespace = reference.namespace or namespace
    if not params_namespace:
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return params_namespace
