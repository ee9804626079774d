"""Bad input: the right 4xx Status, never a 500, in bounded time and memory.

Each row is one request that a careless or hostile client may send. After every row the server
still answers, and nothing was stored.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pytest

from restow.testing.api_client import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    PROTOBUF,
    STRATEGIC_PATCH,
    YAML,
    ApiClient,
)
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map

SECONDS_MAX: Final = 5.0
"""Of CPU time, which a busy machine does not lengthen. The server is in this process."""
MIB: Final = 1024 * 1024
CONFIG_MAP: Final = f"{CONFIG_MAPS}/a"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
REASONS: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and the code of its answer."""

    name: str
    code: int | tuple[int, ...]
    method: str = "POST"
    target: str = CONFIG_MAPS
    body: Any = None
    content_type: str | None = JSON
    headers: dict[str, str] = field(default_factory=dict)


def create(name: str, code: int, body: Any, content_type: str | None = JSON) -> Case:
    return Case(f"create {name}", code, body=body, content_type=content_type)


def named(name: str, code: int, metadata: dict[str, Any]) -> Case:
    return Case(f"metadata {name}", code, body={"metadata": {"name": "x", **metadata}})


def patched(name: str, code: int, body: Any, content_type: str = MERGE_PATCH) -> Case:
    return Case(
        f"patch {name}", code, method="PATCH", target=CONFIG_MAP, body=body,
        content_type=content_type,
    )  # fmt: skip


def read(name: str, code: int | tuple[int, ...], target: str, **headers: str) -> Case:
    return Case(f"read {name}", code, method="GET", target=target, headers=headers)


def nested(depth: int, opening: bytes, closing: bytes, inside: bytes = b"1") -> bytes:
    return opening * depth + inside + closing * depth


def in_data(value: bytes) -> bytes:
    return b'{"metadata":{"name":"x"},"data":' + value + b"}"


BODIES = [
    create("no body", 400, b""),
    create("only spaces", 400, b"   "),
    create("broken JSON", 400, b'{"metadata":'),
    create("a list", 400, b"[]"),
    create("null", 400, b"null"),
    create("a number", 400, b"5"),
    create("a text", 400, b'"x"'),
    create("true", 400, b"true"),
    create("two values", 400, b"{}{}"),
    create("a comma too many", 400, b'{"metadata":{"name":"x"},}'),
    create("single quotes", 400, b"{'metadata':{}}"),
    create("a comment", 400, b'{"metadata":{"name":"x"}} // why'),
    create("a byte order mark", 400, b'\xef\xbb\xbf{"metadata":{"name":"x"}}'),
    create("UTF-16", 400, '{"metadata":{"name":"x"}}'.encode("utf-16")),
    create("overlong UTF-8", 400, b'{"metadata":{"name":"\xc0\xaf"}}'),
    create("broken UTF-8", 400, b'{"metadata":{"name":"\xff"}}'),
    create("a lone surrogate", 400, b'{"metadata":{"name":"x"},"data":{"k":"\\ud800"}}'),
    create("a NUL in the syntax", 400, b'{"metadata":{"name":"x"}\x00}'),
    create("NaN", 400, in_data(b"NaN")),
    create("Infinity", 400, in_data(b"-Infinity")),
    create("1e999", 400, in_data(b'{"k":1e999}')),
    create("an integer of 65 bits", 400, in_data(b'{"k":18446744073709551617}')),
    create("an integer of 5000 digits", 400, in_data(b'{"k":' + b"9" * 5000 + b"}")),
    create("lists, 300 deep", 400, in_data(nested(300, b"[", b"]"))),
    create("lists, 100000 deep", 400, in_data(nested(100_000, b"[", b"]"))),
    create("objects, 1000 deep", 400, in_data(nested(1000, b'{"a":', b"}"))),
    create("objects, 100000 deep", 400, in_data(nested(100_000, b'{"a":', b"}"))),
    create("3 MiB of opening brackets", 400, b"[" * (3 * MIB)),
    create("3 MiB of empty lists", 400, in_data(b"[" + b"[]," * (MIB - 50) + b"[]]")),
    create("a long text of backslashes", 400, b'{"a":"' + b"\\" * (2 * MIB) + b'"'),
    create("more than 3 MiB", 413, in_data(b'{"k":"' + b"x" * (3 * MIB) + b'"}')),
    create(
        "more than a config map holds", 422, in_data(b'{"k":"' + b"x" * (3 * MIB - 100) + b'"}')
    ),
    create("an unknown type", 415, b"{}", "application/x-nonsense"),
    create("a form", 415, b"a=b", "application/x-www-form-urlencoded"),
    create("CBOR", 415, b"\xa0", "application/cbor"),
    create("plain text", 415, b"{}", "text/plain"),
    create("a patch type", 415, b"{}", MERGE_PATCH),
    Case(
        "create more than can be stored",
        413,
        target=ROLES,
        body={
            "metadata": {"name": "x"},
            "rules": [{"verbs": ["get"], "nonResourceURLs": ["/" + "x" * 1_600_000]}],
        },
    ),
    create("gzip as JSON", 400, gzip.compress(b'{"metadata":{"name":"x"}}')),
]

