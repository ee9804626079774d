"""Invalid CRDs, and CRDs that only look invalid."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.custom.servers import Custom, causes
from tests.crds import broken
from tests.crds.building import CRDS, Maker, struct, version
from tests.crds.refusals import REFUSALS
from tests.support.api_client import YAML, ApiClient

DEPTHS: Final = {
    105: (400, "nested deeper than 100 levels"),
    300: (400, "exceeded max depth"),
    4_000: (400, "exceeded max depth"),
}
HOSTILE_CHARACTERS: Final = 5_000


@pytest.mark.parametrize("name", broken.CHANGES)
async def test_refused(name: str, group: str, api: ApiClient) -> None:
    """Each error is refused with all its causes, with Kubernetes' messages."""
    definition = broken.changed(group, broken.CHANGES[name])
    reply = await api.post(CRDS, definition)
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body
    found = causes(reply)
    wanted = sorted(REFUSALS[name])
    assert [each[:2] for each in found] == [each[:2] for each in wanted], found
    for field, reason, part in wanted:
        assert any((field, reason) == each[:2] and part in each[2] for each in found), (
            field,
            part,
            found,
        )
    assert reply.json["details"]["kind"] == "CustomResourceDefinition"
    assert reply.json["details"]["group"] == "apiextensions.k8s.io"
    missing = await api.get(f"{CRDS}/{definition['metadata']['name']}")
    assert missing.status == 404


@pytest.mark.parametrize("name", broken.TAKEN)
async def test_valid(name: str, group: str, custom: Custom) -> None:
    """A valid CRD that looks invalid is established like any other."""
    await custom.define(broken.changed(group, broken.TAKEN[name]))


async def test_wrong_types(group: str, api: ApiClient) -> None:
    """A CRD whose own fields have the wrong type cannot be decoded."""
    for change in (broken.with_spec(versions="v1"), broken.with_names(shortNames="a")):
        reply = await api.post(CRDS, broken.changed(group, change))
        assert (reply.status, reply.reason) == (400, "BadRequest"), reply.body


async def test_unknown_fields_of_definitions(group: str, api: ApiClient) -> None:
    """An unknown field of a CRD is dropped, warned of, or refused, according to fieldValidation."""
    definition = broken.changed(group, broken.with_spec(colour="red"))
    strict = await api.post(f"{CRDS}?fieldValidation=Strict", definition)
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in strict.message
    warned = await api.post(f"{CRDS}?fieldValidation=Warn", definition)
    assert warned.status == 201
    assert warned.warnings == ['299 - "unknown field \\"spec.colour\\""']
    assert "colour" not in warned.json["spec"]


@pytest.mark.parametrize("depth", DEPTHS)
async def test_depth(depth: int, group: str, api: ApiClient) -> None:
    """However deep a schema is, the response is clear, and the server keeps running."""
    opening = '{"type":"object","properties":{"a":' * depth
    deep = opening + '{"type":"string"}' + "}}" * depth
    text = (
        '{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",'
        f'"metadata":{{"name":"things.{group}"}},"spec":{{"group":"{group}","scope":"Cluster",'
        '"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,'
        f'"storage":true,"schema":{{"openAPIV3Schema":{deep}}}}}]}}}}'
    )
    reply = await api.post(CRDS, text.encode())
    status, words = DEPTHS[depth]
    assert reply.status == status, reply.body[:500]
    assert words in reply.message
    assert (await api.get("/readyz")).status == 200


async def test_yaml_bomb(api: ApiClient) -> None:
    """YAML aliases are not expanded without limit."""
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    reply = await api.post(CRDS, "\n".join(lines).encode(), content_type=YAML)
    assert 400 <= reply.status < 500, reply.body[:500]


async def test_hostile_pattern(group: str, custom: Custom, api: ApiClient) -> None:
    """A pattern with catastrophic backtracking in other engines is evaluated at once."""
    schema = struct({"spec": struct({"a": {"type": "string", "pattern": "^(a+)+$"}})})
    definition = broken.valid(group)
    definition["spec"]["versions"] = [version("v1", schema)]
    await custom.define(definition)
    obj = Maker(group, "v1", "Thing").good("evil", {"a": "a" * HOSTILE_CHARACTERS + "!"})
    reply = await api.post(f"/apis/{group}/v1/namespaces/default/things", obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert [each[:2] for each in causes(reply)] == [("spec.a", "FieldValueInvalid")]


async def test_renamed_group(group: str, custom: Custom, api: ApiClient) -> None:
    """Group, scope, plural and, once established, kind of a CRD are immutable."""
    found = await custom.define(broken.valid(group))
    path = f"{CRDS}/{found['metadata']['name']}"
    for change, wanted in RENAMES:
        renamed = (await api.get(path)).json
        change(renamed)
        reply = await api.put(path, renamed)
        assert (reply.status, reply.reason) == (422, "Invalid"), reply.body
        assert [each[:2] for each in causes(reply)] == sorted(wanted), causes(reply)


RENAMES: Final = (
    (
        broken.with_spec(group="other.example.org"),
        [("spec.group", "FieldValueInvalid")],
    ),
    (broken.with_spec(scope="Cluster"), [("spec.scope", "FieldValueInvalid")]),
    (
        broken.with_names(plural="others"),
        [("spec.names.plural", "FieldValueInvalid")],
    ),
    (broken.with_names(kind="Other"), [("spec.names.kind", "FieldValueInvalid")]),
)
