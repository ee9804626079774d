"""Conversion of custom resources by a webhook, with a cache of the results.

A webhook call takes time, and most code that reads objects is synchronous. A revision identifies
one state of one object, so results are cached for some seconds by revision. Asynchronous callers
convert many objects at once (`in_version`). Synchronous callers use the cache (`seen`), which
raises `ConversionNeeded` on a miss; they are called again after it was settled.

    StatusError
    └── ConversionError         500     the webhook could not be called or gave no response
        └── ConversionRefused   500     the response does not contain the converted objects

Not here: the webhook call itself (`restow.apiserver.webhooks`), and conversions in this process
(`restow.apimachinery.conversion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from restow.aio import Clock
from restow.apimachinery.status_error import StatusError
from restow.registry.errors import DoAgain
from restow.registry.resource import Object, RemoteConversion, Resource
from restow.registry.stored_bytes import encode, head_of, splice
from restow.registry.watch_cache import Entry

OBJECTS_AT_ONCE: Final = 500
"""Usual number of objects on a page of a list."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
KEPT_SECONDS: Final = 10.0
"""How long a converted object is cached: long enough for a list of many objects, which is sent only
after all of them are converted."""
ENTRY_BYTES: Final = 300
"""Memory of a cached object besides its body."""


class ConversionError(StatusError):
    """A webhook failed to convert objects. The message is the one of kube-apiserver."""


class ConversionRefused(ConversionError):
    """The response does not contain the converted objects; fewer objects per call may help."""


class ConversionNeeded(DoAgain):
    """Objects have not been converted to a version yet, and the caller is synchronous."""

    def __init__(
        self,
        conversions: Conversions,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
    ) -> None:
        super().__init__(f"{len(entries)} objects are not converted to {api_version} yet")
        self._conversions = conversions
        self._resource = resource
        self._entries = entries
        self._api_version = api_version

    async def settle(self) -> None:
        """Call the webhook. Raises a StatusError."""
        await self._conversions.in_version(self._resource, self._entries, self._api_version)


class Conversions:
    """Cache of objects that webhooks have converted, for all resources of a server.

    The cache is only for repeated reads. A webhook may change its behavior at any time, so objects
    that will be written are always converted again.
    """

    def __init__(self, clock: Clock, *, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[tuple[int, int, str], tuple[Resource, Entry, float]] = {}
        """By identity of the resource, revision and version: resource, entry and expiry time, the
        least recently used first.

        The key has the identity of the resource, since another resource of the same name may be
        converted differently. The value has the resource itself, so that its identity is not
        reused.
        """

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    def known(self, resource: Resource, entry: Entry, api_version: str) -> Entry | None:
        """Return an object in a version if no webhook call is needed, otherwise None."""
        if entry[1] == api_version or resource.remote is None:
            return entry
        key = (id(resource), entry[0], api_version)
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._kept[key] = found
        if self._clock.monotonic() > found[2]:
            self._drop(key)
            return None
        return found[1]

    def seen(self, resource: Resource, entry: Entry, api_version: str) -> Entry:
        """Return an object in a version. Raises `ConversionNeeded`."""
        found = self.known(resource, entry, api_version)
        if found is None:
            raise ConversionNeeded(self, resource, (entry,), api_version)
        return found

    async def in_version(
        self,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
        *,
        is_for_writing: bool = False,
    ) -> list[Entry]:
        """Return objects in a version, in the same order. Raises a StatusError.

        Objects of resources without a webhook are returned unchanged: the reader converts them.
        """
        found: list[Entry | None] = [
            None
            if is_for_writing and entry[1] != api_version
            else self.known(resource, entry, api_version)
            for entry in entries
        ]
        missing = [index for index, each in enumerate(found) if each is None]
        for first in range(0, len(missing), OBJECTS_AT_ONCE):
            some = missing[first : first + OBJECTS_AT_ONCE]
            sent = [entries[index] for index in some]
            for index, entry in zip(some, await _ask(resource, sent, api_version), strict=True):
                found[index] = entry
                self._keep(resource, entry)
        return [entry for entry in found if entry is not None]

    def forget(self, resource: Resource) -> None:
        """Remove the cached objects of a resource."""
        mine = id(resource)
        for key in [key for key in self._kept if key[0] == mine]:
            self._drop(key)

    def _keep(self, resource: Resource, entry: Entry) -> None:
        key = (id(resource), entry[0], entry[1])
        if key in self._kept:  # converted by a concurrent call, too
            self._drop(key)
        self._kept[key] = (resource, entry, self._clock.monotonic() + KEPT_SECONDS)
        self._bytes += len(entry[2]) + ENTRY_BYTES
        while self._bytes > self._bytes_max and self._kept:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[int, int, str]) -> None:
        _, entry, _ = self._kept.pop(key)
        self._bytes -= len(entry[2]) + ENTRY_BYTES


async def _ask(resource: Resource, entries: list[Entry], api_version: str) -> list[Entry]:
    objects = [orjson.loads(entry[2]) for entry in entries]
    converted = await convert(resource, objects, api_version)
    kind = resource.kind.kind
    head = head_of(kind, api_version)
    return [
        (entry[0], api_version, splice(head, encode(obj, api_version, kind), entry[0]))
        for entry, obj in zip(entries, converted, strict=True)
    ]


async def convert(resource: Resource, objects: Sequence[Object], api_version: str) -> list[Object]:
    """Convert objects with the webhook of the resource and fill in the defaults of the version.

    The objects must be in another version, and have kind and apiVersion. Raises a StatusError.
    """
    converted = await remote_of(resource).convert(objects, api_version)
    default = resource.shape.default
    return [default(api_version, obj) for obj in converted]


def remote_of(resource: Resource) -> RemoteConversion:
    """Return the webhook client of a resource that has one."""
    assert resource.remote is not None, resource.kind.group_resource
    return resource.remote
