"""Writes of custom objects: pruning, defaults, validation, and subresources."""

from __future__ import annotations

import pytest

from tests.conformance.custom.servers import Custom, causes, until
from tests.crds import certificates, gateways, small
from tests.crds.building import (
    ANYTHING,
    UNCHECKED,
    Family,
    Json,
    Maker,
    array,
    definition,
    integer,
    list_map,
    mapping,
    rule,
    struct,
    text,
    version,
)
from tests.support.api_client import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    YAML,
    ApiClient,
)


def one(group: str, spec: Json, **traits: object) -> Family:
    """A kind with one version and this spec."""
    schema = struct({"spec": spec, "status": struct({"phase": text(), "n": integer(default=1)})})
    return Family(definition=definition(group, "Widget", [version("v1", schema, **traits)]))  # type: ignore[arg-type]


async def test_pruning(group: str, custom: Custom, api: ApiClient) -> None:
    """Unknown fields are dropped at every depth, except where the schema preserves them."""
    spec = struct(
        {
            "known": struct({"a": text()}),
            "list": array(struct({"a": text()})),
            "map": mapping(struct({"a": text()})),
            "open": struct({"closed": struct({"a": text()})}, **ANYTHING),
        }
    )
    family = await custom.use(one(group, spec))
    obj = Maker(group, "v1", "Widget").good(
        "a",
        {
            "known": {"a": "b", "x": 1},
            "list": [{"a": "b", "x": 1}, {}],
            "map": {"k": {"a": "b", "x": 1}},
            "open": {"any": {"x": [1]}, "closed": {"a": "b", "x": 1}},
            "x": 1,
        },
        x=1,
    )
    obj["metadata"] |= {"x": 1, "labels": {"a": "b"}}
    made = await custom.create(family, obj)
    assert made["spec"] == {
        "known": {"a": "b"},
        "list": [{"a": "b"}, {}],
        "map": {"k": {"a": "b"}},
        "open": {"any": {"x": [1]}, "closed": {"a": "b"}},
    }
    assert "x" not in made
    assert "x" not in made["metadata"]
    assert (await api.get(family.path("a"))).json == made


async def test_field_validation(group: str, custom: Custom, api: ApiClient) -> None:
    """Unknown and duplicate fields are refused, warned of or ignored, according to
    fieldValidation."""
    family = await custom.use(small.widget(group))
    body = (
        f'{{"apiVersion":"{group}/v1","kind":"Widget","metadata":{{"name":"a"}},'
        '"spec":{"size":1,"size":2,"x":1}}'
    ).encode()
    strict = await api.post(f"{family.path()}?fieldValidation=Strict", body)
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.x"' in strict.message
    assert 'duplicate field "spec.size"' in strict.message
    warned = await api.post(f"{family.path()}?fieldValidation=Warn&dryRun=All", body)
    assert warned.status == 201
    assert sorted(warned.warnings) == [
        '299 - "duplicate field \\"spec.size\\""',
        '299 - "unknown field \\"spec.x\\""',
    ]
    ignored = await api.post(f"{family.path()}?fieldValidation=Ignore", body)
    assert (ignored.status, ignored.warnings) == (201, [])
    assert ignored.json["spec"] == {"size": 2, "colour": "grey"}


async def test_defaults(group: str, custom: Custom) -> None:
    """Defaults fill missing fields, nested ones too; a null counts as missing where it is not
    allowed."""
    spec = struct(
        {
            "a": struct({"b": integer(default=1)}, default={}),
            "c": struct({"d": integer(default=2)}),
            "list": list_map(struct({"k": text(), "v": text(default="w")}, "k"), "k"),
            "null": text(default="x"),
            "nullable": text(default="y", nullable=True),
            "kept": text(nullable=True),
        }
    )
    family = await custom.use(one(group, spec))
    made = await custom.create(
        family,
        Maker(group, "v1", "Widget").good(
            "a", {"list": [{"k": "one"}], "null": None, "nullable": None, "kept": None}
        ),
    )
    assert made["spec"] == {
        "a": {"b": 1},
        "list": [{"k": "one", "v": "w"}],
        "null": "x",
        "nullable": None,
        "kept": None,
    }
    assert "status" not in made


