"""Targets for what other programs send: WebSocket clients, HTTP servers, KMS plug-ins, callers of
the control socket, and users who write JSONPath columns or request certificates.

Where the test dependencies have a second implementation, the two must agree on what both accept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any, Final

import jsonpath
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from restow.apimachinery import certificate_signing_requests
from restow.client import http1
from restow.client.errors import ProtocolBroken
from restow.encryption import kms_messages
from restow.endpoints.tables.jsonpath import FOUND_MAX, parse_path
from restow.endpoints.websocket import agreed_headers, asks_for_websocket
from restow.endpoints.websocket.frames import FrameConnection
from restow.httpserver import Limits, Peer
from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.reader import RequestReader
from restow.httpserver.request_head import RequestRefused
from restow.localcluster.control import replies
from restow.localcluster.messages import ControlReply, ControlRequest

# --- responses of HTTP servers -----------------------------------------------------------------

HTTP_ERRORS: Final = (ProtocolBroken, asyncio.IncompleteReadError)
RESPONSES: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 103 A\r\n\r\nHTTP/1.1 204\r\n\r\n",
    b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n2;a\r\nab\r\n0\r\nT:\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\nX: \xff\r\nConnection: close\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 3, 3\r\n\r\n",
)


async def _response(pieces: list[bytes]) -> tuple[Any, ...]:
    reader = asyncio.StreamReader(limit=http1.STREAM_BYTES_MAX)

    async def feed() -> None:
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding = asyncio.create_task(feed())
    try:
        head = await http1.read_head(reader, method="GET")
        body = b"".join([piece async for piece in http1.body_pieces(reader, head)])
        return head, body, (await reader.read()) if head.is_kept else b""
    finally:
        feeding.cancel()


def http_response(data: bytes) -> None:
    """A response is the same, or rejected, however its bytes are split."""

    def outcome(pieces: list[bytes]) -> tuple[Any, ...] | Exception:
        try:
            return _loop().run_until_complete(_response(pieces))
        except HTTP_ERRORS as error:
            return error

    whole = outcome([data])
    pieces = outcome([data[at : at + 1] for at in range(len(data))])
    if isinstance(whole, Exception):
        assert isinstance(pieces, Exception), "accepted in pieces only"
        raise whole
    assert whole == pieces
    head, body, _ = whole
    assert head.length is None or not head.has_body or len(body) == head.length
    assert not any("\n" in text or "\r" in text for text in head.headers.values())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


# --- WebSocket -----------------------------------------------------------------------------------

_UPGRADE: Final = b"GET / HTTP/1.1\r\nHost: a\r\n"
UPGRADES: Final = (
    _UPGRADE + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://a\r\n\r\n",
    _UPGRADE + b"Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\nOrigin: null://b\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Protocol: a, b\r\n\r\n",
    _UPGRADE + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: \xc3\xa4\xff\r\nOrigin: a://b\r\nSec-WebSocket-Protocol: "
    b"base64url.bearer.authorization.k8s.io.YQ, v5\r\n\r\n",
)
_LIMITS: Final = Limits(body_bytes_max=1000, head_bytes_max=4000)


def websocket_handshake(data: bytes) -> None:
    """The response has only header lines that were meant, and a rejection is a 400 or 403."""
    reader = RequestReader(_LIMITS, budgets=Budgets(_LIMITS), peer=Peer(1))
    try:
        reader.feed(data)
        request = reader.next_request(0.0)
    except RequestRefused:
        return
    finally:
        reader.close()
    if request is None or not asks_for_websocket(request):
        return
    lines = agreed_headers(request)
    if not isinstance(lines, bytes):
        assert lines.status == 400
        return
    names = [line.partition(b": ")[0] for line in lines.removesuffix(b"\r\n").split(b"\r\n")]
    assert names[:2] == [b"Upgrade", b"Sec-WebSocket-Accept"]
    assert names[2:] in ([], [b"Sec-WebSocket-Protocol"])
    lines.decode("ascii")


def _client_frames() -> Iterator[bytes]:
    client = Connection(ConnectionType.CLIENT)
    yield client.send(TextMessage(data="text"))
    yield client.send(Ping(payload=b"p")) + client.send(BytesMessage(data=b"x" * 300))
    yield client.send(TextMessage(data="ä", message_finished=False)) + client.send(
        TextMessage(data="b")
    )
    yield client.send(CloseConnection(code=1000, reason="done"))
    yield b"\x81\xfe\xff\xff\0\0\0\0" + b"y" * 30
    yield b"\x89\x80\0\0\0\0" * 20


FRAMES: Final = tuple(_client_frames())
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013})


def _events(pieces: list[bytes]) -> list[tuple[str, object]]:
    frames = FrameConnection()
    found: list[tuple[str, object]] = []
    for piece in pieces:
        for event in frames.receive(piece):
            if isinstance(event, CloseConnection):
                assert event.code in _CLOSE_CODES or 3000 <= event.code < 5000 or event.code == 1014
                frames.close(event.code)
                found.append(("close", int(event.code)))
            else:
                assert len(event.payload) <= 125
                frames.pong(bytes(event.payload))
                found.append(("ping", bytes(event.payload)))
    return found


def websocket_frames(data: bytes) -> None:
    """The same events for any split of the bytes, and an answer to each can be encoded."""
    whole = _events([data])
    assert _events([data[at : at + 1] for at in range(len(data))]) == whole
    assert [kind for kind, _ in whole].count("close") <= 1


# --- JSONPath ------------------------------------------------------------------------------------

PATHS: Final = (
    b".spec.replicas",
    b'{.status.conditions[?(@.type=="Ready")].status}',
    b"$.list[-1:].x['a.b'][0, 1]",
    b"..name",
    b".list[?(@.n>=2)].n",
    b".status['a b','list'][*]",
    b".list[0:3:2]",
    b".a\\.b",
)
_DOCUMENT: Final[dict[str, Any]] = {
    "spec": {"replicas": 3, "a.b": {"c": [1, 2, [3, 4]]}},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1.5},
            {"type": "Other", "status": "False", "n": True, "x": {"name": "y"}},
        ],
        "a b": {"name": None},
    },
    "list": [{"n": 1, "x": {"a.b": [7, 8]}}, {"n": 2, "name": "z"}, {"n": "2"}, 5, "s", [1, 2, 3]],
    "name": "top",
}
_COMPARED: Final = frozenset(b".[]'*,-_" + bytes(range(48, 58)) + bytes(range(97, 123)))


def json_path(data: bytes) -> None:
    """Values are found in the document, and a second implementation finds the same."""
    text = data.decode("utf-8", "surrogateescape")
    path = parse_path(text)
    found = path.find(_DOCUMENT)
    assert len(found) <= FOUND_MAX
    inside = {id(each) for each in _values(_DOCUMENT)}
    assert all(id(each) in inside or not isinstance(each, (dict, list)) for each in found)
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        assert parse_path("{" + body + "}").find(_DOCUMENT) == found
    if not set(data) <= _COMPARED or not text.startswith((".", "[")) or ".." in text:
        return  # order, slices of strings, filters and escapes differ between implementations
    try:
        others = jsonpath.findall("$" + text, _DOCUMENT)
    except (jsonpath.JSONPathError, ValueError):
        return
    assert json.dumps(others) == json.dumps(found), (text, others, found)


def _values(value: object) -> Iterator[object]:
    yield value
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for each in children:
        yield from _values(each)


# --- KMS plug-ins, certificate requests, the control socket --------------------------------------

ENVELOPES: Final = (
    b"\x0a\x01d"
    + kms_messages.KmsEnvelope("key", b"source", 1, (("a.example.org", b"v"),)).to_bytes(),
    b"\x0a\x01d" + kms_messages.KmsEnvelope("k" * 100, b"s" * 100, 0).to_bytes(),
)


def kms_envelope(data: bytes) -> None:
    """What is accepted is the same when it is encoded and parsed again."""
    envelope, sealed = kms_messages.read_envelope(data, 0)
    assert sealed
    length = len(sealed)
    head = b"\x0a" + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7]))
    assert kms_messages.read_envelope(head + sealed + envelope.to_bytes(), 0) == (envelope, sealed)


@cache
def requests() -> tuple[bytes, ...]:
    """Certificate requests: a simple one, one with groups, and one after a comment."""
    key = ec.derive_private_key(54321, ec.SECP256R1())
    made = []
    for groups in ((), ("system:masters", "b")):
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, "jane"))
        request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
        made.append(request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return (*made, b"a comment\n" + made[0])


def signing_request(data: bytes) -> None:
    """A request that is accepted is read in the same way by a second parser."""
    found = certificate_signing_requests.parse_request(data)
    other = x509.load_pem_x509_csr(data)
    names = other.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert other.is_signature_valid
    assert found.organizations == tuple(str(each.value) for each in names)


MESSAGES: Final = (
    b'{"verb":"list"}\n',
    b'{"version":1,"verb":"roll","server":2,"release":"a","is_rollback":true}\n',
    b'{"version":2,"verb":"stop","name":"x"}',
)


async def _refuse(request: ControlRequest) -> AsyncIterator[ControlReply]:
    assert request.verb in ("list", "roll", "restart", "stop")
    yield ControlReply(error="handled")


def control_message(data: bytes) -> None:
    """Every line gets a last reply."""

    async def all_replies() -> list[ControlReply]:
        return [each async for each in replies(data, _refuse)]

    found = _loop().run_until_complete(all_replies())
    assert [each.is_last for each in found] == [True]
