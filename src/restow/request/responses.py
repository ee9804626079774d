"""Encodes results as responses: headers, warnings, pretty printing, YAML, protobuf, gzip, Status
bodies.

The common case, plain JSON, is one prebuilt block of headers and the unchanged bytes. Not here: the
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from isal import isal_zlib

from restow.apimachinery import status, yaml_encoder
from restow.apimachinery.status_decoder import status_from_response
from restow.apimachinery.status_error import StatusError
from restow.httpserver.response import NOSNIFF_LINE, Answer, HttpResponse, header_block
from restow.httpserver.stream import PullStream
from restow.request.context import Context
from restow.request.negotiation import PRETTY_AGENTS
from restow.request.protobuf_messages import message_of

GZIP_BYTES_MIN: Final = 128 * 1024
PIECE_BYTES: Final = 128 * 1024
"""Approximate bytes of a list that are joined and written at once."""
SLICE_BYTES: Final = 16 * 1024
"""Approximate bytes of the objects that are encoded at once in another form: some milliseconds."""
SLICE_ITEMS_MAX: Final = 100
PRETTY_BYTES_MAX: Final = 512 * 1024
"""Longer objects are not indented, which takes 13 ms per MiB."""
YAML_BYTES_MAX: Final = 1024 * 1024
"""Largest object, in bytes of JSON, that is encoded as YAML, in one step; a larger one gets a
406."""
YAML_LIST_BYTES_MAX: Final = 4 * 1024 * 1024
"""The same for a list, which is encoded in small steps but needs about 0.3 s of CPU per MiB."""
PROTOBUF_BYTES_MAX: Final = 8 * 1024
"""Above this size in JSON the response stays JSON, if the client accepts that as well."""
WARNING_CHARACTERS_MAX: Final = 256

EncodeItems: TypeAlias = "Callable[[list[bytes]], list[bytes]]"

_COMMON: Final = (("Cache-Control", "no-cache, private"), NOSNIFF_LINE)
JSON_HEADERS: Final = header_block([("Content-Type", "application/json"), *_COMMON])
_YAML_HEADERS: Final = header_block([("Content-Type", "application/yaml"), *_COMMON])
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_PROTOBUF_HEADERS: Final = header_block([("Content-Type", PROTOBUF), *_COMMON])
PROTOBUF_WATCH_HEADERS: Final = header_block(
    [("Content-Type", f"{PROTOBUF};stream=watch"), *_COMMON]
)
TEXT_HEADERS: Final = header_block([("Content-Type", "text/plain; charset=utf-8"), NOSNIFF_LINE])
_GZIP_LINES: Final = header_block([("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")])


def respond(context: Context, code: int, body: bytes) -> HttpResponse:
    """Return a response with this JSON as the body."""
    headers = JSON_HEADERS
    if context.info.query or context.form.media != "json" or _is_interactive(context):
        body, headers = _encoded(context, body)
    return _finished(context, code, body, headers)


class LongResponse(HttpResponse):
    """A response that takes too long to encode on the event loop: `finish` returns the real one."""

    __slots__ = ("finish",)

    def __init__(self, status_code: int, finish: Callable[[], HttpResponse]) -> None:
        super().__init__(status_code)
        self.finish = finish


def is_plain(context: Context, size: int) -> bool:
    """Whether the response is the object in JSON as it is cached, without a change."""
    form = context.form
    if form.media == "yaml" or form.as_kind or wants_message(context, size):
        return False
    return size > PRETTY_BYTES_MAX or not _wants_pretty(context)


def respond_message(context: Context, body: bytes) -> Answer:
    """Return a response with this protobuf message as the body."""
    if len(body) <= PIECE_BYTES:
        return _finished(context, 200, body, _PROTOBUF_HEADERS)
    pieces = (body[first : first + PIECE_BYTES] for first in range(0, len(body), PIECE_BYTES))
    headers = _PROTOBUF_HEADERS + (warning_lines(context.warnings) if context.warnings else b"")
    if takes_gzip(context):
        return PullStream(200, _compressed(pieces), headers + _GZIP_LINES)
    return PullStream(200, pieces, headers, length=len(body))


def _finished(context: Context, code: int, body: bytes, headers: bytes) -> HttpResponse:
    if context.warnings:
        headers += warning_lines(context.warnings)
    if len(body) > GZIP_BYTES_MIN and takes_gzip(context):
        return HttpResponse(code, compress(body), headers + _GZIP_LINES)
    return HttpResponse(code, body, headers)


def wants_message(context: Context, size: int) -> bool:
    """Whether a response of this size in JSON is to be encoded as protobuf."""
    form = context.form
    return form.media == "protobuf" and (size <= PROTOBUF_BYTES_MAX or not form.or_json)


def respond_object(context: Context, code: int, value: Any) -> HttpResponse:
    """Return a response with this value, encoded as JSON."""
    return respond(context, code, orjson.dumps(value))


def respond_text(code: int, text: str) -> HttpResponse:
    return HttpResponse(code, text.encode(), TEXT_HEADERS)


def error_answer(context: Context | None, error: StatusError) -> HttpResponse:
    """Return the Status of an error, in the negotiated media type if there is one."""
    body, headers = error.to_bytes(), JSON_HEADERS
    if context is not None:
        with suppress(StatusError):  # JSON if the negotiation failed
            body, headers = _encoded(context, body)
        if context.warnings:
            headers += warning_lines(context.warnings)
    if error.retry_after_seconds:
        headers += header_block([("Retry-After", str(error.retry_after_seconds))])
    return HttpResponse(error.code, body, headers)


class Bodies(NamedTuple):
    """Encoded objects and their total size. Immutable; shared by lists."""

    items: list[bytes]
    nbytes: int

    @classmethod
    def of(cls, items: list[bytes]) -> Bodies:
        return cls(items, sum(map(len, items)))


def respond_list(
    context: Context,
    head: bytes,
    bodies: Bodies,
    tail: bytes,
    *,
    encode: EncodeItems | None = None,
) -> Answer:
    """Return a list response; a long one is streamed in pieces, with backpressure.

    `encode` returns the items for some objects, if the objects themselves are not the items.
    """
    headers, length, whole_max = JSON_HEADERS, None, SLICE_BYTES
    if context.form.media == "yaml":
        if bodies.nbytes > YAML_LIST_BYTES_MAX:
            raise status.not_acceptable(["application/json"])
        headers = _YAML_HEADERS
        pieces = _yaml_pieces(head + tail, _encoded_slices(bodies, encode))
    elif _wants_pretty(context):
        pieces = _pretty_pieces(head + tail, _encoded_slices(bodies, encode))
    elif encode is not None:
        pieces = _joined_pieces(head, _encoded_slices(bodies, encode), tail)
    else:
        pieces, whole_max = list_pieces(head, bodies, tail), GZIP_BYTES_MIN
        length = len(head) + len(tail) + bodies.nbytes + max(0, len(bodies.items) - 1)
    if context.warnings:
        headers += warning_lines(context.warnings)
    if (bodies.nbytes if length is None else length) < whole_max:
        return HttpResponse(200, b"".join(pieces), headers)
    if takes_gzip(context) and bodies.nbytes > GZIP_BYTES_MIN:
        return PullStream(200, _compressed(pieces), headers + _GZIP_LINES)
    return PullStream(200, pieces, headers, length=length)


def list_pieces(head: bytes, bodies: Bodies, tail: bytes) -> Iterator[bytes]:
    """Yield the bytes of a list, some items at a time."""
    items = bodies.items
    step = max(1, PIECE_BYTES * len(items) // max(bodies.nbytes, 1))
    before = head
    for first in range(0, len(items), step):
        some = items[first : first + step]
        some[0] = before + some[0]  # so that the piece is copied only once
        yield b",".join(some)
        before = b","
    yield tail if items else head + tail


def slices(items: list[bytes], *, bytes_max: int = SLICE_BYTES) -> Iterator[list[bytes]]:
    """Yield the items in slices of some KiB, or of one item if that is longer."""
    some: list[bytes] = []
    nbytes = 0
    for item in items:
        some.append(item)
        nbytes += len(item)
        if nbytes >= bytes_max or len(some) >= SLICE_ITEMS_MAX:
            yield some
            some, nbytes = [], 0
    if some:
        yield some


def _encoded_slices(bodies: Bodies, encode: EncodeItems | None) -> Iterator[list[bytes]]:
    found = slices(bodies.items)
    return found if encode is None else map(encode, found)


def _joined_pieces(head: bytes, encoded: Iterable[list[bytes]], tail: bytes) -> Iterator[bytes]:
    before = head
    for some in encoded:
        yield before + b",".join(some)
        before = b","
    yield tail if before == b"," else head + tail


def _pretty_pieces(empty_list: bytes, encoded: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Yield the list with indentation; items that take too long keep their form."""
    before, end = _indented(empty_list).rsplit(b"[]", 1)
    before += b"["
    for some in encoded:
        shown = [
            item if len(item) > PRETTY_BYTES_MAX else _indented(item).replace(b"\n", b"\n    ")
            for item in some
        ]
        yield before + b"\n    " + b",\n    ".join(shown)
        before = b","
    yield (b"\n  ]" if before == b"," else before + b"]") + end + b"\n"


