"""Who manages the fields of stored objects: the rules of `machinery.apply`, for the store.

Every write of an object by a client or by the server itself is tracked, but for two kinds of it: a
rewrite, which changes nothing, and what coordination writes by itself (leases, storage versions),
where each field has one writer and nobody applies. A write of the server's own is `SERVER`'s.

Entries speak of fields in the version of whoever made them, so objects are converted to be
compared. Where somebody else converts them that is waited for (`NotConverted`), by those who can.

Not here: what a path may write (`strategy`), and who has sent a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import orjson

from restow.apimachinery import status
from restow.apimachinery.apply import entries
from restow.apimachinery.apply.entries import InvalidEntries, Manager
from restow.apimachinery.apply.schema_check import ApplySchemaError
from restow.apimachinery.apply.server_side_apply import Application
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry import strategy
from restow.registry.custom.conversion import convert
from restow.registry.resource import Object, Resource

SERVER: Final = Manager("restow")
CONVERSIONS_MAX: Final = 100
"""How often somebody else is asked for one write: there are not so many versions of a kind."""

T = TypeVar("T")


class NotConverted(Exception):
    """An object is needed in another version, and whoever converts it must be waited for."""

    def __init__(self, converting: Converting, obj: Object, api_version: str) -> None:
        super().__init__(f"it is not known in {api_version}")
        self._converting = converting
        self._obj = obj
        self._api_version = api_version

    async def settle(self) -> None:
        """Have it converted. Raises a StatusError where nothing can be done without."""
        await self._converting.ask(self._obj, self._api_version)


class Converting:
    """Converts the objects of one write to the versions that entries speak of."""

    __slots__ = ("_found", "_is_needed", "_resource")

    def __init__(self, resource: Resource, *, is_needed: bool = False) -> None:
        """`is_needed`: it is an error if somebody else should convert an object and does not."""
        self._resource = resource
        self._is_needed = is_needed
        self._found: dict[tuple[bytes, str], Object] = {}

    def __call__(self, obj: Object, api_version: str) -> Object | None:
        """The object in a version; None if there is no such version. Raises `NotConverted`."""
        resource, was = self._resource, obj["apiVersion"]
        if api_version not in resource.converter.spokes:
            return None
        if was == api_version:
            return obj
        if resource.remote is not None:
            found = self._found.get((_text(obj), api_version))
            if found is None:
                raise NotConverted(self, obj, api_version)
            return found
        try:
            return resource.converter.convert(obj, was, api_version)
        except MachineryError:
            return None  # what cannot be told in that version is not managed in it

    async def ask(self, obj: Object, api_version: str) -> None:
        """Have an object converted by somebody else, and remember it."""
        if len(self._found) >= CONVERSIONS_MAX:
            raise status.internal(f"too many conversions of one {self._resource.kind.kind}")
        typed = {**obj, "kind": self._resource.kind.kind}
        try:
            [found] = await convert(self._resource, [typed], api_version)
        except StatusError:
            if self._is_needed:
                raise
            # Nobody can say what has changed in that version. A write is not refused for that:
            # as nothing is seen to have changed, whoever manages fields there keeps them.
            found = {}
        self._found[_text(obj), api_version] = found


def _text(obj: Object) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


async def settled(work: Callable[[], T], *, is_long: bool = False) -> T:
    """What some work comes to, once all that must be waited for is there.

    What takes long, as there are very many fields, is done in a thread: others have their turns.
    """
    while True:
        try:
            return await asyncio.to_thread(work) if is_long else work()
        except NotConverted as needed:
            await needed.settle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """A wish to apply a configuration, which is taken as it came."""

    config: Object
    manager: Manager
    force: bool
    complete: Callable[[Object], Object]
    """Checks what came of it, and fills in defaults."""
    is_long: bool = False
    """Whether it may have very many fields."""

    def takes_long(self, stored: bytes) -> bool:
        """Whether the event loop should not wait until it is applied to what is stored."""
        return self.is_long or len(stored) > LONG_BODY_SIZE

    def to(
        self,
        resource: Resource,
        api_version: str,
        live: Object | None,
        *,
        now: datetime,
        converting: Converting,
    ) -> Object:
        """The object as it is wanted, complete. Raises 400, 409, `NotConverted`."""
        part = self.manager.subresource
        try:
            application = Application(
                resource.shape,
                self.config,
                wanted=strategy.applicable(resource, api_version, self.config, subresource=part),
                manager=self.manager,
                api_version=api_version,
                convert=converting,
                within=lambda fields: strategy.writable_fields(
                    resource, api_version, fields, subresource=part
                ),
            )
        except ApplySchemaError as error:
            raise status.bad_request(
                f"failed to create typed patch object ({self._shown(resource, api_version)}):"
                f" {error}"
            ) from error
        applied = application.apply(live, time=strategy.timestamp(now), force=self.force)
        entries_now = applied["metadata"].pop("managedFields", None)
        whole = self.complete(applied)
        if entries_now is not None:
            whole["metadata"]["managedFields"] = entries_now
        return whole

    def _shown(self, resource: Resource, api_version: str) -> str:
        metadata = self.config.get("metadata") or {}
        said = metadata if type(metadata) is dict else {}
        names = [said.get("namespace"), said.get("name")]
        place = "/".join(name if type(name) is str else "" for name in names)
        group, _, version = api_version.rpartition("/")
        return f"{place[:512]}; {group}/{version}, Kind={resource.kind.kind}"


def after_admission(new: Object, tracked: list[entries.Entry] | None) -> None:
    """Entries as they were tracked, if admission has made something of them that are none."""
    metadata = new["metadata"]
    found = metadata.get("managedFields")
    if found == tracked:
        return
    try:
        read = entries.read(found if found is not None else [], known=tracked or ())
    except InvalidEntries:
        read = tracked or []
    if read:
        metadata["managedFields"] = read
    else:
        metadata.pop("managedFields", None)


def keep_times(new: Object, old: Object) -> None:
    """A write that has changed nothing but times in entries has changed nothing."""
    metadata, before = new["metadata"], old["metadata"]
    mine, was = metadata.get("managedFields"), before.get("managedFields")
    if mine is was or not mine or not was or len(mine) != len(was):
        return
    if len(metadata) != len(before) or len(new) != len(old):
        return
    # In nearly every object something else differs, and most often its content.
    for name, value in new.items():
        if name != "metadata" and old.get(name) != value:
            return
    for name, value in metadata.items():
        if name != "managedFields" and before.get(name) != value:
            return
    for one, other in zip(mine, was, strict=True):
        if one is not other and {**one, "time": None} != {**other, "time": None}:
            return
    metadata["managedFields"] = was
