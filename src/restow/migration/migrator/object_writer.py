"""One object written as it is: by the smallest patch that there is, or by a whole update.

The patch says nothing but which object it is for, by uid and resource version. A server that
stores what it would store anyway leaves the resource version as it is; if the stored bytes are in
another version, or under another key, it stores them anew. So the resource version tells which it
was. Nothing of the object travels, and an update by somebody else is never lost.

Where a resource takes no patches, the object is read and put back, on the same conditions.

Two groups may share a store, as Events do. Kubernetes forgets who manages the fields of an object
that is written through the other group than before, which stores it anew though its version was
right. So an object is written through the group that it was written through before.

Not here: what follows from a refusal (`write_errors`), and how many objects are written at once.
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
    """An object as it was when it was seen."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    written_as: str = ""
    """The apiVersion in which all its fields were written; empty if there are several, or none."""


def ref_of(value: Object) -> ObjectRef:
    key = key_of(value)
    return ObjectRef(key.namespace, key.name, uid_of(value), version_of(value), _written_as(value))


def _written_as(value: Object) -> str:
    entries = metadata_of(value).get("managedFields")
    if not isinstance(entries, list):
        return ""
    found = {each.get("apiVersion") for each in entries if isinstance(each, dict)}
    version = found.pop() if len(found) == 1 else ""
    return version if isinstance(version, str) else ""


class ObjectWriter:
    """Writes objects of one resource. What a server does not take is not tried again."""

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
        """Through which resource an object is written that was written in this version."""
        self._options = WriteOptions(field_manager=field_manager, dry_run=is_dry_run)
        # A server that does not say what it can is asked.
        self._has_patch = "patch" in resource.verbs or not resource.verbs
        self._has_partial = True

    async def write(self, ref: ObjectRef) -> bool:
        """Write the object that was seen; whether it was stored anew. One try."""
        if self._has_patch:
            try:
                return await self._patch(ref)
            except (MethodNotAllowed, UnsupportedMediaType):
                self._has_patch = False
        return await self._put(ref)

    async def read(self, ref: ObjectRef) -> ObjectRef:
        """The object of this name as it is now."""
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
        """Where to write: here, or at the resource of another group that shares the store."""
        if not ref.written_as:
            return self._shown
        try:
            version = GroupVersion.parse(ref.written_as)
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
