"""Versions of a custom resource: served or not, deprecated, stored, and no longer stored."""

from __future__ import annotations

from tests.conformance.custom.servers import Custom, causes, until
from tests.crds import gateways
from tests.crds.building import (
    CRDS,
    Family,
    Json,
    Maker,
    definition,
    integer,
    struct,
    text,
    version,
)
from tests.support.api_client import MERGE_PATCH, ApiClient

ONE = struct({"spec": struct({"size": integer(), "colour": text(default="grey")})})
TWO = struct({"spec": struct({"size": integer(), "colour": text(default="blue")})})
STILL_STORED = (
    "missing from spec.versions; v1 was previously a storage version, and must remain in"
    " spec.versions until a storage migration ensures no data remains persisted in v1 and removes"
    " v1 from status.storedVersions"
)


def two_versions(group: str, **more: Json) -> Family:
    versions = [
        version("v1", ONE, **more.get("v1", {})),
        version("v2", TWO, storage=False, **more.get("v2", {})),
    ]
    return Family(definition=definition(group, "Widget", versions))


def store_in(name: str, **served: bool) -> object:
    """Returns a change of a CRD: its storage version, and its served versions."""

    def change(made: Json) -> None:
        for each in made["spec"]["versions"]:
            each["storage"] = each["name"] == name
            each["served"] = served.get(each["name"], each["served"])

    return change


def stored_only_in(name: str) -> Json:
    return {"status": {"storedVersions": [name]}}


async def test_each_version(group: str, custom: Custom, api: ApiClient) -> None:
    """An object is the same in all versions except for its apiVersion and their defaults."""
    family = await custom.use(two_versions(group))
    await custom.create(family, Maker(group, "v1", "Widget").good("a", {"size": 1}))
    one = (await api.get(family.path("a", version="v1"))).json
    two = (await api.get(family.path("a", version="v2"))).json
    assert (one["apiVersion"], two["apiVersion"]) == (f"{group}/v1", f"{group}/v2")
    assert one["spec"] == two["spec"] == {"size": 1, "colour": "grey"}
    assert one["metadata"]["uid"] == two["metadata"]["uid"]
    made = await custom.create(
        family, Maker(group, "v2", "Widget").good("b", {"size": 2}), version="v2"
    )
    assert (made["apiVersion"], made["spec"]["colour"]) == (f"{group}/v2", "blue")
    listed = (await api.get(family.path(version="v2"))).json
    assert (listed["apiVersion"], listed["kind"]) == (f"{group}/v2", "WidgetList")
    assert {each["apiVersion"] for each in listed["items"]} == {f"{group}/v2"}


async def test_wrong_version_in_a_body(group: str, custom: Custom, api: ApiClient) -> None:
    """Version, group and kind of a body must be those of the path."""
    family = await custom.use(two_versions(group))
    for obj in (
        Maker(group, "v2", "Widget").good("a"),
        Maker("other.example.org", "v1", "Widget").good("a"),
    ):
        reply = await api.post(family.path(), obj)
        assert (reply.status, reply.reason) == (400, "BadRequest"), reply.body
    reply = await api.post(family.path(), Maker(group, "v1", "Gadget").good("a"))
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body
    assert causes(reply) == [
        ("kind", "FieldValueInvalid", 'Invalid value: "Gadget": must be Widget')
    ]


async def test_not_served(group: str, custom: Custom, api: ApiClient) -> None:
    """A version that is not served has no path and is not in discovery, and its objects stay."""
    family = await custom.use(two_versions(group))
    await custom.create(family, Maker(group, "v1", "Widget").good("a", {"size": 1}))
    await custom.redefine(family.name, store_in("v1", v1=False))  # type: ignore[arg-type]
    await custom.wait_until_deleted(family.path(version="v1"))
    found = await api.get(family.path("a", version="v2"))
    assert (found.status, found.json["spec"]["size"]) == (200, 1)
    listed = await until(
        lambda: api.get(f"/apis/{group}"), lambda reply: len(reply.json["versions"]) == 1
    )
    assert listed.json["preferredVersion"] == {"groupVersion": f"{group}/v2", "version": "v2"}
    await custom.redefine(family.name, store_in("v1", v1=True))  # type: ignore[arg-type]
    await until(lambda: api.get(family.path(version="v1")), lambda reply: reply.status == 200)


