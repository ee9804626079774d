"""One rewrite: an object as it is, in another version, and nothing else about it changed.

The bytes are made when the plan is, for one version; a plan is never encoded anew. Nothing is
defaulted, counted or stamped: managed fields, fields that no schema knows, the generation, and the
marks of a deletion are as they were. Not here: how it is committed (`ResourceStore.rewrite`).
"""

from __future__ import annotations

from typing import Final

from restow.apis.encryption_keys import IDENTITY
from restow.registry.encoding import Encoding, stored_form
from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import head_of, load
from restow.registry.write_plans import Written
from restow.storage.interface import Item, Put, RevisionIs, Write
from restow.storageversion.errors import CoordinationError
from restow.storageversion.rules import Agreement

_WRITTEN: Final = Written(body=b"")


class Aborted(CoordinationError):
    """What the rewrite was begun for is no longer so. Nothing was encoded in another version."""


class RewritePlan:
    """The rewrite of one object from one state. Satisfies `resources.plans.Plan`."""

    __slots__ = ("_target", "_value", "guard", "resource")

    place: Final = None

    def __init__(self, resource: Resource, item: Item, target: Agreement, value: bytes) -> None:
        """`value` is what is to be stored, in the version of `target`, and under its key."""
        self.resource = resource
        self.guard = RevisionIs(item.key, item.revision)
        self._target = target
        self._value = value

    def must_prepare(self, _encoding: Encoding) -> bool:
        return False  # the bytes are made already

    async def prepare(self, _encoding: Encoding) -> None:
        return None

    def write(self, encoding: Encoding) -> Write:
        """Raises `Aborted` when this server writes another version, or another key, by now."""
        version, key_id = self._target
        if encoding.api_version != version:
            raise Aborted(
                f"this server writes {self.resource.kind.group_resource} in"
                f" {encoding.api_version} now, not in {version}"
            )
        if encoding.key_id != key_id:
            raise Aborted(
                f"this server writes {self.resource.kind.group_resource} with encryption key"
                f" {encoding.key_id or IDENTITY} now, not with {key_id or IDENTITY}"
            )
        return Put(self.guard.key, self._value)

    def preview(self) -> Written:
        return _WRITTEN

    def unchanged(self) -> Written:
        return _WRITTEN  # never asked for: there is always something to store

    def written(
        self, _revision: int, _write: Write, _encoded: str, _served: bytes | None = None
    ) -> Written:
        return _WRITTEN


def rewritten_form(resource: Resource, value: bytes, version: str, target: str) -> bytes:
    """The stored bytes of a value, which is in `version`, in version `target`.

    Raises `StoreDamaged` or `MachineryError` for what cannot be said in the version. For what
    somebody else converts see `rewrite_remote`.
    """
    kind = resource.kind.kind
    head = head_of(kind, version)
    if resource.converter.keeps_shape(version, target) and value.startswith(head):
        # Not a byte behind the version changes, be it a number that JSON can say in two ways.
        renamed = head_of(kind, target) + value[len(head) :]
        obj = _decode(renamed)
        if _is_ours(obj, kind, target):
            return renamed
    return stored_form(resource, _decode(value), version, target)


def _decode(value: bytes) -> Object:
    obj: Object = load(value)
    return obj


def _is_ours(obj: Object, kind: str, target: str) -> bool:
    """Whether a value says its type once, and has no resource version, as all that we store."""
    named = obj["kind"] == kind and obj["apiVersion"] == target
    return named and "resourceVersion" not in obj["metadata"]
