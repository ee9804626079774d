"""The parameters of a policy: objects of whatever kind it names, found as a binding says.

They are read from the watch caches, in the version that the policy names. What is not known here is
looked for once more in a cache that misses nothing, so that a parameter which was made just before
is found.

Not here: what the parameters mean.
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
"""Objects that one binding may bring along."""

NO_PARAMS: Final[list[Object | None]] = [None]


class Lack(DoAgain):
    """Something must be waited for before a decision can be made."""

    def __init__(self, wait: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._wait = wait

    async def settle(self) -> None:
        await self._wait()


class Params:
    """Finds parameters in what a server stores."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def resource_of(self, kind: ParamKind) -> Resource:
        """The resource of a kind. Raises a ConfigurationError."""
        resource = self._catalog.of_kind(kind.group, kind.kind)
        if resource is None or kind.version not in resource.served or not resource.kind.persisted:
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{kind}'")
        return resource

    def find(
        self, kind: ParamKind, reference: ParamRef, namespace: str, *, looked_up: set[str]
    ) -> list[Object | None]:
        """The parameters of a binding for a write in a namespace, to look at.

        `looked_up` are the roots of what has been read anew for this write. Raises a
        ConfigurationError, or `Lack`.
        """
        resource = self.resource_of(kind)
        place = _place(resource, reference, namespace)
        cache = self._store.ready(resource)
        if cache is None:
            raise Lack(lambda: self._store.loaded(resource))
        api_version = resource.api_version(kind.version)
        found: list[Object | None]
        if reference.selector is None:
            path = resource.path_of(place, reference.name)
            entry = cache.get(path)
            if entry is None and resource.root not in looked_up:
                looked_up.add(resource.root)
                raise Lack(lambda: self._store.read(resource))
            found = [] if entry is None else [self._parsed(cache, resource, entry, api_version)]
        else:
            found = self._selected(cache, resource, reference, place, api_version)
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
        place: str,
        api_version: str,
    ) -> list[Object | None]:
        key = ("params", api_version, place, str(reference.selector))
        known: list[Object | None] | None = cache.memo.get(key)
        if known is not None:
            return known
        entries = cache.select(f"{place}/" if place else "").entries
        if any(self._store.known(resource, entry, api_version) is None for entry in entries):
            raise Lack(lambda: self._store.in_version(resource, entries, api_version))
        assert reference.selector is not None
        matches = reference.selector.matches
        found: list[Object | None] = []
        for entry in entries:
            obj = self._store.object_of(resource, entry, api_version)
            if matches(labels_of(obj)):
                found.append(obj)
        if len(found) > PARAMS_MAX:
            raise ConfigurationError(f"more than {PARAMS_MAX} params found for policy binding")
        # What somebody else converts may be another thing the next time.
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


def _place(resource: Resource, reference: ParamRef, namespace: str) -> str:
    """The namespace to look in. Raises a ConfigurationError."""
    if not resource.kind.namespaced:
        if reference.namespace:
            raise ConfigurationError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    place = reference.namespace or namespace
    if not place:
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return place