def _indented(body: bytes) -> bytes:
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)


def _yaml_pieces(empty_list: bytes, encoded: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Yield the list as YAML, in small steps."""
    fields = orjson.loads(empty_list)
    items = chain.from_iterable(encoded)
    first = next(items, None)
    if first is None:
        yield yaml_encoder.encode(fields)
        return
    name = next(reversed(fields))  # "items" or "rows"
    del fields[name]
    yield yaml_encoder.encode(fields) + name.encode() + b":\n"
    yield from yaml_encoder.encode_sequence(map(orjson.loads, chain([first], items)))


def takes_gzip(context: Context) -> bool:
    accepted = context.request.headers.get("accept-encoding")
    return accepted is not None and "gzip" in accepted and "gzip;q=0" not in accepted


def compress(body: bytes) -> bytes:
    packer = isal_zlib.compressobj(level=1, wbits=31)
    return bytes(packer.compress(body) + packer.flush())


def warning_lines(warnings: list[str]) -> bytes:
    """Build one Warning header per text, replacing characters that are invalid in a header."""
    lines = []
    for text in warnings:
        clean = "".join(each if " " <= each <= "~" else "?" for each in text)
        quoted = clean[:WARNING_CHARACTERS_MAX].replace("\\", "\\\\").replace('"', '\\"')
        lines.append(("Warning", f'299 - "{quoted}"'))
    return header_block(lines)


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = isal_zlib.compressobj(level=1, wbits=31)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield bytes(packed)
    yield bytes(packer.flush())


def _encoded(context: Context, body: bytes) -> tuple[bytes, bytes]:
    if context.form.media == "yaml":
        if len(body) > YAML_BYTES_MAX:
            raise status.not_acceptable(["application/json"])
        return yaml_encoder.encode(orjson.loads(body)), _YAML_HEADERS
    if wants_message(context, len(body)):
        message = message_of(body)
        if message is not None:
            return message, _PROTOBUF_HEADERS
    if _wants_pretty(context) and len(body) <= PRETTY_BYTES_MAX:
        body = _indented(body) + b"\n"
    return body, JSON_HEADERS


def _wants_pretty(context: Context) -> bool:
    if "pretty" in context.info.query:
        return context.info.flag("pretty")
    return _is_interactive(context)


def _is_interactive(context: Context) -> bool:
    """Whether the client is a browser or similar, not a program."""
    agent = context.request.headers.get("user-agent")
    return agent is not None and agent.startswith(PRETTY_AGENTS)


def error_body(code: int, message: str) -> tuple[str, bytes]:
    """Return the Status for an error of the listener itself."""
    error = status_from_response(code, message.encode())
    return "application/json", error.to_bytes()