YAML_BODIES = [
    create("YAML broken", 400, b"a: [", YAML),
    create("YAML of nothing", 400, b"", YAML),
    create("YAML comment only", 400, b"# nothing", YAML),
    create("YAML list", 400, b"- a", YAML),
    create("YAML two documents", 400, b"a: 1\n---\nb: 2", YAML),
    create("YAML tabs", 400, b"a:\n\t- b", YAML),
    create("YAML alias", 400, b"a: &x 1\nb: *x", YAML),
    create(
        "YAML alias bomb",
        400,
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%b]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 107)
        ),
        YAML,
    ),
    create("YAML merge key", 400, b"a: &x {b: 1}\nc:\n  <<: *x", YAML),
    create("YAML tag", 400, b"a: !!python/object/apply:os.system [x]", YAML),
    create("YAML binary tag", 400, b"metadata: {name: x}\ndata: !!binary aGk=", YAML),
    create("YAML nan", 400, b"metadata: {name: x}\ndata: {k: .nan}", YAML),
    create("YAML deep flow", 400, b"a: " + b"[" * 5000 + b"]" * 5000, YAML),
    create("YAML deep indent", 400, b"".join(b" " * i + b"a:\n" for i in range(600)), YAML),
    create("YAML broken UTF-8", 400, b"a: \xff", YAML),
    create("YAML key that is a list", 400, b"? [a]\n: b", YAML),
    create("YAML key that is a number", 400, b"metadata: {name: x}\n5: b\ndata: 7", YAML),
    create("YAML too long", 413, b"a: " + b"x" * (300 * 1024), YAML),
    create("YAML many short values", 413, b"a: [" + b"1," * 130_000 + b"1]", YAML),
    create("YAML of quotes", 422, b"a: " + b"'" * 200_000, YAML),
    create("YAML one long plain key", 422, b"? " + b"a b " * 60_000, YAML),
    create("YAML NUL", 400, b"a: \x00", YAML),
]

PROTOBUF_BODIES = [
    create("protobuf without the magic", 400, b"\x0a\x00", PROTOBUF),
    create("protobuf of nothing", 400, b"", PROTOBUF),
    create("protobuf of the magic alone", 422, b"k8s\x00", PROTOBUF),
    create("protobuf cut off", 400, b"k8s\x00\x0a\x20\x0a", PROTOBUF),
    create("protobuf with a huge length", 400, b"k8s\x00\x12\xff\xff\xff\xff\x0f", PROTOBUF),
    create("protobuf with an endless varint", 400, b"k8s\x00" + b"\xff" * 64, PROTOBUF),
    create("protobuf with groups", 400, b"k8s\x00" + b"\x0b" * 1000, PROTOBUF),
    create("protobuf of noise", 400, b"k8s\x00" + bytes(range(256)) * 16, PROTOBUF),
    create("protobuf in JSON", 400, b"k8s\x00\x0a\x00", JSON),
    create("JSON in protobuf", 400, b"{}", PROTOBUF),
]

