"""The rewrite of one object: the same object in another version, with nothing else changed.

A plan is created with the encoded bytes for one version and is never encoded again. Nothing is
defaulted, counted or stamped: managed fields, fields without a schema, the generation, and the
marks of a deletion stay as they are. Not here: how it is committed (`ResourceStore.rewrite`).
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
    """The precondition of the rewrite no longer holds. Nothing was encoded in another version."""


class RewritePlan:
    """The rewrite of one object from one state. Implements
    `restow.registry.write_plans.WritePlan`."""

    __slots__ = ("_target", "_value", "guard", "resource")

    place: Final = None

    def __init__(self, resource: Resource, item: Item, target: Agreement, value: bytes) -> None:
        """`value` holds the bytes to store, in the version of `target`."""
        self.resource = resource
        self.guard = RevisionIs(item.key, item.revision)
        self._target = target
        self._value = value

    def must_prepare(self, _encoding: Encoding) -> bool:
        return False  # The value is already encoded.

    async def prepare(self, _encoding: Encoding) -> None:
        return None

    def write(self, encoding: Encoding) -> Write:
        """Return the write. Raises `Aborted` when this server now writes another version or key."""
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
        return _WRITTEN  # Never called: a rewrite always changes the stored value.

    def written(
        self, _revision: int, _write: Write, _encoded: str, _served: bytes | None = None
    ) -> Written:
        return _WRITTEN


def rewritten_form(resource: Resource, value: bytes, version: str, target: str) -> bytes:
    """Return the stored bytes of a value, which is in `version`, converted to version `target`.

    Raises `StoreDamaged` or `MachineryError` for a value that cannot be converted. Resources with a
    conversion webhook use `rewrite_remote`.
    """
    kind = resource.kind.kind
    head = head_of(kind, version)
    if resource.converter.keeps_shape(version, target) and value.startswith(head):
        # No byte after the version changes, such as in a number with two JSON representations.
        renamed = head_of(kind, target) + value[len(head) :]
        obj = _decode(renamed)
        if _is_ours(obj, kind, target):
            return renamed
    return stored_form(resource, _decode(value), version, target)


def _decode(value: bytes) -> Object:
    obj: Object = load(value)
    return obj


def _is_ours(obj: Object, kind: str, target: str) -> bool:
    """Return whether a value has this kind and version and no resource version, like every value
    that restow stores."""
    named = obj["kind"] == kind and obj["apiVersion"] == target
    return named and "resourceVersion" not in obj["metadata"]
