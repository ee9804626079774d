"""Objects that somebody else converts: those of custom resources with a conversion webhook.

To ask takes time, and most code that reads objects cannot wait. A revision names one state of one
object, so what has come back is kept for a while by it. Who can wait asks for many at once
(`in_version`); who cannot takes what is known (`seen`), or raises `ConversionNeeded`, and is called
again when that is settled.

    StatusError
    └── ConversionError         500     nobody could be asked, or nothing came back
        └── ConversionRefused   500     what came back are not the objects

Not here: how somebody is asked (`restow.apiserver.webhooks`), and conversions that are done here
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
"""As many as a page of a list usually has."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
KEPT_SECONDS: Final = 10.0
"""Long enough for a list of many objects, which is not answered before all are converted."""
ENTRY_BYTES: Final = 300
"""What an object costs besides its body."""


class ConversionError(StatusError):
    """Somebody else should have converted objects and has not. Its text is the reference's."""


class ConversionRefused(ConversionError):
    """An answer has come, and it does not hold the objects: to ask for fewer may help."""


class ConversionNeeded(DoAgain):
    """Some objects are not known in a version yet, and whoever needs them cannot wait."""

    def __init__(
        self,
        conversions: Conversions,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
    ) -> None:
        super().__init__(f"{len(entries)} objects are not known in {api_version}")
        self._conversions = conversions
        self._resource = resource
        self._entries = entries
        self._api_version = api_version

    async def settle(self) -> None:
        """Have them converted. Raises a StatusError."""
        await self._conversions.in_version(self._resource, self._entries, self._api_version)


class Conversions:
    """What others have converted, kept for some seconds, for all resources of a server.

    That is for what is read again and again. Nobody knows when a webhook begins to answer
    otherwise, so what will be written is never made from what was kept.
    """

    def __init__(self, clock: Clock, *, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[tuple[int, int, str], tuple[Resource, Entry, float]] = {}
        """By resource, revision and version, with the time until which it is good; those used last
        are at the end.

        A resource stands for itself: another one with the same name converts otherwise. It is in
        the value so that nothing else gets its identity meanwhile.
        """

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    def known(self, resource: Resource, entry: Entry, api_version: str) -> Entry | None:
        """An object in a version, if nobody need be asked."""
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
        """The same. Raises `ConversionNeeded`."""
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
        """Objects in a version, in order. Raises a StatusError.

        They are returned as they are if they are converted here, which whoever reads them does.
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
            asked = [entries[index] for index in some]
            for index, entry in zip(some, await _ask(resource, asked, api_version), strict=True):
                found[index] = entry
                self._keep(resource, entry)
        return [entry for entry in found if entry is not None]

    def forget(self, resource: Resource) -> None:
        """Drop what was kept for a resource."""
        mine = id(resource)
        for key in [key for key in self._kept if key[0] == mine]:
            self._drop(key)

    def _keep(self, resource: Resource, entry: Entry) -> None:
        key = (id(resource), entry[0], entry[1])
        if key in self._kept:  # somebody else has asked for it, too
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
    """Objects in a version, as somebody else converts them and as their schema says.

    They must be in another version, each with its type. Raises a StatusError.
    """
    converted = await remote_of(resource).convert(objects, api_version)
    default = resource.shape.default
    return [default(api_version, obj) for obj in converted]


def remote_of(resource: Resource) -> RemoteConversion:
    """Who converts the objects of a resource that are not converted here."""
    assert resource.remote is not None, resource.kind.group_resource
    return resource.remote