TYPES = [
    create("kind of a number", 400, {"kind": 5, "metadata": {"name": "x"}}),
    create("another kind", 400, {"kind": "Secret", "metadata": {"name": "x"}}),
    create("another version", 400, {"apiVersion": "v2", "metadata": {"name": "x"}}),
    create("version of a list", 400, {"apiVersion": ["v1"], "metadata": {"name": "x"}}),
    create("metadata of a text", 400, {"metadata": "x"}),
    create("metadata of a list", 400, {"metadata": []}),
    create("data of a list", 400, {"metadata": {"name": "x"}, "data": []}),
    create("data of a text", 400, {"metadata": {"name": "x"}, "data": "y"}),
    create("data with a number", 400, {"metadata": {"name": "x"}, "data": {"k": 5}}),
    create("data with an object", 400, {"metadata": {"name": "x"}, "data": {"k": {}}}),
    create("data with a bad key", 422, {"metadata": {"name": "x"}, "data": {"a b": "c"}}),
    create("data with a climbing key", 422, {"metadata": {"name": "x"}, "data": {"..": "c"}}),
    create("data with a long key", 422, {"metadata": {"name": "x"}, "data": {"k" * 300: ""}}),
    create("binary data that is none", 400, {"metadata": {"name": "x"}, "binaryData": {"k": "%"}}),
    create("immutable of a text", 400, {"metadata": {"name": "x"}, "immutable": "yes"}),
    create("too much data", 422, {"metadata": {"name": "x"}, "data": {"k": "v" * (MIB + 10)}}),
]

METADATA = [
    create("no name", 422, {"metadata": {}}),
    create("no metadata", 422, {}),
    named("name of a number", 400, {"name": 5}),
    named("name empty", 422, {"name": ""}),
    named("name null", 422, {"name": None}),
    named("name with capitals", 422, {"name": "Abc"}),
    named("name with a slash", 422, {"name": "a/b"}),
    named("name that climbs", 422, {"name": "../secrets"}),
    named("name of dots", 422, {"name": ".."}),
    named("name with NUL", 422, {"name": "a\x00b"}),
    named("name with a line break", 422, {"name": "a\r\nX-Evil: 1"}),
    named("name from right to left", 422, {"name": "a\u202eb"}),
    named("name with a trailing line break", 422, {"name": "a\n"}),
    named("name in other digits", 422, {"name": "a\u0661"}),
    named("name too long", 422, {"name": "a" * 254}),
    named("name very long", 422, {"name": "a" * MIB}),
    named("prefix with a slash", 422, {"name": "", "generateName": "a/b-"}),
    named("prefix of a number", 400, {"name": "", "generateName": 5}),
    named("namespace of another", 400, {"namespace": "kube-system"}),
    named("namespace that climbs", 400, {"namespace": "../x"}),
    named("labels of a list", 400, {"labels": []}),
    named("labels of a text", 400, {"labels": "a=b"}),
    named("label of a number", 400, {"labels": {"a": 5}}),
    named("label with a bad key", 422, {"labels": {"a b": "c"}}),
    named("label with an empty key", 422, {"labels": {"": "c"}}),
    named("label with two slashes", 422, {"labels": {"a/b/c": "d"}}),
    named("label with a long key", 422, {"labels": {"k" * 64: "v"}}),
    named("label with a long prefix", 422, {"labels": {f"{'p' * 254}/k": "v"}}),
    named("label with a long value", 422, {"labels": {"k": "v" * 64}}),
    named("label with a bad value", 422, {"labels": {"k": "a b"}}),
    named("label with a line break", 422, {"labels": {"k": "v\n"}}),
    named("many bad labels", 422, {"labels": {f"bad key {i}": "" for i in range(20_000)}}),
    named("annotations of a list", 400, {"annotations": []}),
    named("annotation of an object", 400, {"annotations": {"a": {}}}),
    named("annotation with a bad key", 422, {"annotations": {"a b": ""}}),
    named("annotations too long", 422, {"annotations": {"a": "x" * (256 * 1024)}}),
    named("annotations many", 422, {"annotations": {f"k{i}": "x" * 20 for i in range(15_000)}}),
    named("finalizers of a text", 400, {"finalizers": "x.io/a"}),
    named("finalizer of a number", 400, {"finalizers": [5]}),
    named("finalizer without a domain", 422, {"finalizers": ["mine"]}),
    named("finalizer with spaces", 422, {"finalizers": ["x.io/a b"]}),
    named("finalizers of both kinds", 422, {"finalizers": ["orphan", "foregroundDeletion"]}),
    named("owners of an object", 400, {"ownerReferences": {}}),
    named("owner of a text", 400, {"ownerReferences": ["x"]}),
    named("owner without anything", 422, {"ownerReferences": [{}]}),
    named("owner with a number", 400, {"ownerReferences": [{"name": 5}]}),
    named(
        "two controllers",
        422,
        {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                for n in ("a", "b")
            ]
        },
    ),
    named("resource version on create", 400, {"resourceVersion": "1"}),
    named("resource version of a number", 400, {"resourceVersion": 1}),
    named("generation of a text", 400, {"generation": "1"}),
    named("creation time of a number", 400, {"creationTimestamp": 5}),
    named("creation time that is none", 400, {"creationTimestamp": "yesterday"}),
    named("managed fields of a text", 400, {"managedFields": "x"}),
]

