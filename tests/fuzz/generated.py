"""Requests generated from our own OpenAPI documents: no 5xx replies, and each matches its document.

Half of them are valid, the others are not. The server runs in this process. The tests in
`test_generated_*.py` divide the API groups among them, so that they can run in parallel: a group
that
is in no other file is in the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

import orjson
import requests
import schemathesis
import uvloop
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from restow.aio import Runtime
from restow.storage.drivers import open_storage
from tests.conformance.api.servers import RunningServer, start_server
from tests.fuzz.objects import OBJECTS
from tests.sizes import SIZES
from tests.support.api_client import Reply

CORE: Final = ("api/v1",)
WORKLOADS: Final = ("apis/apps/", "apis/autoscaling/", "apis/batch/", "apis/networking.k8s.io/")
MODES: Final = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
NO_CONTENT: Final = 204
SERVER_ERROR: Final = 500
# A list at a future revision waits, and then gets a 504; a watch does not end by itself.
LEFT_OUT: Final = frozenset({"resourceVersion", "watch"})
NOT_SENT: Final = frozenset({"Host", "Content-Length", "Content-Type", "Connection"})
UNAVAILABLE: Final = 503
LATE: Final = 504
# Valid bodies of this cannot be generated from a schema.
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
NAMESPACE: Final = "default"
NAME: Final = "generated"
METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
JSON_PATCH: Final[dict[str, Any]] = {
    "type": "array",
    "maxItems": 3,
    "items": {
        "type": "object",
        "required": ["op", "path"],
        "properties": {
            "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
            "path": {"enum": ["", "/metadata/labels", "/spec", "/spec/x/0", "/kind", "/data/-"]},
            "from": {"enum": ["/metadata", "/spec", "/metadata/name", "/status"]},
            "value": {"type": ["object", "array", "string", "integer", "null"], "maxItems": 2},
        },
    },
}
# These proxy to running pods, which do not exist here.
NOT_RUNNING: Final = ("attach", "exec", "log", "portforward", "proxy")
WORDS: Final = {
    "dryRun": ("All",),
    "fieldValidation": ("Ignore", "Warn", "Strict"),
    "propagationPolicy": ("Background", "Foreground", "Orphan"),
}
KEPT: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})


@dataclass(slots=True)
class World:
    """A server, and its event loop."""

    runner: asyncio.Runner
    server: RunningServer
    statuses: dict[int, int] = field(default_factory=dict)
    """The number of replies per status code."""

    def ask(self, method: str, target: str, body: bytes = b"", **more: Any) -> Reply:
        client = self.server.client
        return self.runner.run(client.request(method, target, body or None, **more))

    def groups(self) -> list[str]:
        """Returns all groups: `api/v1` and others."""
        index = self.ask("GET", "/openapi/v3").json["paths"]
        return sorted(path for path in index if path.startswith("api"))


@contextmanager
def opened() -> Iterator[World]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        storage = runner.run(open_storage("memory:", Runtime.system()))
        server = runner.run(start_server(storage))
        made = World(runner, server)
        body = orjson.dumps({"metadata": {"name": NAMESPACE}})
        assert made.ask("POST", "/api/v1/namespaces", body).status == 201
        yield made
        runner.run(server.stop())
        runner.run(storage.close())


def try_groups(world: World, groups: Iterable[str], mode: GenerationMode) -> None:
    """Tests every operation of the groups, with several bodies and parameters."""
    for group in groups:
        document = world.ask("GET", f"/openapi/v3/{group}").json
        _shorten(document, mode)
        sent = operations = 0
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            assert isinstance(found, Ok), found
            made = _try_operation(world, found.ok(), mode)
            sent += made
            operations += made > 0
        # A group with one operation that takes input gets exactly its requests.
        assert sent > _requests(mode) - (operations == 1), group
    assert mode is GenerationMode.NEGATIVE or world.statuses[200]  # at least one request succeeded
    assert world.ask("GET", f"/api/v1/namespaces/{NAMESPACE}").status == 200


def _requests(mode: GenerationMode) -> int:
    is_good = mode is GenerationMode.POSITIVE
    return SIZES.generated_requests if is_good else SIZES.generated_requests_bad


def _shorten(document: dict[str, Any], mode: GenerationMode) -> None:
    """Removes parts that only make examples slow, and adds parts that the documents lack."""
    paths = document["paths"]
    if SIZES.generated_alike_once and mode is GenerationMode.NEGATIVE:
        _leave_distinct(paths)
    for path in paths.values():
        for method in METHODS.intersection(path):
            content = path[method].get("requestBody", {}).get("content", {})
            content.pop(PROTOBUF, None)
            if method == "patch" and mode is GenerationMode.POSITIVE:
                whole = path.get("put", {}).get("requestBody", {}).get("content", {})
                _give_schemas(content, whole.get("application/json", {}).get("schema"))
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        if "properties" not in schema:
            continue
        if len(schema["properties"]) > SIZES.generated_properties_max:
            schema["properties"] = _some(name, schema)
        if mode is GenerationMode.POSITIVE:
            schema.setdefault("additionalProperties", False)


def _give_schemas(content: dict[str, Any], whole: dict[str, Any] | None) -> None:
    """The document allows any patch; most values are no valid patch."""
    for media_type, described in content.items():
        if media_type == "application/json-patch+json":
            described["schema"] = JSON_PATCH
        elif whole is not None:
            described["schema"] = whole


def _leave_distinct(paths: dict[str, Any]) -> None:
    """Keeps every create, and one of each other operation that is the same for all kinds of a
    group."""
    chosen: dict[str, tuple[str, str]] = {}
    for path, described in paths.items():
        collection, _, subresource = path.partition("/{name}")
        alike = f"{collection.rpartition('/')[0]} {path == collection} {subresource}"
        for method in METHODS.intersection(described):
            key = f"{method} {path if method == 'post' else alike}"
            one = (method, path)
            chosen[key] = min(chosen.get(key, one), one, key=_draw)
    for path, described in paths.items():
        for method in METHODS.intersection(described):
            if (method, path) not in chosen.values():
                del described[method]


def _some(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of the fields of a schema: the required ones, and pseudorandomly selected
    others."""
    properties = schema["properties"]
    required = KEPT.union(schema.get("required", ()))
    drawn = sorted(properties, key=lambda key: (key not in required, _draw((name, key))))
    return {key: properties[key] for key in drawn[: SIZES.generated_properties_max]}


