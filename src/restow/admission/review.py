"""The interface of admission plug-ins.

    concerns   synchronous, for each kind of write: whether the plug-in handles it
    mutate     before the object is validated: may return another object
    review     after all other checks, on the object as it would be stored

Not here: when a write calls them (`restow.registry.store`), and in which order (`chain`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.registry.resource import Object, Resource
from restow.request.context import Context, User

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class WriteOf(NamedTuple):
    """The kind of a write, known before its body is read."""

    operation: Operation
    resource: Resource
    version: str
    """The version of the request."""
    subresource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One write of one object, as it would be done."""

    operation: Operation
    """A patch is an UPDATE; so is the update that removes the last finalizer."""
    resource: Resource
    version: str
    """The version of the request; both objects are in it."""
    subresource: str
    """Empty, or the subresource that is written: `status`, `scale`. The objects are complete,
    except for `scale`, where they are `autoscaling/v1` Scales, whatever the version of the
    request."""
    namespace: str
    name: str
    """Empty for a create whose name is not generated yet."""
    obj: Object | None
    """For `mutate`: as the client sent it, with defaults. For `review`: as it would be stored, with
    the old resource version; None for a delete. Read-only: a plug-in changes a copy."""
    old: Object | None
    """The stored object, copied for this plug-in. None for a create."""
    user: User
    dry_run: bool
    context: Context
    """The request, for `warn` and for `annotate`, which adds audit annotations."""

    @property
    def write(self) -> WriteOf:
        """Return the kind of this write: the argument of `concerns`."""
        return WriteOf(self.operation, self.resource, self.version, self.subresource)


class Admission(Protocol):
    """A validating plug-in."""

    def concerns(self, write: WriteOf) -> bool:
        """Return whether the plug-in handles such writes. The result is cached until
        `Chain.invalidate`, which a plug-in must trigger when its result changes."""

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raise a StatusError, synchronously or when awaited, to refuse the write.

        It may run several times for one request, once for each state of the object that the request
        is retried on.
        """


class Mutation(Protocol):
    """A mutating plug-in."""

    def concerns(self, write: WriteOf) -> bool:
        """Return whether the plug-in handles such writes, as in `Admission`."""

    def mutate(self, attributes: Attributes) -> Awaitable[Object | None]:
        """Return another object to write, or None to leave it unchanged; raise a StatusError to
        refuse it. The returned object is validated and defaulted like a request body."""


class ObjectCheck(Protocol):
    """A synchronous check of each object that is created or updated."""

    def check(self, context: Context, obj: Object, old: Object | None) -> None:
        """Raise a StatusError to refuse an object as it would be stored; `old` is the stored
        object, None for a create. It runs for every write, so it must be fast."""


def kind_of(resource: Resource, version: str, subresource: str) -> dict[str, str]:
    """Return the kind of the request body: that of the resource or of its subresource."""
    part = resource.subresource(version, subresource) if subresource else None
    sent = "" if part is None else part.body_kind or part.kind
    if part is None or not sent:
        return {"group": resource.group, "version": version, "kind": resource.kind.kind}
    group = part.group if part.version else resource.group
    return {"group": group, "version": part.version or version, "kind": sent}


def has_own_kind(attributes: Attributes) -> bool:
    """Return whether the body is another kind than the resource: a Scale, an Eviction, a token."""
    resource = attributes.resource
    named = kind_of(resource, attributes.version, attributes.subresource)
    return (named["group"], named["kind"]) != resource.kind.group_kind


def forbidden(attributes: Attributes, why: str) -> StatusError:
    """Return the 403 of a plug-in, with the object's name or generateName."""
    name = attributes.name
    if not name:
        metadata = (attributes.obj or {}).get("metadata") or {}
        name = metadata.get("generateName") or "Unknown"
    return status.forbidden(why, resource=attributes.resource.kind.group_resource, name=name)


def renamed(before: Object, now: Object) -> str | None:
    """Return the path of an identifying field that a plug-in changed, or None."""
    original, changed = before["metadata"], now.get("metadata")
    metadata = changed if isinstance(changed, dict) else {}
    for name in ("kind", "apiVersion"):
        if before.get(name) != now.get(name):
            return name
    for name in ("name", "namespace", "uid"):
        # A plug-in may set a name that is not generated yet.
        is_other = (original.get(name) or "") != (metadata.get(name) or "")
        if is_other and (original.get(name) or name != "name"):
            return f"metadata.{name}"
    return None