async def test_patches(group: str, custom: Custom, api: ApiClient) -> None:
    """Merge and JSON patches work; strategic merge patches are not supported for custom
    resources."""
    family = await custom.use(small.widget(group))
    await custom.create(family, family.good[0])
    path = family.path("a")
    merged = await api.patch(path, {"spec": {"tags": ["x"], "size": None, "y": 1}}, MERGE_PATCH)
    assert (merged.status, merged.json["spec"]) == (200, {"colour": "grey", "tags": ["x"]})
    assert merged.json["metadata"]["generation"] == 2
    operations = [{"op": "add", "path": "/spec/tags/-", "value": "y"}]
    patched = await api.patch(path, operations, JSON_PATCH)
    assert patched.json["spec"]["tags"] == ["x", "y"]
    refused = await api.patch(path, {"spec": {"size": 1}}, STRATEGIC_PATCH)
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")
    invalid = await api.patch(path, {"spec": {"size": "big"}}, MERGE_PATCH)
    assert (invalid.status, invalid.reason) == (422, "Invalid")
    assert causes(invalid) == [
        (
            "spec.size",
            "FieldValueTypeInvalid",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        )
    ]
    unchanged = await api.patch(path, {"spec": {"tags": ["x", "y"]}}, MERGE_PATCH)
    assert unchanged.json["metadata"]["resourceVersion"] == str(patched.version)


async def test_yaml(group: str, custom: Custom, api: ApiClient) -> None:
    """Objects may be sent as YAML."""
    family = await custom.use(small.widget(group))
    body = f"apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: plain\nspec:\n  size: 3\n"
    reply = await api.post(family.path(), body.encode(), content_type=YAML)
    assert (reply.status, reply.json["spec"]["size"]) == (201, 3)


async def test_status_subresource(group: str, custom: Custom, api: ApiClient) -> None:
    """With a status subresource, each path writes its half; only the spec has generations."""
    family = await custom.use(certificates.certificate(group))
    claimed = certificates.ready(family.good[0])
    made = await custom.create(family, claimed)
    assert "status" not in made
    put = await api.put(family.path("web", "status"), certificates.ready(made))
    assert put.status == 200, put.body
    assert put.json["status"]["conditions"][0]["message"] == "issued"
    assert put.json["metadata"]["generation"] == 1
    both = {"spec": {"secretName": "other"}, "status": {"revision": 2}}
    patched = await api.patch(family.path("web", "status"), both, MERGE_PATCH)
    assert (patched.json["spec"]["secretName"], patched.json["status"]["revision"]) == (
        "web-tls",
        2,
    )
    changed = await api.patch(family.path("web"), {**both, "status": {"revision": 3}}, MERGE_PATCH)
    assert (changed.json["spec"]["secretName"], changed.json["status"]["revision"]) == ("other", 2)
    assert changed.json["metadata"]["generation"] == 2
    bad = await api.patch(family.path("web", "status"), {"status": {"revision": "x"}}, MERGE_PATCH)
    assert (bad.status, causes(bad)[0][0]) == (422, "status.revision")
    assert (await api.get(family.path("web", "status"))).json == changed.json


async def test_without_status_subresource(group: str, custom: Custom, api: ApiClient) -> None:
    """Without it the status is an ordinary field, and counts in the generation."""
    family = await custom.use(small.widget(group))
    made = await custom.create(family, family.good[0] | {"status": {"phase": "new"}})
    assert made["status"] == {"phase": "new"}
    changed = await api.patch(family.path("a"), {"status": {"phase": "old"}}, MERGE_PATCH)
    assert changed.json["metadata"]["generation"] == 2
    assert (await api.get(family.path("a", "status"))).status == 404


