"""Request and response bodies in audit events, and the responseStatus.

Bodies are recorded only if the policy requires it, and only up to a size that is fast to decode;
longer bodies are omitted, and the event is annotated with `audit.k8s.io/truncated`.

Not here: redaction (`redaction`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from restow.apimachinery import codec, protobuf, yaml_codec
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.audit.event_parts import encode
from restow.audit.redaction import without_managed_fields
from restow.httpserver.response import HttpResponse
from restow.request import protobuf_messages
from restow.request.context import Context

OBJECT_BYTES_MAX: Final = 256 * 1024
YAML_BYTES_MAX: Final = 8 * 1024
"""Decoding more YAML takes too long."""
STATUS_BYTES_MAX: Final = 64 * 1024
NAME_WITHIN_BYTES: Final = 512
TRUNCATED_NOTE: Final = "audit.k8s.io/truncated"

_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_GZIP: Final = b"Content-Encoding: gzip"
_YAML: Final = b"application/yaml"
_FAILED: Final = 400
# Responses that may repeat the request body.
_REPEATING: Final = frozenset({400, 422})
_METADATA: Final = b'"metadata":{'
_NAME: Final = b'"name":"'


class Body(NamedTuple):
    """An object in an event: its JSON, empty for none, and its metadata."""

    text: bytes = b""
    metadata: dict[str, Any] | None = None
    is_cut: bool = False
    """Whether an object exists and is omitted."""


NOTHING: Final = Body()
_CUT: Final = Body(is_cut=True)


def request_body(context: Context, *, omits_managed_fields: bool) -> Body:
    """Return the request object."""
    body = context.request.body
    if not body:
        return NOTHING
    media = codec.media_type_name(context.request.headers.get("content-type") or codec.JSON)
    if len(body) > OBJECT_BYTES_MAX:
        return _CUT
    try:
        return _body_of(_decoded(context, body, media), omits_managed_fields)
    except _TooLong:
        return _CUT
    except (StatusError, MachineryError, ValueError, RecursionError):
        return NOTHING  # an invalid body, which was refused


class _TooLong(Exception):
    """The body takes too long to decode."""


def _decoded(context: Context, body: bytes, media: str) -> Any:
    if media == _PROTOBUF:
        envelope = protobuf.read_envelope(body)
        resource = context.resource
        if resource is None or envelope.kind != resource.kind.kind:
            raise ValueError("not the kind that is served here")
        obj = resource.shape.decode_protobuf(envelope.api_version, envelope.raw)
        return {"kind": envelope.kind, "apiVersion": envelope.api_version, **obj}
    if "yaml" in media and not body.lstrip().startswith(b"{"):
        if len(body) > YAML_BYTES_MAX:
            raise _TooLong
        return yaml_codec.decode(body).value
    return orjson.loads(body)


def response_body(answer: HttpResponse, *, omits_managed_fields: bool) -> Body:
    """Return the response object."""
    length = _length(answer)
    if not length:
        return NOTHING
    if length > OBJECT_BYTES_MAX or _GZIP in answer.headers:
        return _CUT
    body = _whole(answer)
    try:
        if _YAML in answer.headers:
            if length > YAML_BYTES_MAX:
                return _CUT
            return _body_of(yaml_codec.decode(body).value, omits_managed_fields)
        return _body_of(_read(body), omits_managed_fields)
    except (StatusError, ValueError, RecursionError):
        return NOTHING  # plain text


def _body_of(value: Any, omits_managed_fields: bool) -> Body:  # noqa: FBT001
    if omits_managed_fields:
        value = without_managed_fields(value)
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return Body(encode(value), metadata if isinstance(metadata, dict) else None)


STATUS_BEGIN: Final = (b'{"kind":"Status"', protobuf_messages.STATUS_BEGIN)
"""The start of a Status body, in JSON and in protobuf."""


def status_part(answer: HttpResponse, *, is_secret: bool) -> bytes:
    """Return the responseStatus of a response."""
    code = answer.status
    if code < _FAILED and not (
        isinstance(answer.body, bytes) and answer.body.startswith(STATUS_BEGIN)
    ):
        return b',"responseStatus":{"metadata":{},"code":%d}' % code
    found = _status_of(answer)
    recorded: dict[str, Any] = {"metadata": {}}
    names: tuple[str, ...] = ("status", "message", "reason", "details")
    if is_secret and code in _REPEATING:
        names = ("status", "reason")
    recorded.update({name: found[name] for name in names if found.get(name)})
    recorded["code"] = code
    try:
        return b',"responseStatus":%b' % encode(recorded)
    except ValueError:
        return b',"responseStatus":{"metadata":{},"code":%d}' % code


def _status_of(answer: HttpResponse) -> dict[str, Any]:
    if _length(answer) > STATUS_BYTES_MAX or _GZIP in answer.headers:
        return {}
    body = _whole(answer)
    try:
        if _YAML in answer.headers:
            found: Any = yaml_codec.decode(body).value
        else:
            found = _read(body)
    except (StatusError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def _read(body: bytes) -> Any:
    return (
        protobuf_messages.read_message(body)
        if body.startswith(protobuf.MAGIC)
        else orjson.loads(body)
    )


def _length(answer: HttpResponse) -> int:
    """Return the length of a body without joining the pieces of a long list."""
    body = answer.body
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def _whole(answer: HttpResponse) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def name_in(answer: HttpResponse) -> str:
    """Return the name of the object in a response, or an empty string if it is not easy to find."""
    body = answer.body
    if not isinstance(body, bytes):
        return ""
    if body.startswith(protobuf.MAGIC):
        return protobuf_messages.name_in(body)
    # As this server encodes objects: the type, then the metadata with the name among the first
    # fields.
    begin = body.find(_METADATA, 0, NAME_WITHIN_BYTES) + len(_METADATA)
    name = body.find(_NAME, begin, begin + NAME_WITHIN_BYTES) + len(_NAME)
    end = body.find(b'"', name, name + NAME_WITHIN_BYTES)
    if begin < len(_METADATA) or name < len(_NAME) or end < 0:
        return ""
    if body.find(b"{", begin, name) >= 0 or body.find(b"[", begin, name) >= 0:
        return ""  # a nested object may have a name, too
    text = body[name:end]
    return text.decode() if text.isascii() and b"\\" not in text else ""
