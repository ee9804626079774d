"""What a plug-in is asked and may answer.

    concerns   at once, for each write: does it want to be asked about writes like this?
    mutate     before the object is validated: may answer with another object
    review     the last word: the object is as it would be stored

Not here: where in a write they are asked (`restow.registry.store`), and in which order (`chain`).
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
    """What a write is about, known before its body is read."""

    operation: Operation
    resource: Resource
    version: str
    """The version of the request."""
    subresource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One write of one object, as it would be done."""

    operation: Operation
    """A patch is an update; so is the update that takes away the last finalizer."""
    resource: Resource
    version: str
    """The version of the request, in which both objects are."""
    subresource: str
    """Empty, or the part that is written: `status`, `scale`. The objects are whole anyway, but for
    `scale`, where they are Scales: `autoscaling/v1`, whatever the version of the request."""
    namespace: str
    name: str
    """Empty for a create whose name is not made up yet."""
    obj: Object | None
    """For `mutate`: as the client wants it, with defaults. For `review`: as it would be stored, its
    resource version being the old one; None for a delete. To look at: whoever changes something
    changes a copy."""
    old: Object | None
    """As it is stored: nobody has touched this copy. None for a create."""
    user: User
    dry_run: bool
    context: Context
    """The request. For `warn`, and for `annotate`: what is noted in the audit log."""

    @property
    def write(self) -> WriteOf:
        """What `concerns` was asked about."""
        return WriteOf(self.operation, self.resource, self.version, self.subresource)


class Admission(Protocol):
    """A plug-in that has a say in writes."""

    def concerns(self, write: WriteOf) -> bool:
        """Whether it wants to be asked about such writes. Asked once for all that are alike, until
        `Chain.forget` is called: whoever answers otherwise from now on has it called."""

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raise a StatusError, at once or when awaited, to refuse the write.

        It may be asked several times about one request: for each state of the object that the
        request is tried on.
        """


class Mutation(Protocol):
    """A plug-in that may change what is written."""

    def concerns(self, write: WriteOf) -> bool:
        """As in `Admission`."""

    def mutate(self, attributes: Attributes) -> Awaitable[Object | None]:
        """Another object to write in the place of this one, None to leave it; or raise a
        StatusError. What it answers is checked and defaulted like a body."""


class AtOnce(Protocol):
    """One that has a say in each write, and needs to wait for nothing to say it."""

    def check(self, context: Context, obj: Object, old: Object | None) -> None:
        """Raise a StatusError to refuse an object as it would be stored; the old one is as it is
        stored, None for a create. Asked on the short way too, so it must be quick."""


def kind_of(resource: Resource, version: str, subresource: str) -> dict[str, str]:
    """The kind of what is written: that of the resource, or one that its subresource takes."""
    part = resource.subresource(version, subresource) if subresource else None
    sent = "" if part is None else part.body_kind or part.kind
    if part is None or not sent:
        return {"group": resource.group, "version": version, "kind": resource.kind.kind}
    group = part.group if part.version else resource.group
    return {"group": group, "version": part.version or version, "kind": sent}


def has_own_kind(attributes: Attributes) -> bool:
    """Whether what is written is no object of the resource: a Scale, an Eviction, a token."""
    resource = attributes.resource
    named = kind_of(resource, attributes.version, attributes.subresource)
    return (named["group"], named["kind"]) != resource.kind.group_kind


def forbidden(attributes: Attributes, why: str) -> StatusError:
    """The 403 of a plug-in. It names the object, or what its name is to be made of."""
    name = attributes.name
    if not name:
        metadata = (attributes.obj or {}).get("metadata") or {}
        name = metadata.get("generateName") or "Unknown"
    return status.forbidden(why, resource=attributes.resource.kind.group_resource, name=name)


def renamed(before: Object, now: Object) -> str | None:
    """What of an object a plug-in has changed that says which object it is; None if nothing."""
    was, said = before["metadata"], now.get("metadata")
    metadata = said if isinstance(said, dict) else {}
    for name in ("kind", "apiVersion"):
        if before.get(name) != now.get(name):
            return name
    for name in ("name", "namespace", "uid"):
        # A name that is still to be made up may be given.
        is_other = (was.get(name) or "") != (metadata.get(name) or "")
        if is_other and (was.get(name) or name != "name"):
            return f"metadata.{name}"
    return None
