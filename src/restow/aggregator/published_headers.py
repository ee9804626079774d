"""Reads which identity headers backends trust, as a ConfigMap of the cluster publishes them.

Every server adds its own names to `extension-apiserver-authentication`, and existing ones stay. So
the ConfigMap may name other headers that backends trust when a main server sends them. Therefore
none of them is forwarded from a client.

Not here: writing the ConfigMap (`restow.controllers.proxy_trust`), and forwarding headers
(`forwarded_headers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import orjson

from restow.aggregator.forwarded_headers import NOTHING_ELSE, IdentityHeaders
from restow.controllers.proxy_trust import NAME, NAMESPACE
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore

_NAMES: Final = (
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
)
_PREFIXES: Final = "requestheader-extra-headers-prefix"


class IdentityHeadersReader(Protocol):
    """Reads the identity headers that backends trust."""

    async def read(self) -> IdentityHeaders:
        """Return the current headers. Raises a StatusError when they cannot be read."""


class PublishedHeaders:
    """Reads the ConfigMap from the cache of this server. Implements `IdentityHeadersReader`."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._resource = catalog.find("", "v1", "configmaps")
        self._entry: object = None
        self._identity_headers = NOTHING_ELSE

    async def read(self) -> IdentityHeaders:
        """Return the current headers. Raises a StatusError when the store cannot be read."""
        resource = self._resource
        if resource is None:
            return NOTHING_ELSE
        cache = await self._store.loaded(resource)
        entry = cache.get(resource.path_of(NAMESPACE, NAME))
        if entry is not self._entry:
            self._entry = entry
            found = {} if entry is None else self._store.object_of(resource, entry, "v1")
            self._identity_headers = identity_headers_of(found.get("data"))
        return self._identity_headers


def identity_headers_of(data: Any) -> IdentityHeaders:
    """Parse the data of the ConfigMap; backends ignore what cannot be parsed as well."""
    if not isinstance(data, dict):
        return NOTHING_ELSE
    return IdentityHeaders(
        names=frozenset(each for field in _NAMES for each in _plain(data.get(field))),
        prefixes=tuple(_plain(data.get(_PREFIXES))),
    )


def _plain(text: Any) -> Iterator[str]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else []
    except orjson.JSONDecodeError:
        return
    for each in found if isinstance(found, list) else ():
        # An empty prefix would match all headers; servers ignore it.
        if isinstance(each, str) and each.strip():
            yield each.strip().lower().replace("_", "-")
