"""The parts of an event: one line of JSON, joined from parts that are encoded in advance.

    kind, level | id | stage, uri, verb | user, addresses, agent | object | status, bodies | times
                                                                                   | annotations

Most events differ only in audit ID and times, so nothing else is encoded for them. They are joined
in batches when they are written, which costs a third of joining them one by one. Values from
clients are always encoded as ASCII JSON, so that no character of them ends a line for any reader of
the log.

Not here: the stages of a request (`auditor`), and redaction (`redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final, Protocol, TypeAlias

import orjson

from restow.aio import Clock
from restow.audit.policy import LEVEL_NAMES
from restow.audit.redaction import TRUNCATED
from restow.httpserver.request import Headers, Peer
from restow.request.context import User
from restow.request.request_info import RequestInfo

Parts: TypeAlias = "tuple[bytes, bytes, bytes]"
"""The parts that an event may share with others: before the audit ID, between it and the times, and
after the times."""
Event: TypeAlias = "tuple[Parts | HasParts, bytes, float, float]"
"""An event before encoding: its parts or their provider; the header line with its audit ID,
JSON-safe; the monotonic times when its request was received and when it happened."""

AGENT_LENGTH_MAX: Final = 1_024
ADDRESSES_MAX: Final = 16
"""Maximum number of addresses from X-Forwarded-For. The last ones are kept, because they were added
by the nearest proxies and are the hardest to forge."""

HEADS: Final = tuple(
    b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"%b","auditID":"' % name.encode()
    for name in LEVEL_NAMES
)
"""The start of an event, by audit level."""
ALLOWED: Final = (
    b',"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}\n'
)
NO_ANNOTATIONS: Final = b"}\n"
_DECISION: Final = "authorization.k8s.io/decision"
_REASON: Final = "authorization.k8s.io/reason"
_RECEIVED: Final = b',"requestReceivedTimestamp":"'
_AND_NOW: Final = b'Z","stageTimestamp":"'
_END: Final = b'Z"'
_DIGITS: Final = tuple(b"%03d" % number for number in range(1000))
_ENCODE = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def parts_of(head: bytes, middle: Iterable[bytes], end: bytes) -> Parts:
    """Build the parts of an event: its head, the pieces between audit ID and times, and its
    annotations."""
    return head, b"".join((*middle, _RECEIVED)), _END + end


class HasParts(Protocol):
    """Builds the parts of an event on demand, without raising."""

    def parts(self) -> Parts: ...


def encode(value: Any) -> bytes:
    """Encode a value as ASCII JSON. Raises ValueError."""
    try:
        text = orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        # A lone surrogate, which JSON can escape but UTF-8 cannot encode; or too deep nesting.
        if not isinstance(value, str):
            raise ValueError("the value cannot be encoded as JSON") from error  # noqa: TRY004 - as for all bodies
        return _ENCODE(value).encode()
    return text if text.isascii() else _ENCODE(value).encode()


def encode_text(text: str) -> bytes:
    """Encode a string as JSON, on a fast path if nothing must be escaped."""
    is_plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"'.encode() if is_plain else encode(text)


def user_part(user: User | None) -> bytes:
    """Encode a user as a UserInfo object; None is encoded as an empty one."""
    if user is None:
        return b"{}"
    found: dict[str, Any] = {"username": user.name}
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = user.groups
    if user.extra:
        found["extra"] = {name: list(values) for name, values in user.extra}
    return encode(found)


def origin_part(headers: Headers, peer: Peer) -> bytes:
    """Encode the source addresses and the user agent of a request."""
    addresses = encode(source_addresses(headers, peer.address))
    agent = headers.get("user-agent")
    if not agent:
        return b',"sourceIPs":%b' % addresses
    if len(agent) > AGENT_LENGTH_MAX:
        agent = agent[:AGENT_LENGTH_MAX] + TRUNCATED
    return b',"sourceIPs":%b,"userAgent":%b' % (addresses, encode(agent))


def source_addresses(headers: Headers, address: str) -> list[str]:
    """Return the addresses of a request: those that its proxies added, then that of the
    connection."""
    found: list[str] = []
    for line in headers.get_all("x-forwarded-for"):
        found += filter(None, map(_address, line.split(",")))
    real = _address(headers.get("x-real-ip") or "")
    if real and real not in found:
        found.append(real)
    found = found[-ADDRESSES_MAX:]
    last = _address(address) or address
    if not found or found[-1] != last:
        found.append(last)
    return found


def _address(text: str) -> str:
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        return ""


class About:
    """The objectRef of requests of one kind; it differs in the name of the object."""

    __slots__ = ("_begin", "_end", "_middle")

    def __init__(self, info: RequestInfo) -> None:
        begin = {"resource": info.resource, "namespace": info.namespace}
        middle = {"apiGroup": info.group, "apiVersion": info.version}
        self._begin = b',"objectRef":{' + _fields(begin)[1:] if info.is_resource else b""
        self._middle = _fields(middle)
        self._end = _fields({"subresource": info.subresource}) + b"}"

    def part(self, name: str, uid: str = "", resource_version: str = "") -> bytes:
        """Encode the objectRef; empty for a non-resource request."""
        if not self._begin:
            return b""
        name_part = b',"name":' + encode_text(name) if name else b""
        if uid or resource_version:
            uid_part, version = (
                _fields({"uid": uid}),
                _fields({"resourceVersion": resource_version}),
            )
            return b"".join((self._begin, name_part, uid_part, self._middle, version, self._end))
        return b"".join((self._begin, name_part, self._middle, self._end))


def _fields(values: Mapping[str, str]) -> bytes:
    """Encode the non-empty fields, each with a leading comma."""
    return b"".join(b",%b:%b" % (encode(key), encode(text)) for key, text in values.items() if text)


def annotations_part(
    *, is_allowed: bool | None, reason: str = "", extra: Mapping[str, str] | None = None
) -> bytes:
    """Encode the end of an event; `is_allowed` is None if there was no authorization."""
    if is_allowed and not reason and not extra:
        return ALLOWED
    found: dict[str, str] = {}
    if is_allowed is not None:
        found = {_DECISION: "allow" if is_allowed else "forbid", _REASON: reason}
    found.update(extra or {})
    return b',"annotations":%b}\n' % encode(found) if found else NO_ANNOTATIONS


class Stamps:
    """Formats monotonic times as wall-clock times with microseconds.

    Reading and formatting the wall clock costs more than all the rest of an event, so both are done
    once a second.
    """

    __slots__ = ("_clock", "_next_measurement_seconds", "_offset_seconds", "_second", "_text")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_seconds = 0.0
        self._next_measurement_seconds = float("-inf")
        self._second = -1
        self._text = b""

    def encode_events(self, events: Sequence[Event]) -> bytes:
        """Encode the lines of one or more events that happened close together."""
        pieces: list[bytes] = []
        digits, begin, text = _DIGITS, 0, b""
        offset = self._offset(events[-1][3])
        for parts, line, received, now in events:
            head, middle, end = parts if isinstance(parts, tuple) else parts.parts()
            # Most events have both times within the same millisecond: count microseconds from it.
            before = int((received + offset) * 1_000_000) - begin
            micros = int((now + offset) * 1_000_000) - begin
            if not 0 <= micros < 1000:
                milli = (begin + micros) // 1000
                before, micros = before + begin - milli * 1000, micros + begin - milli * 1000
                begin, text = milli * 1000, self._moment(milli)
            if 0 <= before < 1000:
                then = text
            else:
                milli, before = divmod(begin + before, 1000)
                then = self._moment(milli)
            stamp, now_stamp = digits[before], digits[micros]
            pieces += head, line[10:-2], middle, then, stamp, _AND_NOW, text, now_stamp, end
        return b"".join(pieces)

    def _offset(self, now_seconds: float) -> float:
        """Return the offset between both clocks, measured once a second."""
        if now_seconds >= self._next_measurement_seconds:
            self._offset_seconds = self._clock.wall().timestamp() - self._clock.monotonic()
            self._next_measurement_seconds = now_seconds + 1
        return self._offset_seconds

    def _moment(self, milli: int) -> bytes:
        """Format a time up to its milliseconds."""
        second, digits = milli // 1000, _DIGITS[milli % 1000]
        if second != self._second:
            self._second, self._text = second, _second_text(second)
        return self._text + digits


def _second_text(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.").encode()
