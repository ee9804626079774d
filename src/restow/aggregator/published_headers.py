"""Which headers backends are told to believe: those that a ConfigMap of the cluster publishes.

Every server adds its own names to `extension-apiserver-authentication`, and what is there stays. So
somebody may have put other headers there, which backends believe when they come from a main server.
Hence none of them is taken over from a client.

Not here: who keeps the ConfigMap (`restow.controllers.proxy_trust`), and what is passed
on (`forwarded_headers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import orjson

from restow.aggregator.forwarded_headers import NOTHING_ELSE, Believed
from restow.controllers.proxy_trust import NAME, NAMESPACE
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore

_NAMES: Final = (
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
)
_PREFIXES: Final = "requestheader-extra-headers-prefix"


class BelievedHeaders(Protocol):
    """Who knows which headers backends believe."""

    async def read(self) -> Believed:
        """Those of now. Raises a StatusError when that cannot be known."""


class PublishedHeaders:
    """Reads the ConfigMap from the cache of this server. Satisfies `BelievedHeaders`."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._resource = catalog.find("", "v1", "configmaps")
        self._entry: object = None
        self._believed = NOTHING_ELSE

    async def read(self) -> Believed:
        """Those of now. Raises a StatusError when the store cannot be read."""
        resource = self._resource
        if resource is None:
            return NOTHING_ELSE
        cache = await self._store.loaded(resource)
        entry = cache.get(resource.path_of(NAMESPACE, NAME))
        if entry is not self._entry:
            self._entry = entry
            found = {} if entry is None else self._store.object_of(resource, entry, "v1")
            self._believed = believed_of(found.get("data"))
        return self._believed


def believed_of(data: Any) -> Believed:
    """What the data of the ConfigMap says; what cannot be read there, backends do not believe."""
    if not isinstance(data, dict):
        return NOTHING_ELSE
    return Believed(
        names=frozenset(each for field in _NAMES for each in _plain(data.get(field))),
        prefixes=tuple(_plain(data.get(_PREFIXES))),
    )


def _plain(text: Any) -> Iterator[str]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else []
    except orjson.JSONDecodeError:
        return
    for each in found if isinstance(found, list) else ():
        # An empty prefix would be that of all headers: no server takes one.
        if isinstance(each, str) and each.strip():
            yield each.strip().lower().replace("_", "-")
