"""The pieces of an event: one line of JSON, put together from parts that are encoded beforehand.

    kind, level | id | stage, uri, verb | user, addresses, agent | object | status, bodies | times
                                                                                   | annotations

Most events differ in their id and times alone, so nothing else is encoded for them. They are put
together when they are written, many at once: that costs a third of doing it between two answers.
What comes from a client is always encoded as JSON, and in ASCII: then no character of it ends a
line, whoever reads the log.

Not here: which events there are (`auditor`), and what is left out (`redaction`).
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
"""What an event may share with others: what stands before the id, between it and the times, and
behind them."""
Event: TypeAlias = "tuple[Parts | HasParts, bytes, float, float]"
"""An event that is still in parts: those, or who makes them; the header line with its id, fit for
JSON; when its request was received, and when it happened."""

AGENT_LENGTH_MAX: Final = 1_024
ADDRESSES_MAX: Final = 16
"""Addresses that proxies have noted. The last ones are nearest, and the easiest to believe."""

HEADS: Final = tuple(
    b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"%b","auditID":"' % name.encode()
    for name in LEVEL_NAMES
)
"""How events begin, by their level."""
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
    """The parts of an event: its begin, all between its id and its times in pieces, and its
    annotations."""
    return head, b"".join((*middle, _RECEIVED)), _END + end


class HasParts(Protocol):
    """Knows an event, and makes its parts when they are needed. That never fails."""

    def parts(self) -> Parts: ...


def encode(value: Any) -> bytes:
    """A value as JSON, in ASCII alone. Raises ValueError for what cannot be encoded."""
    try:
        text = orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        # Half of a character, which no text can hold but an escape can; or nested too deeply.
        if not isinstance(value, str):
            raise ValueError("it cannot be encoded") from error  # noqa: TRY004 - as for all bodies
        return _ENCODE(value).encode()
    return text if text.isascii() else _ENCODE(value).encode()


def encode_text(text: str) -> bytes:
    """A text as JSON, in short if it has nothing but what is written as it is."""
    is_plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"'.encode() if is_plain else encode(text)


def user_part(user: User | None) -> bytes:
    """Somebody, as an object; None is somebody unknown."""
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
    """From where a request has come, and with what."""
    addresses = encode(source_addresses(headers, peer.address))
    agent = headers.get("user-agent")
    if not agent:
        return b',"sourceIPs":%b' % addresses
    if len(agent) > AGENT_LENGTH_MAX:
        agent = agent[:AGENT_LENGTH_MAX] + TRUNCATED
    return b',"sourceIPs":%b,"userAgent":%b' % (addresses, encode(agent))


def source_addresses(headers: Headers, address: str) -> list[str]:
    """Where a request has been: as its proxies say, and last where it has come from."""
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
    """What requests of one kind are about; objects differ in their names."""

    __slots__ = ("_begin", "_end", "_middle")

    def __init__(self, info: RequestInfo) -> None:
        begin = {"resource": info.resource, "namespace": info.namespace}
        middle = {"apiGroup": info.group, "apiVersion": info.version}
        self._begin = b',"objectRef":{' + _fields(begin)[1:] if info.is_resource else b""
        self._middle = _fields(middle)
        self._end = _fields({"subresource": info.subresource}) + b"}"

    def part(self, name: str, uid: str = "", resource_version: str = "") -> bytes:
        """The part of an event; nothing for what is no object."""
        if not self._begin:
            return b""
        named = b',"name":' + encode_text(name) if name else b""
        if uid or resource_version:
            known, version = _fields({"uid": uid}), _fields({"resourceVersion": resource_version})
            return b"".join((self._begin, named, known, self._middle, version, self._end))
        return b"".join((self._begin, named, self._middle, self._end))


def _fields(values: Mapping[str, str]) -> bytes:
    """Fields that are not empty, each behind a comma."""
    return b"".join(b",%b:%b" % (encode(key), encode(text)) for key, text in values.items() if text)


def annotations_part(
    *, is_allowed: bool | None, reason: str = "", noted: Mapping[str, str] | None = None
) -> bytes:
    """The end of an event; None: nobody has decided."""
    if is_allowed and not reason and not noted:
        return ALLOWED
    found: dict[str, str] = {}
    if is_allowed is not None:
        found = {_DECISION: "allow" if is_allowed else "forbid", _REASON: reason}
    found.update(noted or {})
    return b',"annotations":%b}\n' % encode(found) if found else NO_ANNOTATIONS


class Stamps:
    """Times of day with microseconds, from the clock that never goes back.

    Asking for the time of day and writing it out costs more than all the rest of an event, so
    both are done once a second.
    """

    __slots__ = ("_clock", "_offset_seconds", "_second", "_text", "_turn_seconds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_seconds = 0.0
        self._turn_seconds = float("-inf")
        self._second = -1
        self._text = b""

    def together(self, events: Sequence[Event]) -> bytes:
        """The lines of some events, at least one, which came one soon after another."""
        pieces: list[bytes] = []
        digits, begin, text = _DIGITS, 0, b""
        offset = self._offset(events[-1][3])
        for parts, line, received, now in events:
            head, middle, end = parts if isinstance(parts, tuple) else parts.parts()
            # Both times in microseconds of the same millisecond, as it is with most.
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
        """What lies between both clocks, measured once a second."""
        if now_seconds >= self._turn_seconds:
            self._offset_seconds = self._clock.wall().timestamp() - self._clock.monotonic()
            self._turn_seconds = now_seconds + 1
        return self._offset_seconds

    def _moment(self, milli: int) -> bytes:
        """A moment up to its milliseconds."""
        second, digits = milli // 1000, _DIGITS[milli % 1000]
        if second != self._second:
            self._second, self._text = second, _second_text(second)
        return self._text + digits


def _second_text(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.").encode()