async def test_nothing_served(group: str, custom: Custom, api: ApiClient) -> None:
    """A CRD may serve no version at all."""
    family = await custom.use(two_versions(group))
    await custom.redefine(family.name, store_in("v1", v1=False, v2=False))  # type: ignore[arg-type]
    await custom.wait_until_deleted(family.path(version="v1"))
    await custom.wait_until_deleted(family.path(version="v2"))
    await custom.wait_until_deleted(f"/apis/{group}")


async def test_deprecated(group: str, custom: Custom, api: ApiClient) -> None:
    """Every use of a deprecated version has a warning, with the declared text."""
    family = await custom.use(gateways.gateway(group))
    await custom.create(family, family.good[0])
    wanted = f'299 - "{group}/v1beta1 Gateway is deprecated; use {group}/v1 Gateway"'
    old = family.path(version="v1beta1")
    for reply in (
        await api.get(old),
        await api.get(f"{old}/outer"),
        await api.patch(f"{old}/outer", {"metadata": {"labels": {"a": "b"}}}),
        await api.delete(f"{old}/outer"),
    ):
        assert (reply.status, reply.warnings) == (200, [wanted])
    assert (await api.get(family.path())).warnings == []

    def change(made: Json) -> None:
        made["spec"]["versions"][1]["deprecationWarning"] = "v1beta1 leaves in spring"

    await custom.redefine(family.name, change)
    found = await until(lambda: api.get(old), lambda reply: reply.warnings != [wanted])
    assert found.warnings == ['299 - "v1beta1 leaves in spring"']


async def test_stored_versions(group: str, custom: Custom, api: ApiClient) -> None:
    """A version stays in storedVersions, and in the spec, until a client removes it there."""
    family = await custom.use(two_versions(group))
    path = f"{CRDS}/{family.name}"
    await custom.create(family, Maker(group, "v1", "Widget").good("a", {"size": 1}))
    flipped = await custom.redefine(family.name, store_in("v2"))  # type: ignore[arg-type]
    assert flipped["status"]["storedVersions"] == ["v1", "v2"]
    without = (await api.get(path)).json
    without["spec"]["versions"] = [
        each for each in without["spec"]["versions"] if each["name"] == "v2"
    ]
    refused = await api.put(path, without)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert causes(refused) == [
        (
            "status.storedVersions[0]",
            "FieldValueInvalid",
            f'Invalid value: "v1": {STILL_STORED}',
        )
    ]
    rewritten = await api.patch(family.path("a", version="v2"), {"spec": {"size": 2}}, MERGE_PATCH)
    assert rewritten.status == 200
    trimmed = await api.patch(f"{path}/status", stored_only_in("v2"), MERGE_PATCH)
    assert (trimmed.status, trimmed.json["status"]["storedVersions"]) == (200, ["v2"])
    await custom.redefine(family.name, lambda made: made["spec"]["versions"].pop(0))
    await custom.wait_until_deleted(family.path(version="v1"))
    assert (await api.get(family.path("a", version="v2"))).json["spec"]["size"] == 2


async def test_storage_flips_under_objects(group: str, custom: Custom, api: ApiClient) -> None:
    """Objects in both storage versions are read, listed and watched in either version."""
    family = await custom.use(two_versions(group))
    one, two = Maker(group, "v1", "Widget"), Maker(group, "v2", "Widget")
    await custom.create(family, one.good("a", {"size": 1}))
    hashes = [await _hash(api, group)]
    await custom.redefine(family.name, store_in("v2"))  # type: ignore[arg-type]
    await until(lambda: _hash(api, group), lambda found: found not in hashes)
    await custom.create(family, two.good("b", {"size": 2}), version="v2")
    for name in ("v1", "v2"):
        listed = (await api.get(family.path(version=name))).json["items"]
        assert [(each["apiVersion"], each["spec"]["size"]) for each in listed] == [
            (f"{group}/{name}", 1),
            (f"{group}/{name}", 2),
        ]
        watch = await api.watch(f"{family.path(version=name)}?resourceVersion=0")
        events = await watch.take(2)
        assert {event["object"]["apiVersion"] for event in events} == {f"{group}/{name}"}
    await custom.redefine(family.name, store_in("v1"))  # type: ignore[arg-type]
    assert await until(lambda: _hash(api, group), lambda found: found == hashes[0])
    found = (await api.get(f"{CRDS}/{family.name}")).json
    assert found["status"]["storedVersions"] == ["v1", "v2"]


async def _hash(api: ApiClient, group: str) -> str:
    found = (await api.get(f"/apis/{group}/v1")).json["resources"][0]
    return str(found["storageVersionHash"])
