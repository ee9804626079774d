"""Table and PartialObjectMetadata responses.

Works on encoded objects. The columns are in `tables`, the metadata form in `partial_metadata`.
"""

from __future__ import annotations

from typing import Any

import orjson

from restow.aio import Clock
from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupKind
from restow.endpoints.partial_metadata import partial_list_bytes, partial_object_bytes
from restow.endpoints.tables.document import INCLUDE_OBJECT, IncludeObject, table_document
from restow.endpoints.tables.registry import columns_of
from restow.httpserver.response import HttpResponse
from restow.request.context import Context
from restow.request.responses import respond


def check_form(context: Context) -> None:
    """Reject a form that cannot be produced, before anything is done. Raises 406 or 422."""
    if context.form.as_kind == "Table":
        include_object(context)


def object_in_form(context: Context, body: bytes, *, clock: Clock) -> bytes:
    """One object in the form that the request asks for."""
    if context.form.as_kind == "Table":
        obj = orjson.loads(body)
        return _table(context, [obj], obj.get("metadata") or {}, clock=clock)
    return partial_object_bytes(body)


def list_in_form(
    context: Context, bodies: list[bytes], metadata: dict[str, Any], *, clock: Clock
) -> HttpResponse:
    """A list in the form that the request asks for."""
    if context.form.as_kind == "Table":
        objects = [orjson.loads(body) for body in bodies]
        table = _table(context, objects, metadata, clock=clock)
        return respond(context, 200, table)
    return respond(context, 200, partial_list_bytes(bodies, metadata=orjson.dumps(metadata)))


def event_in_form(context: Context, body: bytes, *, clock: Clock, with_definitions: bool) -> bytes:
    """The object of a watch event in the form that the request asks for."""
    if context.form.as_kind == "Table":
        obj = orjson.loads(body)
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return _table(context, [obj], metadata, clock=clock, with_definitions=with_definitions)
    return partial_object_bytes(body)


def include_object(context: Context) -> IncludeObject:
    """How much of an object each row contains: `includeObject`."""
    wanted = context.info.parameter("includeObject") or INCLUDE_OBJECT[0]
    for known in INCLUDE_OBJECT:
        if wanted == known:
            return known
    cause = field_errors.not_supported("includeObject", wanted, INCLUDE_OBJECT)
    raise status.invalid(GroupKind("meta.k8s.io", "TableOptions"), "", [cause])


def _table(
    context: Context,
    objects: list[dict[str, Any]],
    metadata: dict[str, Any],
    *,
    clock: Clock,
    with_definitions: bool = True,
) -> bytes:
    assert context.resource is not None
    table = table_document(
        columns_of(context.resource, context.info.version, context.info.subresource),
        objects,
        metadata=metadata,
        now=clock.wall(),
        include_object=include_object(context),
        with_definitions=with_definitions,
    )
    return orjson.dumps(table)