PATCHES = [
    patched("of nothing", 415, b""),
    patched("broken", 400, b"{"),
    patched("merge with a list", 400, b"[]"),
    patched("merge with null", 400, b"null"),
    patched("merge 300 deep", 400, nested(300, b'{"a":', b"}")),
    patched("merge 100000 deep", 400, nested(100_000, b'{"a":', b"}")),
    patched("merge that removes metadata", 422, {"metadata": None}),
    patched("merge with metadata of a text", 422, {"metadata": "x"}),
    patched("merge with labels of a text", 400, {"metadata": {"labels": "x"}}),
    patched("merge with another name", 400, {"metadata": {"name": "b"}}),
    patched("merge with another namespace", 400, {"metadata": {"namespace": "b"}}),
    patched("merge with another kind", 400, {"kind": "Secret"}),
    patched("merge with data of a number", 400, {"data": 5}),
    patched("merge with a broken version", 400, {"metadata": {"resourceVersion": "x"}}),
    patched("merge with a version of a number", 400, {"metadata": {"resourceVersion": 5}}),
    patched("merge with a bad label", 422, {"metadata": {"labels": {"a b": "c"}}}),
    patched("merge too large", 413, b'{"a":"' + b"x" * (3 * MIB) + b'"}'),
    patched("JSON patch of an object", 400, {}, JSON_PATCH),
    patched("JSON patch of numbers", 400, [1], JSON_PATCH),
    patched("JSON patch broken", 400, b"[{", JSON_PATCH),
    patched("JSON patch without op", 400, [{"path": "/a"}], JSON_PATCH),
    patched("JSON patch without path", 400, [{"op": "remove"}], JSON_PATCH),
    patched("JSON patch without value", 400, [{"op": "add", "path": "/data/x"}], JSON_PATCH),
    patched("JSON patch with path of a number", 400, [{"op": "remove", "path": 5}], JSON_PATCH),
    patched(
        "JSON patch with index -1",
        (422),
        [
            {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/a"]},
            {"op": "remove", "path": "/metadata/finalizers/-1"},
        ],
        JSON_PATCH,
    ),
    patched(
        "JSON patch with index 01",
        422,
        [
            {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/a", "x.io/b"]},
            {"op": "remove", "path": "/metadata/finalizers/01"},
        ],
        JSON_PATCH,
    ),
    patched("JSON patch on the root", 422, [{"op": "remove", "path": ""}], JSON_PATCH),
    patched("JSON patch test", 422, [{"op": "test", "path": "/kind", "value": "x"}], JSON_PATCH),
    patched(
        "JSON patch move into itself",
        422,
        [{"op": "move", "from": "/data", "path": "/data/x"}],
        JSON_PATCH,
    ),
    patched(
        "JSON patch of 10001 operations",
        413,
        [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001,
        JSON_PATCH,
    ),
    patched(
        "JSON patch that doubles",
        (413),
        [{"op": "add", "path": "/data/l", "value": ["x" * 1000]}]
        + [{"op": "copy", "from": "/data/l", "path": "/data/l/-"}] * 40,
        JSON_PATCH,
    ),
    patched(
        "JSON patch 300 deep",
        400,
        b'[{"op":"add","path":"/data","value":' + nested(300, b"[", b"]") + b"}]",
        JSON_PATCH,
    ),
    patched("strategic with a list", 400, b"[]", STRATEGIC_PATCH),
    patched("strategic with a directive", 422, {"$patch": "explode"}, STRATEGIC_PATCH),
    patched("strategic that deletes all", 422, {"$patch": "delete"}, STRATEGIC_PATCH),
    patched("strategic 300 deep", 400, nested(300, b'{"a":', b"}"), STRATEGIC_PATCH),
    patched("of an unknown type", 415, {}, "application/x-patch"),
    patched("of JSON", 415, {}, JSON),
    patched("of apply", 415, {}, "application/apply-patch+yaml"),
    patched("of YAML", 415, b"a: 1", YAML),
]

PARAMETERS = [
    read("version of letters", 400, f"{CONFIG_MAPS}?resourceVersion=abc"),
    read("version negative", 400, f"{CONFIG_MAPS}?resourceVersion=-1"),
    read("version of 2^64", 400, f"{CONFIG_MAPS}?resourceVersion=18446744073709551616"),
    read("version in other digits", 400, f"{CONFIG_MAPS}?resourceVersion=%D9%A1"),
    read("version very long", 400, f"{CONFIG_MAPS}?resourceVersion={'1' * 10_000}"),
    read("version of a get", 400, f"{CONFIG_MAP}?resourceVersion=x"),
    read("limit of letters", 400, f"{CONFIG_MAPS}?limit=ten"),
    read("limit in hexadecimal", 400, f"{CONFIG_MAPS}?limit=0x10"),
    read("limit of 10000 digits", 400, f"{CONFIG_MAPS}?limit={'9' * 10_000}"),
    read("limit negative", 200, f"{CONFIG_MAPS}?limit=-5"),
    read("limit of 2^63", 200, f"{CONFIG_MAPS}?limit=9223372036854775808"),
    read("limit with a sign", 200, f"{CONFIG_MAPS}?limit=%2B5"),
    read("token of rubbish", 400, f"{CONFIG_MAPS}?continue=rubbish"),
    read("token of 50 KB", 400, f"{CONFIG_MAPS}?continue={'A' * 50_000}"),
    read("match unknown", 422, f"{CONFIG_MAPS}?resourceVersion=1&resourceVersionMatch=x"),
    read("timeout of letters", 400, f"{CONFIG_MAPS}?timeout=soon"),
    read("timeout without unit", 400, f"{CONFIG_MAPS}?timeout=5"),
    read("timeout of Go", 200, f"{CONFIG_MAPS}?timeout=1m2.5s"),
    read("timeout of zero", 200, f"{CONFIG_MAPS}?timeout=0s"),
    read("timeout negative", 200, f"{CONFIG_MAPS}?timeout=-5s"),
    read("timeout very long", 400, f"{CONFIG_MAPS}?timeout={'1' * 1000}s"),
    read("seconds of a watch", 400, f"{CONFIG_MAPS}?watch=1&timeoutSeconds=x"),
    read("watch of YAML", 406, f"{CONFIG_MAPS}?watch=1", Accept=YAML),
    read("labels with no key", 400, f"{CONFIG_MAPS}?labelSelector=%3Da"),
    read("labels with two operators", 400, f"{CONFIG_MAPS}?labelSelector=a%3D%3D%3Db"),
    read("labels with an open bracket", 400, f"{CONFIG_MAPS}?labelSelector=a%20in%20(b"),
    read("labels with nothing in brackets", 400, f"{CONFIG_MAPS}?labelSelector=a%20in%20()"),
    read("labels with a bad key", 400, f"{CONFIG_MAPS}?labelSelector=a/b/c%3Dd"),
    read("labels with a long value", 400, f"{CONFIG_MAPS}?labelSelector=a%3D{'b' * 64}"),
    read("labels compared with a text", 400, f"{CONFIG_MAPS}?labelSelector=a%3Eb"),
    read("labels with NUL", 400, f"{CONFIG_MAPS}?labelSelector=a%3D%00"),
    read("labels, 2000 of them", 400, f"{CONFIG_MAPS}?labelSelector={'a,' * 2000}a"),
    read("labels of 60 KB", 400, f"{CONFIG_MAPS}?labelSelector={'a' * 60_000}"),
    read("labels of 60 KB of brackets", 400, f"{CONFIG_MAPS}?labelSelector={'(' * 60_000}"),
    read("labels of 60 KB of negations", 400, f"{CONFIG_MAPS}?labelSelector={'!' * 60_000}"),
    read("fields unknown", 400, f"{CONFIG_MAPS}?fieldSelector=spec.a%3Db"),
    read("fields without operator", 400, f"{CONFIG_MAPS}?fieldSelector=metadata.name"),
    read("fields with a bad escape", 400, f"{CONFIG_MAPS}?fieldSelector=metadata.name%3D%5Cx"),
    read("fields of another kind", 400, f"{CONFIG_MAPS}?fieldSelector=involvedObject.name%3Dx"),
    read("fields that climb", 200, f"{CONFIG_MAPS}?fieldSelector=metadata.name%3D..%2F..%2Fx"),
    read("fields, 2000 of them", 400, f"{CONFIG_MAPS}?fieldSelector={'metadata.name!=a,' * 2000}"),
    read("200 parameters", 400, f"{CONFIG_MAPS}?{'a=b&' * 200}"),
    read("broken UTF-8 in the query", 400, f"{CONFIG_MAPS}?labelSelector=%FF"),
    read("a broken escape in the query", 200, f"{CONFIG_MAPS}?x=%ZZ"),
    read("an unknown parameter", 200, f"{CONFIG_MAPS}?nonsense=1"),
    Case("dry run of something", 422, target=f"{CONFIG_MAPS}?dryRun=Foo", body=config_map("x")),
    Case("dry run of nothing", 422, target=f"{CONFIG_MAPS}?dryRun=", body=config_map("x")),
    Case(
        "field validation unknown",
        422,
        target=f"{CONFIG_MAPS}?fieldValidation=Loose",
        body=config_map("x"),
    ),
    Case(
        "strict with duplicates",
        400,
        target=f"{CONFIG_MAPS}?fieldValidation=Strict",
        body=b'{"metadata":{"name":"x","name":"y"}}',
    ),
    Case(
        "strict with unknown fields",
        400,
        target=f"{CONFIG_MAPS}?fieldValidation=Strict",
        body={"metadata": {"name": "x"}, "a": 1},
    ),
    Case(
        "field manager too long",
        422,
        target=f"{CONFIG_MAPS}?fieldManager={'m' * 129}",
        body=config_map("x"),
    ),
    Case(
        "field manager with a line break",
        422,
        target=f"{CONFIG_MAPS}?fieldManager=a%0D%0AX:1",
        body=config_map("x"),
    ),
    Case(
        "field manager with NUL",
        422,
        target=f"{CONFIG_MAPS}?fieldManager=%00",
        body=config_map("x"),
    ),
    Case("force", 422, "PATCH", f"{CONFIG_MAP}?force=true", {}, MERGE_PATCH),
    Case(
        "include unknown",
        422,
        "GET",
        f"{CONFIG_MAPS}?includeObject=All",
        headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
    ),
]

PATHS = [
    read("two slashes", 400, "//api//v1"),
    read("an empty name", 400, "/api/v1/namespaces//configmaps"),
    read("a dot", 400, "/api/v1/./namespaces"),
    read("two dots", 400, "/api/v1/../v1/namespaces"),
    read("escaped dots", 400, "/api/v1/namespaces/%2e%2e/configmaps"),
    read("an escaped slash", 400, f"{CONFIG_MAPS}/a%2Fb"),
    read("an escaped NUL", 400, f"{CONFIG_MAPS}/a%00b"),
    read("an escaped percent sign", 400, f"{CONFIG_MAPS}/a%25b"),
    read("a double escape", 400, f"{CONFIG_MAPS}/%252e%252e"),
    read("broken UTF-8", 400, f"{CONFIG_MAPS}/%FF"),
    read("a broken escape", (400, 404), f"{CONFIG_MAPS}/%ZZ"),
    read("a path parameter", 404, f"{CONFIG_MAPS}/a;x=y"),
    read("a trailing dot", 404, f"{CONFIG_MAPS}/a."),
    read("capitals", 404, "/api/v1/namespaces/default/ConfigMaps"),
    read("a line break", 404, f"{CONFIG_MAPS}/a%0D%0AX-Evil:1"),
    read("other letters", 404, f"{CONFIG_MAPS}/%D0%B0"),
    read("a long name", 404, f"{CONFIG_MAPS}/{'a' * 5000}"),
    read("a long namespace", 200, f"/api/v1/namespaces/{'a' * 5000}/configmaps"),
    read("many segments", 404, f"{CONFIG_MAPS}/" + "a/" * 1000),
    Case("POST to a long namespace", 404, target=f"/api/v1/namespaces/{'a' * 5000}/configmaps",
         body=config_map("x")),
    Case("POST to a namespace that climbs", 400, target="/api/v1/namespaces/%2e%2e/configmaps",
         body=config_map("x")),
    Case("POST to a namespace in capitals", 404, target="/api/v1/namespaces/DEFAULT/configmaps",
         body=config_map("x")),
    Case("PUT of a name that is none", 422, "PUT", f"{ROLES}/a%3Ab%5Cc%20..",
         {"metadata": {"name": "a:b\\c .."}, "rules": [{}]}),
    Case("PUT of a long role", 422, "PUT", f"{ROLES}/{'a' * 2000}",
         {"metadata": {"name": "a" * 2000}}),
    Case("PUT of another name", 400, "PUT", CONFIG_MAP, config_map("b")),
    Case("PUT of a name of a number", 400, "PUT", CONFIG_MAP, {"metadata": {"name": 5}}),
    Case("PUT of no name", 400, "PUT", CONFIG_MAP, {}),
    Case("PUT with a broken version", 400, "PUT", CONFIG_MAP, config_map("a", resourceVersion="x")),
    Case("PUT with a version of 2^64", 409, "PUT", CONFIG_MAP,
         config_map("a", resourceVersion="18446744073709551616")),
    Case("PUT of nothing", 400, "PUT", CONFIG_MAP, b""),
    Case("PUT of what is too large", 413, "PUT", CONFIG_MAP,
         in_data(b'{"k":"' + b"x" * (3 * MIB) + b'"}')),
    Case("DELETE with a broken body", 400, "DELETE", CONFIG_MAP, b"{"),
    Case("DELETE with a list", 400, "DELETE", CONFIG_MAP, b"[]"),
    Case("DELETE with a deep body", 400, "DELETE", CONFIG_MAP, nested(100_000, b"[", b"]")),
    Case("DELETE with another type", 415, "DELETE", CONFIG_MAP, b"x", "text/plain"),
    Case("DELETE with broken protobuf", 400, "DELETE", CONFIG_MAP, b"k8s\x00\xff", PROTOBUF),
    Case("DELETE of all with a bad selector", 400, "DELETE", f"{CONFIG_MAPS}?labelSelector=%3D"),
    Case("DELETE of all with a bad body", 400, "DELETE", CONFIG_MAPS, b"["),
    Case("DELETE of all with a bad limit", 400, "DELETE", f"{CONFIG_MAPS}?limit=x"),
]  # fmt: skip

HEADERS = [
    read("Accept of nonsense", 406, CONFIG_MAP, Accept="nonsense/x"),
    read("Accept with a broken q", 406, CONFIG_MAP, Accept="application/json;q=x"),
    read("Accept with q NaN", 200, CONFIG_MAP, Accept="application/json;q=nan"),
    read("Accept of 5000 clauses", 406, CONFIG_MAP, Accept="a/b," * 5000),
    read("Accept of semicolons", 200, CONFIG_MAP, Accept="application/json" + ";" * 5000),
    read("method override", 200, CONFIG_MAP, **{"X-HTTP-Method-Override": "DELETE"}),
    read("remote user of a normal client", 200, CONFIG_MAP, **{"X-Remote-User": "root"}),
    read("a user agent of 10 KB", 200, CONFIG_MAP, **{"User-Agent": "a" * 10_000}),
    read("a tag of 10 KB", 200, "/apis", **{"If-None-Match": "a" * 10_000}),
    Case("encoded content", (400, 415), body=gzip.compress(b"x" * MIB),
         headers={"Content-Encoding": "gzip"}),
    Case("encoded patch", (400, 415), "PATCH", CONFIG_MAP, gzip.compress(b"{}"), MERGE_PATCH,
         headers={"Content-Encoding": "gzip"}),
]  # fmt: skip

REVIEWS = [
    Case("review of nothing", 422, target="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
         body={}),
    Case("review of a list", 400, target="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
         body=[]),
    Case("review with spec of a text", 400,
         target="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body={"spec": "x"}),
    Case("review with attributes of a text", 400,
         target="/apis/authorization.k8s.io/v1/subjectaccessreviews",
         body={"spec": {"resourceAttributes": "x"}}),
    Case("review with groups of a text", 400,
         target="/apis/authorization.k8s.io/v1/subjectaccessreviews",
         body={"spec": {"groups": "x", "nonResourceAttributes": {"path": "/"}}}),
    Case("token review of a number", 400, target="/apis/authentication.k8s.io/v1/tokenreviews",
         body={"spec": {"token": 5}}),
    Case("token review of a surrogate", 400, target="/apis/authentication.k8s.io/v1/tokenreviews",
         body=b'{"spec":{"token":"\\ud800"}}'),
    Case("scale of a list", 400, "PUT", "/apis/apps/v1/namespaces/default/deployments/x/scale", []),
    Case("finalize of a text", 400, "PUT", f"{NS}/finalize",
         {"metadata": {"name": "default"}, "spec": {"finalizers": "x"}}),
    Case("status of a text", 400, "PATCH", f"{NS}/status", {"status": "x"}, MERGE_PATCH),
]  # fmt: skip

CASES = [
    *BODIES,
    *YAML_BODIES,
    *PROTOBUF_BODIES,
    *TYPES,
    *METADATA,
    *PATCHES,
    *PARAMETERS,
    *PATHS,
    *HEADERS,
    *REVIEWS,
]


def test_the_cases_have_names_of_their_own() -> None:
    """No case hides another, and there are as many as was promised."""
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


async def ask(client: ApiClient, case: Case) -> None:
    begin = time.process_time()
    reply = await client.request(
        case.method,
        case.target,
        case.body,
        content_type=case.content_type,
        headers=case.headers,
    )
    seconds = time.process_time() - begin
    codes = case.code if isinstance(case.code, tuple) else (case.code,)
    assert reply.status in codes, reply.body[:500]
    assert seconds < SECONDS_MAX
    if reply.status >= 400:
        found = reply.json
        assert (found["kind"], found["status"], found["code"]) == (
            "Status",
            "Failure",
            reply.status,
        )
        assert found["reason"] == REASONS[reply.status]
        assert found["message"]
        assert len(reply.body) < 128 * 1024
        assert "x-evil" not in reply.headers


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_bad_input(server: RunningServer, case: Case) -> None:
    """The answer is the right 4xx, soon, and the server goes on with nothing changed."""
    api = server.client
    made = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    await ask(api, case)
    assert (await api.get(CONFIG_MAP)).json == made.json
    listed = await api.get(CONFIG_MAPS)
    assert listed.names == ["a"]
    assert listed.version == made.version


async def test_bad_input_does_not_hold_up_others(server: RunningServer) -> None:
    """While slow bodies are read, a get of another client is answered quickly."""
    await server.client.post(CONFIG_MAPS, config_map("a"))
    slow = [case for case in CASES if case.body is not None and len(_bytes(case.body)) > 100_000]
    assert len(slow) > 10
    worst = 0.0

    async def read_on() -> None:
        nonlocal worst
        while True:
            begin = time.process_time()
            assert (await server.client.get(CONFIG_MAP)).status == 200
            worst = max(worst, time.process_time() - begin)
            await asyncio.sleep(0.002)

    reading = asyncio.ensure_future(read_on())
    other = ApiClient(server.port, token="masters-token")
    try:
        for case in slow:
            await ask(other, case)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await other.close()
    assert worst < SECONDS_MAX / 2


async def test_memory_does_not_grow(server: RunningServer) -> None:
    """Requests that are all different leave nothing behind: no cache keeps them."""
    import tracemalloc

    api = server.client
    await api.post(CONFIG_MAPS, config_map("a"))

    async def load(label: str) -> None:
        for i in range(300):
            filler = f"{label}{i}".ljust(20_000, "x")
            await api.get(f"{CONFIG_MAPS}/{filler}")
            await api.get(f"{CONFIG_MAP}?x={filler}")
            await api.get(CONFIG_MAP, accept=f"application/json;a={filler[:8000]}")

    await load("warm")
    tracemalloc.start()
    await load("a")
    first = tracemalloc.get_traced_memory()[0]
    await load("b")
    second = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert second - first < 8 * MIB


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else orjson.dumps(body)
