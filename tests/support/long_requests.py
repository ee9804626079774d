"""Requests as long as the limits of the server allow: every verb, form and kind of patch.

For `tests/unit/endpoints/test_bounded_steps.py` and `python -m benchmarks.steps`, which measure
the steps of the event loop while these requests are processed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.crds.building import CRDS, definition, version

GROUP: Final = "long.example.com"
KIND: Final = "Ruled"
PODS: Final = "/api/v1/namespaces/default/pods"
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
MANY: Final = "/api/v1/namespaces/many/configmaps"
RULED: Final = f"/apis/{GROUP}/v1/namespaces/default/ruleds"
LARGE: Final = f"/apis/{GROUP}/v1/namespaces/default/larges"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DRY: Final = "?dryRun=All"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
YAML: Final = "application/yaml"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class LongRequest:
    """A request, with the status code that is expected."""

    name: str
    method: str
    target: str
    body: Any = None
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


def pod(containers: int = 1, name: str = "p", **first: Any) -> dict[str, Any]:
    made: list[dict[str, Any]] = [{"name": f"c{i}", "image": "x"} for i in range(containers)]
    made[0].update(first)
    spec = {"containers": made}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def config_map(name: str = "c", keys: int = 0, **metadata: Any) -> dict[str, Any]:
    data = {f"k{i}": "x" for i in range(keys)}
    meta = {"name": name, **metadata}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": data}


def ruled_definition() -> dict[str, Any]:
    """A CRD with rules that cost nearly as much as a CRD may cost."""
    rule = "self.l.all(a, self.l.all(b, a != 'x')) || {} > 100"
    rules = [{"rule": rule.format(i)} for i in range(9)]
    items = {"type": "array", "maxItems": 450, "items": {"type": "string", "maxLength": 10}}
    spec = {
        "type": "object",
        "properties": {"l": items},
        "required": ["l"],
        "x-kubernetes-validations": rules,
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    return definition(GROUP, KIND, [version("v1", schema)], plural="ruleds")


def established(made: dict[str, Any]) -> dict[str, Any]:
    """A CRD as it is stored once its kind is served."""
    names, condition = made["spec"]["names"], {"type": "Established", "status": "True"}
    metadata = {**made["metadata"], "uid": "u"}
    return {
        **made,
        "metadata": metadata,
        "status": {"acceptedNames": names, "conditions": [condition]},
    }


def large_definition(nodes: int) -> dict[str, Any]:
    leaf = {"type": "object", "properties": {x: {"type": "string"} for x in "abc"}}
    schema = {"type": "object", "properties": {f"p{i}": leaf for i in range(nodes // 4)}}
    return definition(GROUP, "Large", [version("v1", schema)], plural="larges")


def large_object() -> dict[str, Any]:
    kind = {"kind": "Large", "apiVersion": f"{GROUP}/v1"}
    return {**kind, "metadata": {"name": "l"}, "p1": {"a": "x"}}


def long_writes() -> Iterator[LongRequest]:
    """Creates and reviews that store nothing."""
    yield LongRequest("pod, 15,000 containers", "POST", PODS + DRY, pod(15_000), 201)
    ports = [{"containerPort": 1 + i, "name": f"p{i}"} for i in range(20_000)]
    yield LongRequest("pod, 20,000 ports", "POST", PODS + DRY, pod(ports=ports), 201)
    env = [{"name": f"E{i}", "value": "x"} for i in range(20_000)]
    yield LongRequest("pod, 20,000 variables", "POST", PODS + DRY, pod(env=env), 201)
    invalid = [{"name": "-", "value": 1} for _ in range(20_000)]
    yield LongRequest("pod, 20,000 errors", "POST", PODS + DRY, pod(env=invalid), 400)
    bad = [{"containerPort": 0} for _ in range(20_000)]
    yield LongRequest("pod, 20,000 causes", "POST", PODS + DRY, pod(ports=bad), 422)
    finalizers = [f"a.b/{i}" for i in range(90_000)]
    yield LongRequest(
        "90,000 finalizers", "POST", CONFIG_MAPS + DRY, config_map(finalizers=finalizers), 201
    )
    labels = {f"l{i}": "x" for i in range(90_000)}
    yield LongRequest("90,000 labels", "POST", CONFIG_MAPS + DRY, config_map(labels=labels), 201)
    yield LongRequest(
        "18,000 values in YAML",
        "POST",
        CONFIG_MAPS + DRY,
        b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\ndata:\n"
        + b"".join(b"  k%d: x\n" % i for i in range(18_000)),
        201,
        {"Content-Type": YAML},
    )
    yield LongRequest("CRD, 16,000 nodes", "POST", CRDS + DRY, large_definition(16_000), 201)
    items = {"l": [f"i{i}" for i in range(440)]}
    ruled = {"kind": KIND, "apiVersion": f"{GROUP}/v1", "metadata": {"name": "r"}, "spec": items}
    yield LongRequest("rules of a CRD", "POST", RULED + DRY, ruled, 201)
    yield LongRequest("first object of a long CRD", "POST", LARGE + DRY, large_object(), 201)
    required = [{"key": f"k{i}", "operator": "In", "values": ["a"]} for i in range(15_000)]
    selector = {"labelSelector": {"requirements": required}}
    spec = {"resourceAttributes": {"verb": "list", "resource": "pods", **selector}}
    review = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": spec,
    }
    yield LongRequest("access review, 15,000 requirements", "POST", REVIEWS, review, 201)


def long_changes() -> Iterator[LongRequest]:
    """Changes of the stored objects `big` and `base`, as dry runs."""
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    big, base = f"{CONFIG_MAPS}/big{DRY}", f"{CONFIG_MAPS}/base{DRY}"
    data = config_map("big", 60_000)
    yield LongRequest("update", "PUT", big, {**data, "data": {**data["data"], "k0": "y"}})
    for name, kind in (
        ("merge patch", merge),
        ("strategic patch", merge.replace("merge", "strategic-merge")),
    ):
        headers = {"Content-Type": kind}
        yield LongRequest(f"long {name}", "PATCH", base, {"data": data["data"]}, headers=headers)
        yield LongRequest(
            f"{name} of a long object", "PATCH", big, {"data": {"k1": "z"}}, headers=headers
        )
    operations = [{"op": "add", "path": f"/data/k{i}", "value": "x"} for i in range(10_000)]
    headers = {"Content-Type": "application/json-patch+json"}
    yield LongRequest("JSON patch", "PATCH", base, operations, headers=headers)
    headers, manager = {"Content-Type": apply}, "&fieldManager=me"
    yield LongRequest(
        "long apply", "PATCH", base + manager, config_map("base", 60_000), headers=headers
    )
    small = {**config_map("big"), "data": {"n": "z"}}
    yield LongRequest("apply to a long object", "PATCH", big + manager, small, headers=headers)
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield LongRequest(
        "patch of a long pod", "PATCH", f"{PODS}/big{DRY}", labels, headers={"Content-Type": merge}
    )
    yield LongRequest("delete", "DELETE", big)
    yield LongRequest("deletecollection", "DELETE", f"{CONFIG_MAPS}{DRY}&labelSelector=a!%3Db")


def long_reads() -> Iterator[LongRequest]:
    for media in (JSON, YAML, PROTOBUF, TABLE, PARTIAL):
        for kind, path in (("ConfigMap", CONFIG_MAPS), ("pod", PODS)):
            yield LongRequest(
                f"get {kind}, {media}", "GET", f"{path}/big", headers={"Accept": media}
            )
    yield LongRequest("get, indented", "GET", f"{CONFIG_MAPS}/big?pretty=true")
    for media in (JSON, PROTOBUF, TABLE, PARTIAL_LIST):
        yield LongRequest(f"list, {media}", "GET", MANY, headers={"Accept": media})
    yield LongRequest(
        "list, Table of whole objects",
        "GET",
        f"{MANY}?includeObject=Object",
        headers={"Accept": TABLE},
    )
    yield LongRequest("list, YAML", "GET", f"{MANY}?limit=300", headers={"Accept": YAML})
    yield LongRequest("list, indented", "GET", f"{MANY}?pretty=true")
    yield LongRequest("list, selected", "GET", f"{MANY}?labelSelector=a%3Db")
    for media in (JSON, f"{PROTOBUF};stream=watch", TABLE, PARTIAL):
        yield LongRequest(
            f"watch, {media}",
            "GET",
            f"{MANY}?watch=1&timeoutSeconds=1&resourceVersion=0",
            headers={"Accept": media},
        )
        yield LongRequest(
            f"watch of long objects, {media}",
            "GET",
            f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0",
            headers={"Accept": media},
        )


def stored() -> Iterator[LongRequest]:
    """The objects that the other requests need."""
    for name in ("default", "many"):
        namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        yield LongRequest(name, "POST", "/api/v1/namespaces", namespace, 201)
    yield LongRequest("ConfigMap big", "POST", CONFIG_MAPS, config_map("big", 60_000), 201)
    yield LongRequest("ConfigMap base", "POST", CONFIG_MAPS, config_map("base", 1), 201)
    yield LongRequest("pod big", "POST", PODS, pod(5_000, "big"), 201)


def many(count: int, data_bytes: int = 10_000) -> Iterator[LongRequest]:
    """Objects for long lists."""
    for number in range(count):
        body = {**config_map(f"c{number}"), "data": {"k": "x" * data_bytes}}
        yield LongRequest("one of many", "POST", MANY, body, 201)
