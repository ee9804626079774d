"""Managed fields of stored objects: applies the rules of `apimachinery.apply` to writes.

Every write by a client or by the server itself is tracked, with two exceptions: a rewrite, which
changes nothing, and objects that coordination writes by itself (leases, StorageVersions), where
each field has one writer and server-side apply is not used. Writes of the server have the manager
`SERVER`.

The entries of a manager list fields in the version that it used, so objects are converted to that
version to be compared. A conversion by a webhook raises `NotConverted`; asynchronous callers wait
for it and repeat the work.

Not here: which fields a path may write (`strategy`), and authentication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.apply import entries
from restow.apimachinery.apply.entries import InvalidEntries, Manager
from restow.apimachinery.apply.schema_check import ApplySchemaError
from restow.apimachinery.apply.server_side_apply import Application
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry import strategy
from restow.registry.custom.conversion import convert
from restow.registry.resource import Object, Resource

SERVER: Final = Manager("restow")
CONVERSIONS_MAX: Final = 100
"""Limit of webhook conversions for one write; a kind never has that many versions."""


class NotConverted(Exception):
    """An object is needed in another version, and its conversion webhook must be called first."""

    def __init__(self, converting: Converting, obj: Object, api_version: str) -> None:
        super().__init__(f"the object is not converted to {api_version} yet")
        self._converting = converting
        self._obj = obj
        self._api_version = api_version

    async def settle(self) -> None:
        """Call the webhook. Raises a StatusError if the conversion is required and fails."""
        await self._converting.ask(self._obj, self._api_version)


class Converting:
    """Converts the objects of one write to the versions of its managed fields."""

    __slots__ = ("_found", "_is_needed", "_resource")

    def __init__(self, resource: Resource, *, is_needed: bool = False) -> None:
        """`is_needed`: a failed webhook conversion is an error."""
        self._resource = resource
        self._is_needed = is_needed
        self._found: dict[tuple[bytes, str], Object] = {}

    def __call__(self, obj: Object, api_version: str) -> Object | None:
        """Return the object in a version; None if there is no such version. Raises
        `NotConverted`."""
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
            return None  # not representable in that version: none of its fields are managed there

    async def ask(self, obj: Object, api_version: str) -> None:
        """Convert an object with the webhook and keep the result."""
        if len(self._found) >= CONVERSIONS_MAX:
            raise status.internal(f"too many conversions of one {self._resource.kind.kind}")
        typed = {**obj, "kind": self._resource.kind.kind}
        try:
            [found] = await convert(self._resource, [typed], api_version)
        except StatusError:
            if self._is_needed:
                raise
            # The changes in that version are unknown, and the write must not fail for that. With
            # an empty object no change is found, so the managers of that version keep their fields.
            found = {}
        self._found[_text(obj), api_version] = found


def _text(obj: Object) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """A configuration for server-side apply, as the client has sent it."""

    config: Object
    manager: Manager
    force: bool
    complete: Callable[[Object], Object]
    """Validates the types of the result and fills in defaults."""

    def to(
        self,
        resource: Resource,
        api_version: str,
        live: Object | None,
        *,
        now: datetime,
        converting: Converting,
    ) -> Object:
        """Apply the configuration; return the complete object. Raises 400, 409, `NotConverted`."""
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
        sent = metadata if type(metadata) is dict else {}
        names = [sent.get("namespace"), sent.get("name")]
        place = "/".join(name if type(name) is str else "" for name in names)
        group, _, version = api_version.rpartition("/")
        return f"{place[:512]}; {group}/{version}, Kind={resource.kind.kind}"


def after_admission(new: Object, tracked: list[entries.Entry] | None) -> None:
    """Restore the tracked managed fields if admission has made them invalid."""
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
    """Keep the old timestamps of managed fields if nothing else has changed."""
    metadata, before = new["metadata"], old["metadata"]
    mine, was = metadata.get("managedFields"), before.get("managedFields")
    if mine is was or not mine or not was or len(mine) != len(was):
        return
    if len(metadata) != len(before) or len(new) != len(old):
        return
    # Nearly every write differs in something else, most often in the content.
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
