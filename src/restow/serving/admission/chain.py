"""All plug-ins of a server, asked in turn: first those that change an object, then the last word.

Not here: any plug-in.
"""

from __future__ import annotations

from functools import partial

from restow.resources.definition import Object
from restow.resources.store import Review
from restow.serving.admission.review import Admission, Attributes, Operation
from restow.serving.context import Context


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
        context=context,
    )
    for plugin in plugins:
        answer = plugin.review(attributes)
        if answer is not None:
            await answer
