"""What a plug-in is asked and may answer, and how all plug-ins of a server are asked in turn.

Not here: where in a write they are asked (`restow.resources.store`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from restow.resources.definition import Object, Resource
from restow.resources.store import Review
from restow.serving.context import Context, User

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One write of one object, as it would be done."""

    operation: Operation
    """A patch is an update; so is the update that takes away the last finalizer."""
    resource: Resource
    version: str
    """The version of the request, in which both objects are."""
    subresource: str
    """Empty, or the part that is written: `status`, `scale`. The objects are whole anyway."""
    namespace: str
    name: str
    obj: Object | None
    """As it would be stored, its resource version being the old one; None for a delete. To look
    at: it has been validated, and is not validated again."""
    old: Object | None
    """As it is stored; None for a create."""
    user: User
    dry_run: bool


class Admission(Protocol):
    """A plug-in."""

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raise a StatusError, at once or when awaited, to refuse the write.

        It may be asked several times about one request: for each state of the object that the
        request is tried on.
        """


def reviewer(
    plugins: tuple[Admission, ...], context: Context, operation: Operation
) -> Review | None:
    """Asks all plug-ins about the writes of one request; None when there are none."""
    return partial(_review, plugins, context, operation) if plugins else None


async def _review(
    plugins: tuple[Admission, ...],
    context: Context,
    operation: Operation,
    obj: Object | None,
    old: Object | None,
    /,
    *,
    is_dry_run: bool,
) -> None:
    info, subject = context.info, old if obj is None else obj
    assert context.resource is not None
    assert subject is not None
    attributes = Attributes(
        operation=operation,
        resource=context.resource,
        version=info.version,
        subresource=info.subresource,
        namespace=info.namespace,
        name=subject["metadata"].get("name") or "",
        obj=obj,
        old=old,
        user=context.user,
        dry_run=is_dry_run,
    )
    for plugin in plugins:
        answer = plugin.review(attributes)
        if answer is not None:
            await answer
