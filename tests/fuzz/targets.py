"""The targets of fuzzing: every parser of bytes that clients send or that may be stored.

A target takes bytes and returns, or raises one of its declared errors. Any other exception is a
defect, and so is a failed assertion of the target.

Not here: the source of the bytes (`engine`, `test_decoders`).
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, Final

import orjson

from restow.apimachinery import body_codec, codec, jwt, protobuf, quantity
from restow.apimachinery.json_patch import JsonPatch
from restow.apimachinery.jwt_keys import KeySet, SigningKey, read_signing_key
from restow.apimachinery.merge_patch import apply_merge_patch
from restow.apimachinery.selectors import parse_field_selector, parse_label_selector
from restow.apimachinery.status import StatusError
from restow.apimachinery.strategic_merge import apply_strategic_merge_patch
from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.apimachinery.strategic_merge_types import merge_schema
from restow.apimachinery.structural.cel.declarations import declare
from restow.apimachinery.structural.cel.program import CompileError, compile_expression
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.schema import read_schema
from restow.apimachinery.types import Struct
from restow.encryption.configuration import LocalKey
from restow.encryption.providers import AesCbc, AesGcm, LocalCipher, Secretbox, WrongKey
from restow.endpoints.continue_tokens import ContinueTokens, PageStart
from restow.endpoints.tables.jsonpath import BadPath
from restow.httpserver import Limits, Peer
from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.reader import RequestReader
from restow.httpserver.request_head import RequestRefused
from restow.kinds.types import load_types
from restow.request import protobuf_messages
from restow.request.negotiation import negotiate
from restow.request.request_info import parse_request
from tests.fuzz import files, protocols, tls
from tests.fuzz.seeds import DOCUMENT, FRAMES, HEADS, PATCHES, POD, POD_YAML, RULES, STRATEGIC
from tests.fuzz.target import SERVER_ERROR, Target

CEL_COST_MAX: Final = 10_000
"""Enough for every kind of expression, too little for a loop."""


def _json(data: bytes) -> None:
    decoded = codec.decode(data)
    assert codec.decode(codec.encode(decoded.value)).value == decoded.value


def _yaml(data: bytes) -> None:
    decoded = body_codec.decode(data, codec.YAML)
    assert codec.decode(codec.encode(decoded.value)).value == decoded.value


def _envelope(data: bytes) -> None:
    protobuf.read_envelope(protobuf.MAGIC + data)


@cache
def _struct(group: str, version: str, kind: str) -> Struct:
    struct = load_types().of_kind(group, version, kind)
    assert struct is not None
    return struct


_KINDS: Final = (
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("apps", "v1", "Deployment"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("apps", "v1", "ControllerRevision"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
    ("", "v1", "DeleteOptions"),
    ("", "v1", "ConfigMapList"),
)


def _protobuf(data: bytes) -> None:
    """A decoded value can be encoded, and decodes to the same value."""
    for kind in _KINDS:
        struct = _struct(*kind)
        try:
            value = protobuf.decode(struct, data)
        except StatusError as error:
            if error.code >= SERVER_ERROR:
                raise
            continue
        written = protobuf.encode(struct, value)
        assert protobuf.decode(struct, written) == value


def _message(data: bytes) -> None:
    """Any stored JSON gives a valid reply in protobuf, or it stays JSON."""
    try:
        body = codec.encode(codec.decode(data).value)
    except ValueError:
        return  # no server would have stored this JSON
    message = protobuf_messages.message_of(body)
    if message is not None:
        found = protobuf_messages.read_message(message)
        assert protobuf_messages.message_of(codec.encode(found)) == message
    assert protobuf_messages.event_frame(b"ADDED", body)[protobuf_messages.FRAME_LENGTH_BYTES :]


def _protobuf_seeds() -> tuple[bytes, ...]:
    """Returns a message of each kind, with a field of each form."""
    return tuple(
        protobuf.encode(_struct(*kind), value)
        for kind, value in zip(_KINDS, (POD, *FRAMES), strict=True)
    )


def _patched(value: Any) -> None:
    assert isinstance(value, dict)
    codec.encode(value)


def _json_patch(data: bytes) -> None:
    value, _ = codec.decode_value(data)
    before = orjson.dumps(DOCUMENT)
    try:
        _patched(JsonPatch.parse(value).apply(DOCUMENT))
    finally:
        assert orjson.dumps(DOCUMENT) == before, "the patch has changed what it was given"


def _merge_patch(data: bytes) -> None:
    before = orjson.dumps(DOCUMENT)
    _patched(apply_merge_patch(DOCUMENT, codec.decode(data).value))
    assert orjson.dumps(DOCUMENT) == before


@cache
def _pod_schema() -> MergeSchema:
    return merge_schema(_struct("", "v1", "Pod"))


def _strategic(data: bytes) -> None:
    before = orjson.dumps(POD)
    try:
        _patched(apply_strategic_merge_patch(POD, codec.decode(data).value, _pod_schema()))
    finally:
        assert orjson.dumps(POD) == before


def _label_selector(data: bytes) -> None:
    selector = parse_label_selector(_text(data))
    selector.matches({"a": "b", "app": "x", "n": "5"})


def _field_selector(data: bytes) -> None:
    parse_field_selector(_text(data)).requires("metadata.name")


def _quantity(data: bytes) -> None:
    text = _text(data)
    once = quantity.canonical(text)
    assert quantity.canonical(once) == once
    # Rounded up, away from zero, if no form of the family is exact.
    assert abs(quantity.parse(once)) >= abs(quantity.parse(text))
    assert quantity.is_quantity(text)


_TOKENS: Final = ContinueTokens(b"a secret that the fuzzer does not know")
_PLACE: Final = PageStart(7, "default/x")
_TOKEN: Final = _TOKENS.make(_PLACE, bound_to="pods")


def _continue_token(data: bytes) -> None:
    found = _TOKENS.read(_text(data), bound_to="pods")
    assert found == _PLACE, "a token was forged"


@cache
def _signing_key() -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = ec.derive_private_key(12345, ec.SECP256R1())
    return read_signing_key(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@cache
def _key_set() -> KeySet:
    return KeySet([_signing_key().public])


_CLAIMS: Final = {"iss": "https://restow.example", "sub": "jane", "exp": 2_000_000_000}


def _jwt(data: bytes) -> None:
    token = jwt.read(_text(data))
    for name in ("exp", "nbf", "iat"):
        jwt.moment(token.claims, name)
    jwt.text(token.claims, "sub")
    jwt.audiences(token.claims)
    _key_set().check(token)
    assert token.claims == _CLAIMS, "a token was forged"


_LIMITS: Final = Limits(
    body_bytes_max=1000, head_bytes_max=2000, target_bytes_max=500, chunks_at_once_max=3
)


def _read_requests(pieces: list[bytes]) -> tuple[list[Any], int]:
    budgets = Budgets(_LIMITS)
    reader = RequestReader(_LIMITS, budgets=budgets, peer=Peer(1))
    seen: list[Any] = []
    refusal = 0
    try:
        for piece in pieces:
            reader.feed(piece)
            while (request := reader.next_request(0.0)) or reader.has_unread_body:
                if request is None:
                    continue
                headers = tuple(request.headers.items())
                seen.append((request.method, request.path, request.query, headers, request.body))
    except RequestRefused as refused:
        refusal = refused.status
    reader.close()
    assert budgets.bytes_held == 0
    return seen, refusal


def _http(data: bytes) -> None:
    """For any split of the bytes, the same requests are parsed: no request smuggling.

    A rejection is a rejection for every split. Which of several reasons is given may depend on the
    split.
    """
    seen, refusal = _read_requests([data])
    assert refusal in (0, 400, 405, 411, 413, 414, 417, 431, 501, 505)
    middle = len(data) // 2
    for pieces in ([data[:middle], data[middle:]], [data[i : i + 1] for i in range(len(data))]):
        found, other = _read_requests(pieces)
        assert (found, bool(other)) == (seen, bool(refusal))


def _target(data: bytes) -> None:
    info = parse_request("GET", _text(data))
    for part in (info.namespace, info.name, info.resource):
        assert "/" not in part
        assert part not in (".", "..")
    for name in ("limit", "timeoutSeconds"):
        info.number(name)
    info.flag("watch")


def _accept(data: bytes) -> None:
    negotiate(_text(data))


@cache
def _declared() -> Declared:
    made = declare(
        read_schema(
            {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "s": {"type": "string", "maxLength": 64},
                    "l": {"type": "array", "maxItems": 8, "items": {"type": "string"}},
                    "m": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
            }
        )
    )
    assert made is not None
    return made


def _cel(data: bytes) -> None:
    program = compile_expression(_text(data), _declared())
    value: Any = {"a": 5, "s": "text", "l": ["x", "y"], "m": {"k": 1}}
    convert = _declared().convert
    made = value if convert is None else convert(value)
    outcome = program.run({"self": made, "oldSelf": made}, cost_max=CEL_COST_MAX)
    assert outcome.error or isinstance(outcome.value, bool)


def _draw(size: int) -> bytes:
    return bytes(range(size))


_KEY: Final = LocalKey("k", b"0123456789abcdef0123456789abcdef")
_CIPHERS: Final[tuple[LocalCipher, ...]] = (
    AesGcm("aesgcm", _KEY, _draw),
    Secretbox("secretbox", _KEY, _draw),
    AesCbc("aescbc", _KEY, _draw),
)
_PLACE_OF_VALUE: Final = "/registry/secrets/default/x"
_SEALED: Final = tuple(each.seal(_PLACE_OF_VALUE, b'{"kind":"Secret"}') for each in _CIPHERS)


def _sealed(data: bytes) -> None:
    """Without the key no value can be created that decrypts, except where the cipher permits it."""
    for cipher, sealed in zip(_CIPHERS, _SEALED, strict=True):
        value = data if data.startswith(cipher.prefix) else cipher.prefix + data
        try:
            cipher.open(_PLACE_OF_VALUE, value)
        except WrongKey:
            continue
        assert value == sealed or isinstance(cipher, AesCbc)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_STATUS: Final = (StatusError,)
_SELECTORS: Final = (b"a=b,c!=d", b"a in (b,c),d notin (e),!f,g", b"n>5,n<7", b"a==b")

TARGETS: Final = (
    Target("json", _json, _STATUS, (orjson.dumps(POD), b'{"a":[1,2.5,"x\\u00e9",null,true]}')),
    Target("yaml", _yaml, _STATUS, (POD_YAML, b"a: [1, {b: c}]\nd: |\n  text\n")),
    Target(
        "protobuf envelope", _envelope, _STATUS,
        (protobuf.write_envelope("v1", "Pod", b"x")[len(protobuf.MAGIC) :],),
    ),
    Target(
        "protobuf", _protobuf, (),
        _protobuf_seeds(),
    ),
    Target(
        "message", _message, _STATUS,
        (orjson.dumps({"kind": "Pod", "apiVersion": "v1", **POD}),
         b'{"kind":"Status","apiVersion":"v1","details":{"causes":[{"field":"a"}]},"code":404}',
         b'{"kind":"EventList","apiVersion":"v1","items":[{"eventTime":"2026-01-02T03:04:05.6Z"}]}'),
    ),
    Target("JSON patch", _json_patch, _STATUS, PATCHES),
    Target("merge patch", _merge_patch, _STATUS, (b'{"a":{"b":null},"l":[1]}', b'{"a":5}')),
    Target("strategic patch", _strategic, _STATUS, STRATEGIC),
    Target("label selector", _label_selector, _STATUS, _SELECTORS),
    Target("field selector", _field_selector, _STATUS, (b"metadata.name=a,x!=y\\,z", b"a==b")),
    Target("quantity", _quantity, (ValueError,), (b"500m", b"1.5Gi", b"-2e3", b"1E", b"0.1n")),
    Target("continue token", _continue_token, _STATUS, (_TOKEN.encode(),)),
    Target(
        "JWT", _jwt, (jwt.JwtInvalid,),
        (_signing_key().sign(_CLAIMS).encode(),
         base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=") + b".e30.",),
    ),
    Target("HTTP", _http, (), HEADS),
    Target(
        "request target", _target, _STATUS,
        (b"/api/v1/namespaces/a/pods/b/log?limit=5&watch=1", b"/apis/g/v1/watch/things/%41"),
    ),
    Target(
        "Accept", _accept, _STATUS,
        (b"application/json;q=0.5,application/yaml",
         b"application/json;as=Table;v=v1;g=meta.k8s.io",
         b"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, */*"),
    ),
    Target("CEL", _cel, (CompileError,), RULES),
    Target("sealed value", _sealed, (), _SEALED),
    Target("TLS", tls.tls_program, (), tls.SEEDS),
    Target("HTTP response", protocols.http_response, protocols.HTTP_ERRORS, protocols.RESPONSES),
    Target("WebSocket handshake", protocols.websocket_handshake, _STATUS, protocols.UPGRADES),
    Target("WebSocket", protocols.websocket_frames, (), protocols.FRAMES),
    Target("JSONPath", protocols.json_path, (BadPath,), protocols.PATHS),
    Target("KMS envelope", protocols.kms_envelope, (ValueError,), protocols.ENVELOPES),
    Target("CSR", protocols.signing_request, (ValueError,), protocols.requests()),
    Target("control message", protocols.control_message, (), protocols.MESSAGES),
    Target("etcd snapshot", files.snapshot, files.FILE_ERRORS, files.SNAPSHOTS),
    Target("SQLite backup", files.sqlite_backup, files.FILE_ERRORS, files.STORE_PATCHES),
    Target("kubeconfig", files.kubeconfig, files.CONFIG_ERRORS, files.KUBECONFIGS),
)  # fmt: skip