def _draw(parts: tuple[str, ...]) -> int:
    return crc32(" ".join(parts).encode())


def _try_operation(world: World, operation: Any, mode: GenerationMode) -> int:
    sent = 0

    # Derandomized, one function draws the same for all operations, so they would not differ.
    @seed(_draw((mode.value, operation.label)) if SIZES.hypothesis_derandomised else None)
    @settings(
        max_examples=_requests(mode),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case[Any]) -> None:
        nonlocal sent
        if mode is GenerationMode.POSITIVE:
            _complete(case)
            if case.method != "POST":
                _make(world, case)
        sent += _send(world, case)

    try:
        send()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # a plain GET has no invalid variant
    return sent


def _complete(case: Case[Any]) -> None:
    """Adds parts that a valid request needs and the document does not describe."""
    for key, name in (("namespace", NAMESPACE), ("name", NAME)):
        if key in case.path_parameters:
            case.path_parameters[key] = name
    for key, words in WORDS.items():
        if key in case.query:
            case.query[key] = words[_draw((str(case.query[key]),)) % len(words)]
    body: Any = case.body
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        return
    kind = case.operation.definition.raw.get("x-kubernetes-group-version-kind")
    if kind and case.method != "DELETE":
        body["apiVersion"] = "/".join(filter(None, (kind["group"], kind["version"])))
        body["kind"] = kind["kind"]
        body["metadata"] = {**body.get("metadata", {}), "name": NAME, "namespace": NAMESPACE}
        if "namespace" not in case.path_parameters:
            del body["metadata"]["namespace"]


def _make(world: World, case: Case[Any]) -> None:
    """Creates the object, unless its kind needs more than is known here."""
    path = case.operation.path.replace("{namespace}", NAMESPACE)
    collection, found, _ = path.partition("/{name}")
    if found:
        more = OBJECTS.get(collection.rpartition("/")[2], {})
        world.ask("POST", collection, orjson.dumps({**more, "metadata": {"name": NAME}}))


def _send(world: World, case: Case[Any]) -> bool:
    """Returns whether it could be sent: some generated headers are invalid, and clients cannot send
    them."""
    made = case.as_transport_kwargs(base_url="http://localhost")
    made["params"] = {
        name: value for name, value in (made.get("params") or {}).items() if name not in LEFT_OUT
    }
    try:
        prepared = requests.Request(**made).prepare()
    except (requests.exceptions.InvalidHeader, UnicodeError):
        return False
    body = prepared.body or b""
    assert isinstance(body, str | bytes)
    reply = world.ask(
        str(prepared.method),
        prepared.path_url,
        body.encode() if isinstance(body, str) else body,
        content_type=prepared.headers.get("Content-Type"),
        headers={name: value for name, value in prepared.headers.items() if name not in NOT_SENT},
    )
    world.statuses[reply.status] = world.statuses.get(reply.status, 0) + 1
    _check(reply, case.operation.path)
    return True


def _check(reply: Reply, path: str) -> None:
    expected = {LATE}
    if path.partition("/{name}/")[2].startswith(NOT_RUNNING):
        expected.add(UNAVAILABLE)
    assert reply.status < SERVER_ERROR or reply.status in expected, reply.body[:1000]
    if reply.status == NO_CONTENT:
        assert not reply.body
        return
    media_type = reply.header("content-type").partition(";")[0]
    if media_type == "application/json":
        said = reply.json
    elif media_type == "application/yaml":
        said = yaml.safe_load(reply.body)
    else:
        assert media_type in ("text/plain", PROTOBUF), media_type
        return
    if reply.status >= 400:
        assert (said["kind"], said["code"]) == ("Status", reply.status)
