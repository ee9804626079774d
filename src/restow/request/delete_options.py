"""Reads DeleteOptions, which a client sends in the body or the query of a delete."""

from __future__ import annotations

from typing import Any

from restow.apimachinery import body_codec, codec, protobuf, status
from restow.apimachinery.typed_json import check
from restow.kinds.types import load_types
from restow.request.bodies import PROTOBUF
from restow.request.context import Context


def read_options(context: Context) -> dict[str, Any]:
    """Read the options of a delete, from the body or the query. Raises 400."""
    body, info = context.request.body, context.info
    if not body:
        options: dict[str, Any] = {}
        if policy := info.parameter("propagationPolicy"):
            options["propagationPolicy"] = policy
        if (seconds := info.number("gracePeriodSeconds")) is not None:
            options["gracePeriodSeconds"] = seconds
        if "orphanDependents" in info.query:
            options["orphanDependents"] = info.flag("orphanDependents")
        return options
    struct = load_types().of_kind("", "v1", "DeleteOptions")
    assert struct is not None
    content_type = context.request.headers.get("content-type") or ""
    if codec.media_type_name(content_type) == PROTOBUF:
        envelope = protobuf.read_envelope(body)
        _check_kind(envelope.kind)
        return protobuf.decode(struct, envelope.raw)
    value = body_codec.decode(body, content_type).value
    _check_kind(value.get("kind"))
    return check(struct, value).value


def _check_kind(kind: Any) -> None:
    if kind and kind != "DeleteOptions":
        raise status.bad_request(f"{str(kind)[:128]} cannot be handled as DeleteOptions")
