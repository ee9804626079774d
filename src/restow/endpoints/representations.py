"""Table and PartialObjectMetadata responses.

Works on encoded objects. The columns are in `tables`, the metadata form in `partial_metadata`.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import orjson

from restow.aio import Clock
from restow.apimachinery import field_errors, status
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.apimachinery.names import GroupKind
from restow.endpoints.partial_metadata import partial_list_bytes, partial_object_bytes
from restow.endpoints.tables.document import (
    INCLUDE_OBJECT,
    IncludeObject,
    table_document,
    table_row,
)
from restow.endpoints.tables.registry import columns_of
from restow.httpserver.response import Answer, HttpResponse
from restow.request.context import Context
from restow.request.responses import (
    Bodies,
    EncodeItems,
    LongResponse,
    is_plain,
    respond,
    respond_list,
)


def check_form(context: Context) -> None:
    """Reject a form that cannot be produced, before anything is done. Raises 406 or 422."""
    if context.form.as_kind == "Table":
        include_object(context)


def respond_in_form(context: Context, code: int, body: bytes, *, clock: Clock) -> HttpResponse:
    """Respond with one object, in the form that the request asks for."""
    if len(body) > LONG_BODY_SIZE and not is_plain(context, len(body)):
        return LongResponse(code, partial(_respond_in_form, context, code, body, clock=clock))
    if context.form.as_kind:
        return _respond_in_form(context, code, body, clock=clock)
    return respond(context, code, body)


def _respond_in_form(context: Context, code: int, body: bytes, *, clock: Clock) -> HttpResponse:
    if context.form.as_kind == "Table":
        obj = orjson.loads(body)
        body = _table(context, [obj], obj.get("metadata") or {}, clock=clock)
    elif context.form.as_kind:
        body = partial_object_bytes(body)
    return respond(context, code, body)


def list_in_form(
    context: Context, bodies: Bodies, metadata: dict[str, Any], *, clock: Clock
) -> Answer:
    """A list in the form that the request asks for."""
    if context.form.as_kind == "Table":
        head, tail = _table(context, [], metadata, clock=clock).rsplit(b"]", 1)
        now = clock.wall()
        return respond_list(context, head, bodies, b"]" + tail, encode=_table_rows(context, now))
    encoded = partial_list_bytes([], metadata=orjson.dumps(metadata))
    head, tail = encoded[:-2], encoded[-2:]
    return respond_list(context, head, bodies, tail, encode=_partial_objects)


def _partial_objects(bodies: list[bytes]) -> list[bytes]:
    return [partial_object_bytes(body) for body in bodies]


def _table_rows(context: Context, now: datetime) -> EncodeItems:
    assert context.resource is not None
    columns = columns_of(context.resource, context.info.version, context.info.subresource)
    include = include_object(context)

    def encode(bodies: list[bytes]) -> list[bytes]:
        objects = map(orjson.loads, bodies)
        return [orjson.dumps(table_row(columns, obj, include=include, now=now)) for obj in objects]

    return encode


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