async def test_scale(group: str, custom: Custom, api: ApiClient) -> None:
    """The scale subresource shows and changes the replicas, as autoscaling/v1 Scale."""
    family = await custom.use(small.scalable(group))
    await custom.create(family, family.good[0])
    status = {"status": {"replicas": 2, "selector": "app=alpha"}}
    await api.patch(family.path("alpha", "status"), status, MERGE_PATCH)
    path = family.path("alpha", "scale")
    found = (await api.get(path)).json
    assert (found["kind"], found["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert found["spec"] == {"replicas": 3}
    assert found["status"] == {"replicas": 2, "selector": "app=alpha"}
    put = await api.put(path, found | {"spec": {"replicas": 5}})
    assert (put.status, put.json["spec"]) == (200, {"replicas": 5})
    patched = await api.patch(path, {"spec": {"replicas": 6}}, MERGE_PATCH)
    assert (patched.status, patched.json["spec"]) == (200, {"replicas": 6})
    squad = (await api.get(family.path("alpha"))).json
    assert (squad["spec"]["replicas"], squad["metadata"]["generation"]) == (6, 3)
    stale = await api.put(path, found)
    assert (stale.status, stale.reason) == (409, "Conflict")
    negative = await api.patch(path, {"spec": {"replicas": -1}}, MERGE_PATCH)
    assert (negative.status, negative.reason) == (422, "Invalid")
    assert ("spec.replicas", "FieldValueInvalid") in [each[:2] for each in causes(negative)]
    assert (await api.get(family.path("nobody", "scale"))).status == 404


async def test_rules_over_time(group: str, custom: Custom, api: ApiClient) -> None:
    """A rule with oldSelf applies to updates only, and has the declared reason."""
    family = await custom.use(gateways.gateway(group))
    await custom.create(family, family.good[0])
    reply = await api.patch(family.path("outer"), {"spec": {"gatewayClassName": "slow"}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert causes(reply) == [
        (
            "spec.gatewayClassName",
            "FieldValueForbidden",
            "Forbidden: a gateway keeps its class",
        )
    ]
    assert (await api.patch(family.path("outer"), {"spec": {"minReplicas": 2}})).status == 200


async def test_ratcheting(group: str, custom: Custom, api: ApiClient) -> None:
    """A value that has become invalid may stay unchanged; changed values must be valid."""
    family = await custom.use(
        one(group, struct({"name": text(), "size": integer(), "tags": array(text())}))
    )
    make = Maker(group, "v1", "Widget")
    await custom.create(family, make.good("a", {"name": "Long Name", "size": 1, "tags": ["A"]}))

    def change(made: Json) -> None:
        schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        spec = schema["properties"]["spec"]["properties"]
        spec["name"] |= {"pattern": "^[a-z]+$", "maxLength": 20}
        spec["name"]["x-kubernetes-validations"] = [rule("self.size() < 5", "too long")]
        spec["tags"]["items"] |= {"enum": ["a", "b"]}

    await custom.redefine(family.name, change)
    probe = f"{family.path()}?dryRun=All"
    await until(
        lambda: api.post(probe, make.good("b", {"name": "X"})), lambda reply: reply.status == 422
    )
    kept = await api.patch(family.path("a"), {"spec": {"size": 2}}, MERGE_PATCH)
    assert (kept.status, kept.json["spec"]["size"]) == (200, 2), kept.body
    touched = await api.patch(family.path("a"), {"spec": {"name": "Other Name"}}, MERGE_PATCH)
    assert [each[:2] for each in causes(touched)] == [
        ("spec.name", "FieldValueInvalid"),
        ("spec.name", "FieldValueInvalid"),
    ]
    added = await api.patch(family.path("a"), {"spec": {"tags": ["A", "b"]}}, MERGE_PATCH)
    assert [each[:2] for each in causes(added)] == [
        UNCHECKED[:2],
        ("spec.tags[0]", "FieldValueNotSupported"),
    ]
    fixed = await api.patch(family.path("a"), {"spec": {"name": "abc"}}, MERGE_PATCH)
    assert fixed.status == 200


@pytest.mark.parametrize(
    ("name", "status"), [("fine-name.x", 201), ("Bad", 422), ("a" * 254, 422), ("", 422)]
)
async def test_names(name: str, status: int, group: str, custom: Custom, api: ApiClient) -> None:
    """Names of custom objects follow the general rules."""
    family = await custom.use(small.minimal(group))
    reply = await api.post(family.path(), Maker(group, "v1", "Nothing").good(name))
    assert reply.status == status, reply.body
    if status == 422:
        assert causes(reply)[0][0] == "metadata.name"


async def test_namespaces(group: str, custom: Custom, api: ApiClient) -> None:
    """A namespaced kind needs an existing namespace; a cluster-scoped kind has none."""
    family = await custom.use(small.widget(group))
    nowhere = await api.post(family.path(namespace="nowhere"), family.good[0])
    assert (nowhere.status, nowhere.reason) == (404, "NotFound")
    everywhere = await api.get(f"/apis/{group}/v1/widgets")
    assert (everywhere.status, everywhere.json["items"]) == (200, [])
    wide = await custom.use(small.cluster_wide(group))
    made = await custom.create(wide, wide.good[0])
    assert "namespace" not in made["metadata"]
    assert (await api.get(f"/apis/{group}/v1/namespaces/default/territories")).status == 404


async def test_generate_name_and_collections(group: str, custom: Custom, api: ApiClient) -> None:
    """Names are generated, dry runs store nothing, and collections are deleted by selector."""
    family = await custom.use(small.widget(group))
    for number in range(3):
        obj = Maker(group, "v1", "Widget").good("")
        obj["metadata"] = {"generateName": "w-", "labels": {"odd": str(number % 2)}}
        made = await custom.create(family, obj)
        assert made["metadata"]["name"].startswith("w-")
    dry = await api.post(f"{family.path()}?dryRun=All", family.good[0])
    assert dry.status == 201
    assert len((await api.get(family.path())).json["items"]) == 3
    deleted = await api.delete(f"{family.path()}?labelSelector=odd%3D0")
    assert deleted.status == 200
    left = (await api.get(family.path())).json["items"]
    assert [each["metadata"]["labels"]["odd"] for each in left] == ["1"]
