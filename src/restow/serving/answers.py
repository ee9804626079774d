"""How results become answers: headers, warnings, pretty printing, YAML, gzip, Status bodies.

The usual case, JSON without anything special, is one prebuilt block of headers and the bytes as
they are. Not here: which result it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
import yaml
from isal import isal_zlib

from restow.machinery.status_error import StatusError
from restow.serving.context import Context
from restow.serving.listener.response import Answer, Response, header_block
from restow.serving.listener.stream import PullStream

GZIP_BYTES_MIN: Final = 128 * 1024
PIECE_ITEMS: Final = 100
WARNING_CHARACTERS_MAX: Final = 256

_CACHE: Final = ("Cache-Control", "no-cache, private")
JSON_HEADERS: Final = header_block([("Content-Type", "application/json"), _CACHE])
_YAML_HEADERS: Final = header_block([("Content-Type", "application/yaml"), _CACHE])
TEXT_HEADERS: Final = header_block(
    [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
)
_GZIP_LINES: Final = header_block([("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")])
_PRETTY_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")


def respond(context: Context, code: int, body: bytes) -> Response:
    """An answer whose body is this JSON."""
    headers = JSON_HEADERS
    if context.info.query or context.form.media != "json":
        body, headers = _dressed(context, body)
    if context.warnings:
        headers += warning_lines(context.warnings)
    if len(body) > GZIP_BYTES_MIN and takes_gzip(context):
        return Response(code, compress(body), headers + _GZIP_LINES)
    return Response(code, body, headers)


def respond_object(context: Context, code: int, value: Any) -> Response:
    """An answer whose body is this value as JSON."""
    return respond(context, code, orjson.dumps(value))


def respond_text(code: int, text: str) -> Response:
    return Response(code, text.encode(), TEXT_HEADERS)


def error_answer(context: Context | None, error: StatusError) -> Response:
    """The Status of an error, in the form the client reads, if it said which."""
    headers = JSON_HEADERS
    if error.retry_after_seconds:
        headers += header_block([("Retry-After", str(error.retry_after_seconds))])
    if context is not None and context.warnings:
        headers += warning_lines(context.warnings)
    return Response(error.code, error.to_bytes(), headers)


def respond_list(context: Context, head: bytes, items: list[bytes], tail: bytes) -> Answer:
    """A list: sent piece by piece, while the client keeps up, without ever being whole."""
    headers = JSON_HEADERS
    if context.info.flag("pretty") or context.form.media != "json":
        return respond(context, 200, b"".join((head, b",".join(items), tail)))
    if context.warnings:
        headers += warning_lines(context.warnings)
    size = len(head) + len(tail) + sum(map(len, items)) + max(0, len(items) - 1)
    if size > GZIP_BYTES_MIN and takes_gzip(context):
        pieces = _compressed(list_pieces(head, items, tail))
        return PullStream(200, pieces, headers + _GZIP_LINES)
    if size < GZIP_BYTES_MIN:
        return Response(200, b"".join((head, b",".join(items), tail)), headers)
    return PullStream(200, list_pieces(head, items, tail), headers, length=size)


def list_pieces(head: bytes, items: list[bytes], tail: bytes) -> Iterator[bytes]:
    """The bytes of a list, some items at a time."""
    if not items:
        yield head + tail
        return
    yield head + b",".join(items[:PIECE_ITEMS])
    for first in range(PIECE_ITEMS, len(items), PIECE_ITEMS):
        yield b"," + b",".join(items[first : first + PIECE_ITEMS])
    yield tail


def takes_gzip(context: Context) -> bool:
    return "gzip" in (context.request.headers.get("accept-encoding") or "")


def compress(body: bytes) -> bytes:
    packer = isal_zlib.compressobj(level=1, wbits=31)
    return bytes(packer.compress(body) + packer.flush())


def warning_lines(warnings: list[str]) -> bytes:
    """Warning headers, one each, with what a header cannot carry replaced."""
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


def _dressed(context: Context, body: bytes) -> tuple[bytes, bytes]:
    if context.form.media == "yaml":
        text = yaml.dump(orjson.loads(body), Dumper=yaml.CSafeDumper, sort_keys=True)
        return text.encode(), _YAML_HEADERS
    if _wants_pretty(context):
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2) + b"\n"
    return body, JSON_HEADERS


def _wants_pretty(context: Context) -> bool:
    if "pretty" in context.info.query:
        return context.info.flag("pretty")
    return (context.request.headers.get("user-agent") or "").startswith(_PRETTY_AGENTS)


def error_body(code: int, message: str) -> tuple[str, bytes]:
    """A Status for what the listener refuses by itself."""
    error = StatusError.from_response(code, message.encode())
    return "application/json", error.to_bytes()
