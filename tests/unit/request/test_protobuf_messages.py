"""Protobuf responses, byte by byte."""

from __future__ import annotations

from typing import Any

import orjson

from restow.apimachinery.protobuf import decode, read_envelope, write_envelope
from restow.audit.bodies import name_in as name_in_answer
from restow.audit.bodies import response_body, status_part
from restow.httpserver import HttpResponse
from restow.request.protobuf_messages import (
    event_frame,
    items_of,
    list_message,
    message_of,
    name_in,
    read_message,
    struct_of,
)
from restow.request.responses import JSON_HEADERS
from tests.typed_values import struct_of as struct_of_kind

# {"metadata": {"name": "a"}} as Go encodes it: with every non-pointer field of metadata.
METADATA = b"\x0a\x11\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x008\x00B\x00"
TYPE = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"


def body(**fields: Any) -> bytes:
    return orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", **fields})


def test_an_object() -> None:
    """An object is encoded as the magic, its type, and its message with all fields that Go
    writes."""
    message = b"k8s\x00" + TYPE + b"\x12\x13" + METADATA + b"\x1a\x00\x22\x00"
    assert message_of(body(metadata={"name": "a"})) == message
    assert read_message(message) == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a"},
    }


def test_an_event_has_no_envelope_of_its_own() -> None:
    """An event is preceded by its length; only its object has an envelope."""
    obj = b"k8s\x00" + TYPE + b"\x12\x13" + METADATA + b"\x1a\x00\x22\x00"
    event = b"\x0a\x05ADDED\x12" + bytes([len(obj) + 2]) + b"\x0a" + bytes([len(obj)]) + obj
    frame = event_frame(b"ADDED", body(metadata={"name": "a"}))
    assert frame == bytes([0, 0, 0, len(event)]) + event


def test_a_list() -> None:
    """List items are encoded without their type; zero values of list metadata are encoded too."""
    items = items_of("v1", "ConfigMap", [body(metadata={"name": "a"}, data={"k": "v"})] * 2)
    metadata = {"resourceVersion": "7", "remainingItemCount": 3}
    raw = read_envelope(list_message("v1", "ConfigMapList", metadata, [items])).raw
    assert raw.startswith(b"\x0a\x09\x0a\x00\x12\x017\x1a\x00\x20\x03\x12\x1b" + METADATA)
    assert decode(struct_of_kind("", "v1", "ConfigMapList"), raw) == {
        "metadata": metadata,
        "items": [{"metadata": {"name": "a"}, "data": {"k": "v"}}] * 2,
    }


def test_kinds_without_protobuf_encoding() -> None:
    """Kinds without field numbers, bodies without a type, and plain text are returned unchanged."""
    assert struct_of("migration.k8s.io/v1alpha1", "StorageState") is None
    assert message_of(b'{"kind":"StorageState","apiVersion":"migration.k8s.io/v1alpha1"}') is None
    for other in (
        b"{}",
        b"[]",
        b'{"kind":1,"apiVersion":"v1"}',
        b'{"kind":"Pod","apiVersion":"/v1"}',
        b'{"kind":"No","apiVersion":"v1"}',
    ):
        assert message_of(other) is None


def test_values_of_other_writers() -> None:
    """Nulls, and values in another form than this server's, are corrected or left as JSON."""
    old = body(metadata={"name": "a", "creationTimestamp": None}, data={"k": None}, more=1)
    message = message_of(old)
    assert message is not None
    assert read_message(message)["data"] == {"k": ""}
    pod = {"containers": [{"name": "c", "resources": {"limits": {"cpu": 2}}}]}
    message = message_of(orjson.dumps({"kind": "Pod", "apiVersion": "v1", "spec": pod}))
    assert message is not None
    (container,) = read_message(message)["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "2"}}
    for wrong in ({"data": 5}, {"data": {"k": 5}}, {"metadata": {"creationTimestamp": "now"}}):
        assert message_of(body(**wrong)) is None
        assert event_frame(b"ADDED", body(**wrong)).endswith(body(**wrong))


def test_the_audit_log_reads_messages() -> None:
    """A protobuf response is recorded as if it had been JSON."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    message = message_of(orjson.dumps(status | {"details": {"name": "a"}}))
    assert message is not None
    assert b'"details":{"name":"a"}' in status_part(
        HttpResponse(200, message, JSON_HEADERS), is_secret=False
    )
    message = message_of(body(metadata={"name": "made-up", "namespace": "n"}))
    assert message is not None
    answer = HttpResponse(201, message, JSON_HEADERS)
    assert name_in_answer(answer) == name_in(message) == "made-up"
    found = orjson.loads(response_body(answer, omits_managed_fields=False).text)
    assert found["metadata"] == {"name": "made-up", "namespace": "n"}
    broken = HttpResponse(200, write_envelope("v1", "Unheard", b"\x01"), JSON_HEADERS)
    assert not response_body(broken, omits_managed_fields=False).text
