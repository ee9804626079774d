"""Rewrites one object without changing it: with the smallest possible patch, or with an update.

The patch contains only uid and resource version. A server whose encoding equals the stored bytes
keeps the resource version; if they are in another version, or under another key, it stores the
object again. So the resource version in the response shows whether it was rewritten. No other field
is sent, and a concurrent update is never overwritten.

For a resource without patches the object is read and updated, on the same conditions.

Two groups may share a store, as Events do. Kubernetes drops the managed fields of an object that is
written through the other group, which changes the object though its version was right. So an object
is written through the group of its managed fields.

Not here: handling of errors (`write_errors`), concurrency.
"""

from __future__ import annotations

from dataclasses import dataclass

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status import (
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    UnsupportedMediaType,
)
from restow.client import (
    ApiClient,
    ApiResource,
    Object,
    WriteOptions,
    key_of,
    metadata_of,
    uid_of,
    version_of,
)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object as it was listed."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    field_version: str = ""
    """The apiVersion of all its managed fields; empty if there are several, or none."""


def ref_of(value: Object) -> ObjectRef:
    key = key_of(value)
    return ObjectRef(
        key.namespace, key.name, uid_of(value), version_of(value), _field_version(value)
    )


def _field_version(value: Object) -> str:
    entries = metadata_of(value).get("managedFields")
    if not isinstance(entries, list):
        return ""
    found = {each.get("apiVersion") for each in entries if isinstance(each, dict)}
    version = found.pop() if len(found) == 1 else ""
    return version if isinstance(version, str) else ""


class ObjectWriter:
    """Writes objects of one resource. A format that the server rejects is not used again."""

    def __init__(
        self,
        client: ApiClient,
        resource: ApiResource,
        *,
        field_manager: str,
        is_dry_run: bool = False,
    ) -> None:
        self._client = client
        self._shown = resource
        self._resource = resource.resource
        self._places: dict[GroupVersion, ApiResource] = {}
        """The resource through which objects of an apiVersion are written."""
        self._options = WriteOptions(field_manager=field_manager, dry_run=is_dry_run)
        # Without verbs in discovery, the first patch shows whether they are supported.
        self._has_patch = "patch" in resource.verbs or not resource.verbs
        self._has_partial = True

    async def write(self, ref: ObjectRef) -> bool:
        """Rewrite an object; return whether the stored bytes changed. One try."""
        if self._has_patch:
            try:
                return await self._patch(ref)
            except (MethodNotAllowed, UnsupportedMediaType):
                self._has_patch = False
        return await self._put(ref)

    async def read(self, ref: ObjectRef) -> ObjectRef:
        """Read the current metadata of the object of this name."""
        return ref_of(await self._get(ref, metadata_only=True))

    async def _patch(self, ref: ObjectRef) -> bool:
        place = await self._place(ref)
        try:
            answer = await self._send(ref, place)
        except NotAcceptable:
            if not self._has_partial:
                raise
            self._has_partial = False
            answer = await self._send(ref, place)
        return version_of(answer) != ref.resource_version

    async def _place(self, ref: ObjectRef) -> ApiResource:
        """The resource to write through: this one, or one of another group with the same store."""
        if not ref.field_version:
            return self._shown
        try:
            version = GroupVersion.parse(ref.field_version)
        except InvalidName:
            return self._shown
        if version.group == self._shown.group:
            return self._shown
        if version not in self._places:
            self._places[version] = await self._find_place(version)
        return self._places[version]

    async def _find_place(self, version: GroupVersion) -> ApiResource:
        own = self._shown
        try:
            listed = await self._client.resources(version)
        except NotFound:
            return own  # it is not served any more
        for each in listed:
            is_alike = (each.name, each.kind) == (own.name, own.kind) and "patch" in each.verbs
            if is_alike and each.storage_version_hash == own.storage_version_hash != "":
                return each
        return own

    async def _send(self, ref: ObjectRef, place: ApiResource) -> Object:
        metadata = {"uid": ref.uid, "resourceVersion": ref.resource_version}
        return await self._client.patch(
            place.resource,
            ref.name,
            {**_head(place), "metadata": metadata},
            namespace=ref.namespace,
            options=self._options,
            metadata_only=self._has_partial,
        )

    async def _put(self, ref: ObjectRef) -> bool:
        current = await self._get(ref, metadata_only=False)
        answer = await self._client.update(
            self._resource,
            {**_head(self._shown), **current},
            namespace=ref.namespace,
            options=self._options,
        )
        return version_of(answer) != version_of(current)

    async def _get(self, ref: ObjectRef, *, metadata_only: bool) -> Object:
        if metadata_only and self._has_partial:
            try:
                return await self._client.get(
                    self._resource, ref.name, namespace=ref.namespace, metadata_only=True
                )
            except NotAcceptable:
                self._has_partial = False
        return await self._client.get(self._resource, ref.name, namespace=ref.namespace)


def _head(resource: ApiResource) -> Object:
    version = GroupVersion(resource.group, resource.version)
    return {"apiVersion": str(version), "kind": resource.kind}
