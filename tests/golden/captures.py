"""Output that clients and scripts depend on, as plain values, kept in `tests/data/golden`.

A change that only moves or renames code leaves all captures unchanged. After an intended change:
`python -m tests.golden.captures`, and the commit shows the difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from restow.cli.main import COMMANDS, main
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import start_server
from tests.support.api_client import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL_LIST,
    STRATEGIC_PATCH,
    TABLE,
    ApiClient,
)
from tests.support.server_process import ServerProcess

FOLDER: Final = Path(__file__).parents[1] / "data" / "golden"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
HEADERS: Final = ("content-type", "warning", "retry-after", "cache-control", "allow")
MEASURED = "restow_event_loop_step_"
DIGEST_LENGTH: Final = 16
NS: Final = "/api/v1/namespaces/default"
CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
VOLATILE: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r'"age": ?"[^"]*"'), '"age":"AGE"'),
    (re.compile(r'"continue": ?"[^"]+"'), '"continue":"TOKEN"'),
)
BAD_WORDS: Final = (
    "",
    "--nonsense",
    "serve --nonsense",
    "serve --port 99999999",
    "status --kubeconfig missing.kubeconfig",
    "preflight --to x+9 --kubeconfig missing.kubeconfig",
    "migrate --kubeconfig missing.kubeconfig",
    "census --store sqlite:missing.db",
    "census --store nonsense:",
    "doctor --data-dir missing",
    "backup --store sqlite:missing.db out",
    "restore missing --data-dir somewhere",
    "store get --store sqlite:missing.db /registry/a",
    "upgrade --data-dir missing --to x+1",
)

Json = Any


def all_captures(directory: Path) -> dict[str, Json]:
    """Returns every capture by the name of its file."""
    return {
        "discovery": asyncio.run(_on_server(_discovery)),
        "openapi": asyncio.run(_on_server(_openapi)),
        "answers": asyncio.run(_on_server(_answers)),
        "help": dict(_help()),
        "exit_codes": dict(_exit_codes(directory)),
        **_of_process(directory),
    }


async def _on_server(capture: Callable[[ApiClient], Awaitable[Json]]) -> Json:
    server = await start_server(MemoryStorage())
    try:
        return await capture(server.client)
    finally:
        await server.stop()


async def _discovery(client: ApiClient) -> Json:
    """Returns each discovery document, in both forms, and the index of paths."""
    found = {"/": (await client.get("/")).json}
    for root in ("/api", "/apis"):
        found[root] = _plain((await client.get(root)).body)
        found[f"{root} aggregated"] = _plain((await client.get(root, accept=AGGREGATED)).body)
    for group in found["/apis"]["groups"]:
        for version in group["versions"]:
            path = f"/apis/{version['groupVersion']}"
            found[path] = (await client.get(path)).json
    found["/api/v1"] = (await client.get("/api/v1")).json
    return found


async def _openapi(client: ApiClient) -> Json:
    """Returns a digest of each path and each schema of each document."""
    found = {"/openapi/v2": _digests((await client.get("/openapi/v2")).json)}
    index = (await client.get("/openapi/v3")).json
    for name in index["paths"]:
        found[f"/openapi/v3/{name}"] = _digests((await client.get(f"/openapi/v3/{name}")).json)
    return found


def _digests(document: Json) -> dict[str, str]:
    parts = {**document.get("paths", {}), **document.get("definitions", {})}
    parts |= document.get("components", {}).get("schemas", {})
    return {name: _digest(part) for name, part in parts.items()}


def _digest(part: Json) -> str:
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


async def _answers(client: ApiClient) -> Json:
    """Returns replies to a series of requests: verbs, content types, subresources, and errors."""
    maps = f"{NS}/configmaps"
    deployment = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    applied = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"k":"v"}}'
    requests: list[tuple[str, str, Json, str | None, str | None]] = [
        ("POST", maps, CONFIG_MAP, None, None),
        ("POST", maps, CONFIG_MAP, None, None),
        ("POST", maps, {"metadata": {"name": "Not A Name"}}, None, None),
        ("POST", maps, b"{", None, None),
        ("POST", maps, b"a: [", "application/yaml", None),
        ("POST", maps, CONFIG_MAP, "text/plain", None),
        ("GET", f"{maps}/a", None, None, None),
        ("GET", f"{maps}/a", None, None, TABLE),
        ("GET", f"{maps}/a", None, None, "application/yaml"),
        ("GET", f"{maps}/a", None, None, "image/png"),
        ("GET", f"{maps}/missing", None, None, None),
        ("PUT", f"{maps}/a", {**CONFIG_MAP, "data": {"k": "1"}}, None, None),
        ("PUT", f"{maps}/a", {"metadata": {"name": "other"}}, None, None),
        ("PATCH", f"{maps}/a", {"data": {"k": "2"}}, MERGE_PATCH, None),
        ("PATCH", f"{maps}/a", {"data": {"m": "3"}}, STRATEGIC_PATCH, None),
        ("PATCH", f"{maps}/a", [{"op": "remove", "path": "/data/k"}], JSON_PATCH, None),
        ("PATCH", f"{maps}/a", [{"op": "test", "path": "/data/k", "value": 1}], JSON_PATCH, None),
        ("PATCH", f"{maps}/b?fieldManager=m", applied, APPLY_PATCH, None),
        ("PATCH", f"{maps}/b", applied, APPLY_PATCH, None),
        ("PATCH", f"{maps}/b?fieldManager=n", applied.replace(b'"v"', b'"w"'), APPLY_PATCH, None),
        ("GET", f"{maps}?limit=1", None, None, None),
        ("GET", f"{maps}?limit=x", None, None, None),
        ("GET", f"{maps}?labelSelector=a%3Db", None, None, None),
        ("GET", f"{maps}?fieldSelector=nonsense%3D1", None, None, None),
        ("GET", maps, None, None, PARTIAL_LIST),
        ("GET", f"{maps}?resourceVersion=99999999&resourceVersionMatch=Exact", None, None, None),
        ("POST", DEPLOYMENTS, deployment, None, None),
        ("POST", DEPLOYMENTS, {"metadata": {"name": "e"}, "spec": {}}, None, None),
        ("GET", f"{DEPLOYMENTS}/d/scale", None, None, None),
        ("PUT", f"{DEPLOYMENTS}/d/status", {"metadata": {"name": "d"}}, None, None),
        ("GET", "/apis/apps/v1beta2/namespaces/default/deployments/d", None, None, None),
        ("DELETE", f"{DEPLOYMENTS}/d?propagationPolicy=Nonsense", None, None, None),
        ("DELETE", f"{DEPLOYMENTS}/d", None, None, None),
        ("DELETE", f"{maps}/a", {"preconditions": {"uid": "another"}}, None, None),
        ("DELETE", f"{maps}/a", None, None, None),
        ("DELETE", maps, None, None, None),
        ("GET", "/apis/nonsense.example/v1/things", None, None, None),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}}, None, None),
        ("POST", "/api/v1/namespaces/missing/configmaps", CONFIG_MAP, None, None),
        ("GET", "/version", None, None, None),
        ("GET", "/nonsense", None, None, None),
    ]
    found = []
    for method, target, body, content_type, accept in requests:
        reply = await client.request(
            method, target, body, content_type=content_type or "application/json", accept=accept
        )
        found.append(
            {
                "request": f"{method} {target}" + (f" as {accept}" if accept else ""),
                "status": reply.status,
                "headers": {name: reply.headers[name] for name in HEADERS if name in reply.headers},
                "body": _plain(reply.body),
            }
        )
    return found


def _plain(body: bytes) -> Json:
    """Returns a body without the parts that differ from run to run."""
    text = body.decode()
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return json.loads(text) if text.startswith(("{", "[")) else text


def _help() -> Iterator[tuple[str, list[str]]]:
    for words in ([], *([command.name] for command in COMMANDS)):
        _, said, _ = _run(*words, "--help")
        yield " ".join(["restow", *words]), said.splitlines()


def _exit_codes(directory: Path) -> Iterator[tuple[str, Json]]:
    with contextlib.chdir(directory):
        for words in BAD_WORDS:
            code, _, said = _run(*words.split())
            last = said.strip().splitlines()[-1] if said.strip() else ""
            yield f"restow {words}", {"code": code, "says": last.replace(str(directory), "DIR")}


def _of_process(directory: Path) -> dict[str, Json]:
    """Returns shapes of `-o json`, and the metrics of a running server."""
    data = directory / "data"
    with ServerProcess(data, arguments=("--release", "x+1")) as server:
        widget = json.dumps({"metadata": {"name": "a"}, "spec": {}}).encode()
        path = "/apis/example.com/v1/namespaces/default/widgets"
        server.request("POST", path, widget)
        kubeconfig, store = str(server.kubeconfig), f"sqlite:{data / 'store.db'}"
        key = "/registry/example.com/widgets/default/a"
        asked = {
            "version": ("version",),
            "status": ("status", "--kubeconfig", kubeconfig),
            "preflight": ("preflight", "--kubeconfig", kubeconfig, "--to", "x+2"),
            "census": ("census", "--store", store),
            "store get": ("store", "get", "--store", store, key),
            "backup": ("backup", str(directory / "backup"), "--store", store),
        }
        shapes = {}
        for name, words in asked.items():
            code, said, told = _run(*words, "-o", "json")
            assert said, (name, code, told)
            shapes[name] = _shape(json.loads(said))
        _, text = server.get("/metrics")
    return {"json_shapes": shapes, "metrics": _metrics(text)}


def _metrics(text: str) -> Json:
    """Returns type and labels of each metric."""
    return {
        family.name: {"type": family.type, "labels": _labels(family)}
        for family in text_string_to_metric_families(text)
    }


def _labels(family: Metric) -> list[str]:
    if family.name.startswith(MEASURED):
        return []  # a fast machine has no samples
    return sorted({label for sample in family.samples for label in sample.labels})


def _shape(value: Json) -> Json:
    """Returns names and types without values; the items of a list have one shape."""
    match value:
        case dict():
            return {name: _shape(each) for name, each in value.items()}
        case list():
            merged: dict[str, Json] = {}
            for each in map(_shape, value):
                if not isinstance(each, dict):
                    return [each]
                merged |= each
            return [merged] if merged else []
        case None:
            return "null"
        case _:
            return type(value).__name__


def _run(*words: str) -> tuple[int, str, str]:
    """Runs a command in this process and returns its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def write_all() -> None:
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as directory:
        for name, found in all_captures(Path(directory)).items():
            (FOLDER / f"{name}.json").write_text(as_text(found), encoding="utf-8")


def as_text(found: Json) -> str:
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_all()
