"""Decoding and encoding of protobuf bodies."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.protobuf import decode, encode, read_envelope, write_envelope
from restow.apimachinery.protobuf_values import DEPTH_MAX, JSON_DEPTH_MAX, MESSAGES_MAX
from restow.apimachinery.status import (
    BadRequest,
    RequestEntityTooLarge,
    StatusError,
    UnsupportedMediaType,
)
from restow.apimachinery.typed_json import check
from restow.apimachinery.types import Field, Scalar, Struct
from restow.kinds.types import load_types
from tests.typed_values import struct_of, structs, values_of
from tests.unit.apimachinery.protobuf_twin import message_class

CONFIG_MAP = struct_of("", "v1", "ConfigMap")
SECRET = struct_of("", "v1", "Secret")
DEPLOYMENT = struct_of("apps", "v1", "Deployment")
LEASE = struct_of("coordination.k8s.io", "v1", "Lease")
POD = struct_of("", "v1", "Pod")
EVENT = struct_of("", "v1", "Event")
DEFINITION = struct_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
DELETE_OPTIONS = struct_of("", "v1", "DeleteOptions")

WORKED_FRAME = bytes.fromhex(
    "6b 38 73 00 0a 15 0a 07 61 70 70 73 2f 76 31 12 0a 44 65 70 6c 6f 79 6d 65 6e 74"
    "12 03 01 02 03 1a 00 22 00"
)

twin_of = cache(message_class)


def field(number: int, payload: bytes | str) -> bytes:
    """Return a field with a length; all numbers and lengths in these tests are short."""
    data = payload.encode() if isinstance(payload, str) else payload
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_the_envelope() -> None:
    """The envelope equals that of Kubernetes, byte for byte."""
    assert read_envelope(WORKED_FRAME) == ("apps/v1", "Deployment", b"\x01\x02\x03")
    assert write_envelope("apps/v1", "Deployment", b"\x01\x02\x03") == WORKED_FRAME


def test_zero_values_written_by_go_are_dropped() -> None:
    """Empty strings and zero numbers of fields that are not pointers are dropped."""
    meta = (
        field(1, "foo")
        + b"".join(field(number, "") for number in (2, 3, 4, 5, 6))
        + number_field(7, 0)
        + field(8, b"")
    )
    raw = field(1, meta) + field(2, b"") + field(3, field(1, ""))
    assert decode(struct_of("", "v1", "Namespace"), raw) == {
        "metadata": {"name": "foo"},
        "spec": {},
        "status": {},
    }


def test_zeros_of_pointers_are_kept() -> None:
    """`replicas: 0`, `leaseDurationSeconds: 0` and `optional: false` are kept."""
    deployment = decode(DEPLOYMENT, field(2, number_field(1, 0)))
    assert deployment["spec"]["replicas"] == 0
    assert decode(LEASE, field(2, number_field(2, 0)))["spec"] == {"leaseDurationSeconds": 0}
    options = decode(DELETE_OPTIONS, number_field(1, 0) + number_field(3, 0) + field(4, "Orphan"))
    assert options == {
        "gracePeriodSeconds": 0,
        "orphanDependents": False,
        "propagationPolicy": "Orphan",
    }
    reference = field(1, field(1, "cm")) + field(2, "key") + number_field(3, 0)
    env = field(1, "A") + field(3, field(3, reference))
    pod = decode(POD, field(2, field(2, field(7, env))))
    assert pod["spec"]["containers"][0]["env"] == [
        {
            "name": "A",
            "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key", "optional": False}},
        }
    ]


def test_an_empty_message_of_a_pointer_is_kept() -> None:
    """A security context without settings is kept; resources are always present."""
    nothing: dict[str, Any] = {}
    for written, expected in ((field(15, b""), {"securityContext": {}}), (b"", nothing)):
        pod = decode(POD, field(2, field(2, field(1, "c") + field(8, b"") + written)))
        assert pod["spec"]["containers"] == [{"name": "c", "resources": {}, **expected}]


def test_times_have_their_json_form() -> None:
    """Seconds for Time, six digits for MicroTime, absent for an empty message."""
    lease = field(1, field(8, number_field(1, 1_700_000_000) + number_field(2, 5)))
    moment = number_field(1, 1_700_000_000) + number_field(2, 123_456_789)
    lease += field(2, field(3, moment) + field(4, b""))
    assert decode(LEASE, lease) == {
        "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
        "spec": {"acquireTime": "2023-11-14T22:13:20.123456Z"},
    }
    early = decode(LEASE, field(1, field(8, number_field(1, -1))))
    assert early["metadata"] == {"creationTimestamp": "1969-12-31T23:59:59Z"}
    epoch = decode(LEASE, field(1, field(8, number_field(1, 0))))
    assert epoch["metadata"] == {"creationTimestamp": "1970-01-01T00:00:00Z"}
    with pytest.raises(BadRequest, match="years 1 to 9999"):
        decode(LEASE, field(1, field(8, number_field(1, 2**62))))


def test_bytes_become_base64_and_quantities_strings() -> None:
    """Values of a Secret are bytes on the wire; a limit is a message with a string."""
    entry = field(1, "k") + field(2, b"\xff\x00")
    assert decode(SECRET, field(2, entry))["data"] == {"k": "/wA="}
    limits = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    pod = decode(POD, field(2, field(2, field(1, "c") + field(8, limits))))
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}}
    for text in ("0.5", "500m", "+.50"):
        limits = field(1, field(1, "cpu") + field(2, field(1, text)))
        pod = decode(POD, field(2, field(2, field(8, limits))))
        assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}}
    limits = field(1, field(1, "cpu") + field(2, field(1, "lots")))
    with pytest.raises(BadRequest, match="quantities must match"):
        decode(POD, field(2, field(2, field(8, limits))))


@pytest.mark.parametrize(
    ("payload", "port"),
    [
        (number_field(1, 0) + number_field(2, 80) + field(3, ""), 80),
        (number_field(1, 1) + number_field(2, 0) + field(3, "http"), "http"),
        (b"", 0),
        (number_field(2, -1), -1),
    ],
)
def test_a_port_is_a_number_or_a_name(payload: bytes, port: Any) -> None:
    """The type field selects the number or the string."""
    get = field(1, "/") + field(2, payload)
    probe = field(1, field(2, get))
    pod = decode(POD, field(2, field(2, field(10, probe))))
    liveness = pod["spec"]["containers"][0]["livenessProbe"]
    assert liveness == {"httpGet": {"path": "/", "port": port}}


def test_embedded_json_is_json_again() -> None:
    """Field sets and raw extensions are parsed; invalid or too deep JSON is rejected."""

    def managed(raw: bytes) -> dict[str, Any]:
        return decode(CONFIG_MAP, field(1, field(17, field(7, field(1, raw)))))

    entry = managed(b'{"f:data":{}}')["metadata"]["managedFields"][0]
    assert entry == {"fieldsV1": {"f:data": {}}}
    revision = struct_of("apps", "v1", "ControllerRevision")
    value = decode(revision, field(2, field(1, b'{"a":[1]}')) + number_field(3, 7))
    assert value == {"metadata": {}, "data": {"a": [1]}, "revision": 7}
    for raw in (b"{", b"\xff", b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1)):
        with pytest.raises(BadRequest):
            managed(raw)
        with pytest.raises(BadRequest):
            decode(revision, field(2, field(1, raw)))
    with pytest.raises(BadRequest, match="embedded object must be JSON"):
        decode(revision, field(2, field(1, WORKED_FRAME)))


def test_wrapped_lists_and_unions_have_their_json_form() -> None:
    """Extra values of a user are lists, and schema unions have the value that they contain."""
    extra = field(1, "k") + field(2, field(1, "a") + field(1, "b"))
    review = decode(struct_of("authorization.k8s.io", "v1", "SubjectAccessReview"), b"")
    assert review == {"metadata": {}, "spec": {}, "status": {"allowed": False}}
    review = decode(
        struct_of("authorization.k8s.io", "v1", "SubjectAccessReview"), field(2, field(5, extra))
    )
    assert review["spec"] == {"extra": {"k": ["a", "b"]}}
    schema = (
        field(24, field(1, field(5, "string")))
        + field(30, number_field(1, 0))
        + field(32, field(1, "d") + field(2, field(2, "x")))
        + field(33, number_field(1, 1) + field(2, b""))
        + field(20, field(1, b"null"))
        + b"\x59\x00\x00\x00\x00\x00\x00\x00\x40"
    )
    version = field(1, "v1") + field(4, field(1, schema))
    definition = decode(DEFINITION, field(2, field(7, version)))
    assert definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "items": {"type": "string"},
        "additionalProperties": False,
        "dependencies": {"d": ["x"]},
        "additionalItems": {},
        "enum": [None],
        "minimum": 2,
    }


def test_numbers_may_be_packed() -> None:
    """A list of numbers may be packed or not; negative numbers have ten bytes."""
    spec_field, groups = 2, 4
    one_by_one = number_field(groups, 1) + number_field(groups, -2)
    packed = field(groups, varint(1) + varint(-2))
    for context in (one_by_one, packed, number_field(groups, 1) + field(groups, varint(-2))):
        pod = decode(POD, field(spec_field, field(14, context)))
        assert pod["spec"]["securityContext"] == {"supplementalGroups": [1, -2]}


def test_unknown_fields_are_skipped() -> None:
    """Unknown fields of newer clients are ignored, in any wire type."""
    unknown = (
        number_field(900, 7)
        + field(901, "x" * 200)
        + varint(902 << 3 | 1)
        + bytes(8)
        + varint(903 << 3 | 5)
        + bytes(4)
    )
    raw = unknown + field(1, unknown + field(1, "a") + unknown) + unknown
    assert decode(CONFIG_MAP, raw) == {"metadata": {"name": "a"}}


def test_map_entries_may_have_any_form() -> None:
    """Key and value in any order, repeated, or missing; the last one wins."""
    entries = (
        field(2, field(2, "v") + field(1, "k"))
        + field(2, field(1, "empty"))
        + field(2, field(1, "x") + field(1, "twice") + field(2, "a") + field(2, "b"))
        + field(2, field(1, "known") + field(2, "c") + number_field(9, 1))
        + field(2, b"")
    )
    assert decode(CONFIG_MAP, entries)["data"] == {
        "k": "v",
        "empty": "",
        "twice": "b",
        "known": "c",
        "": "",
    }


def test_repeated_fields() -> None:
    """Repeated messages are merged; of repeated scalars the last one wins, even if it is zero."""
    meta = field(1, "a") + number_field(7, 3) + field(3, "ns") + field(3, "") + number_field(7, 0)
    raw = field(1, meta) + field(1, field(1, "b") + field(2, "g-"))
    assert decode(CONFIG_MAP, raw) == {"metadata": {"name": "b", "generateName": "g-"}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x0a", "unexpected end"),
        (b"\x0a\x05abc", "unexpected end"),
        (b"\x0a\x80", "unexpected end"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "unexpected end"),
        (b"\x0a" + b"\xff" * 10 + b"\x01", "integer overflow"),
        (b"\x0a" + b"\xff" * 9 + b"\x7f", "integer overflow"),
        (b"\x80" * 1000, "integer overflow"),
        (b"\x08\x01", "wrong wireType = 0 for field 1"),
        (b"\x00\x01", "illegal tag"),
        (b"\xfb\x07\x01", "wireType = 3 is not supported"),
        (b"\xfe\x07\x01", "wireType = 6 is not supported"),
        (field(1, field(1, b"\xff")), "UTF-8"),
        (field(1, b"\x38"), "unexpected end"),
        (field(1, b"\x38\x80") + b"\x01", "unexpected end"),
        (field(1, b"\x0a\x03") + b"abc", "unexpected end"),
        (field(1, field(8, b"\x0a\x00")), "wrong wireType"),
        (field(2, b"\x08\x01"), "wrong wireType"),
        (field(2, b"\x0a\x03\x12\x00"), "unexpected end"),
    ],
)
def test_a_malformed_message_is_refused(raw: bytes, message: str) -> None:
    """Each kind of malformed message is a 400 with its reason."""
    with pytest.raises(BadRequest, match=message):
        decode(CONFIG_MAP, raw)


@pytest.mark.parametrize(
    "body", [b"", b"k8s", b"{}", b"k8s\x00\x0a", b"k8s\x00\x08\x01", b"k8s\x00\x10\x01"]
)
def test_a_malformed_envelope_is_refused(body: bytes) -> None:
    """A body without magic, truncated, or with wrong wire types is a 400."""
    with pytest.raises(BadRequest):
        read_envelope(body)


def test_endless_nesting_is_refused() -> None:
    """Recursive schemas end in a 400, not in a RecursionError."""

    def nested(depth: int) -> bytes:
        schema = b""
        for _ in range(depth):
            schema = field(28, schema)
        return field(2, field(7, field(4, field(1, schema))))

    decode(DEFINITION, nested(DEPTH_MAX - 5))
    for depth in (DEPTH_MAX, 5000):
        with pytest.raises(BadRequest, match="nested deeper"):
            decode(DEFINITION, nested(depth))


def test_a_flood_of_empty_messages_is_refused() -> None:
    """Empty messages of two bytes each cannot expand to unlimited memory."""
    with pytest.raises(BadRequest, match="more than"):
        decode(POD, field(2, b"\x12\x00" * (MESSAGES_MAX + 1)))


def test_a_body_that_is_too_large_is_refused() -> None:
    """The size limit of bodies applies."""
    body = WORKED_FRAME + bytes(3 * 1024 * 1024)
    with pytest.raises(RequestEntityTooLarge):
        read_envelope(body)
    with pytest.raises(RequestEntityTooLarge):
        decode(CONFIG_MAP, body)


def test_every_type_of_the_tables_can_be_read_and_written() -> None:
    """Fields are compiled on first use, so this test compiles all types."""
    types = load_types()
    for group, version in types.group_versions():
        for struct in types.structs(group, version):
            if struct.by_number:
                empty = decode(struct, b"")
                assert decode(struct, encode(struct, empty)) == empty, struct.name


def test_a_kind_without_numbers_has_no_protobuf_form() -> None:
    """All its fields would be unknown, so the body is rejected rather than decoded as empty."""
    name = Field(json="name", type=Scalar.STRING)
    struct = Struct(name="com.example.v1.Thing", fields=(name,), table=CONFIG_MAP.table)
    with pytest.raises(UnsupportedMediaType):
        decode(struct, field(1, "a"))


def canonical(data: st.DataObject) -> tuple[Struct, dict[str, Any]]:
    struct = data.draw(structs)
    return struct, check(struct, data.draw(values_of(struct))).value


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    """Decoding an encoded canonical object returns it, for any kind."""
    struct, value = canonical(data)
    assert decode(struct, encode(struct, value)) == value


@given(st.data())
def test_the_official_library_reads_and_writes_the_same(data: st.DataObject) -> None:
    """The library decodes our bytes without unknown fields, and we decode its bytes equally."""
    struct, value = canonical(data)
    raw = encode(struct, value)
    message = twin_of(struct)()
    message.ParseFromString(raw)
    # The library does not sort maps, so the bytes may differ, but not their number.
    again = message.SerializeToString(deterministic=True)
    assert len(again) == len(raw)
    assert decode(struct, again) == value


@given(st.data())
def test_json_and_protobuf_bodies_give_the_same_object(data: st.DataObject) -> None:
    """An object decoded from protobuf is canonical."""
    struct, value = canonical(data)
    decoded = decode(struct, encode(struct, value))
    assert check(struct, decoded) == (decoded, [])


@given(structs, st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(struct: Struct, raw: bytes) -> None:
    """Random bytes raise nothing but a StatusError."""
    for read in (lambda: decode(struct, raw), lambda: read_envelope(b"k8s\x00" + raw)):
        try:
            read()
        except StatusError as error:
            assert error.code == 400  # noqa: PT017 - whether it raises depends on the bytes


@given(st.data())
def test_damaged_messages_are_read_or_refused(data: st.DataObject) -> None:
    """Messages with a changed, removed or added byte raise nothing but a StatusError."""
    struct, value = canonical(data)
    raw = bytearray(encode(struct, value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        decoded = decode(struct, bytes(raw))
    except BadRequest:
        return
    assert check(struct, decoded).unknown == []


def test_nulls_in_lists_and_maps_become_zeros() -> None:
    """Null in lists and maps is the zero of its type, as when Go decodes it from JSON."""
    meta = {"finalizers": [None, "a"], "labels": {"l": None}, "ownerReferences": [None]}
    raw = encode(CONFIG_MAP, {"metadata": meta, "binaryData": {"b": None}})
    found = decode(CONFIG_MAP, raw)
    assert found["metadata"]["finalizers"] == ["", "a"]
    assert found["metadata"]["labels"] == {"l": ""}
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "", "kind": "", "name": "", "uid": ""}
    ]
    assert found["binaryData"] == {"b": ""}
    quota = struct_of("", "v1", "ResourceQuota")
    found = decode(quota, encode(quota, {"spec": {"hard": {"pods": None}}}))
    assert found["spec"] == {"hard": {"pods": "0"}}


def test_zero_values_are_written() -> None:
    """Fields that are not pointers are written even if they are empty, ordered by number."""
    meta = encode(CONFIG_MAP, {"metadata": {"name": "a"}})
    empties = b"".join(field(number, "") for number in (2, 3, 4, 5, 6))
    assert meta == field(1, field(1, "a") + empties + number_field(7, 0) + field(8, b""))
