"""The lifecycle of a CRD: accepted, established, changed, in conflict, deleted, created again."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.custom.servers import Custom, condition, until
from tests.crds import broken, small
from tests.crds.building import CRDS, Json, Maker, integer, struct, text, version
from tests.support.api_client import MERGE_PATCH, ApiClient

FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"


async def test_created(group: str, custom: Custom, api: ApiClient) -> None:
    """A new CRD has its defaults at once, and its accepted names and conditions soon after."""
    reply = await api.post(CRDS, small.minimal(group).definition)
    assert reply.status == 201
    made = reply.json
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["names"] == {
        "plural": "nothings",
        "singular": "nothing",
        "kind": "Nothing",
        "listKind": "NothingList",
    }
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    found = await custom.established(made["metadata"]["name"])
    assert found["status"]["acceptedNames"] == made["spec"]["names"]
    assert found["metadata"]["generation"] == 1
    names, established = condition(found, "NamesAccepted"), condition(found, "Established")
    assert (names["status"], names["reason"], names["message"]) == (
        "True",
        "NoConflicts",
        "no conflicts found",
    )
    assert (established["status"], established["reason"], established["message"]) == (
        "True",
        "InitialNamesAccepted",
        "the initial names have been accepted",
    )


async def test_status_of_the_client(group: str, custom: Custom, api: ApiClient) -> None:
    """A status that a client sends with a new or changed CRD is ignored."""
    definition = small.minimal(group).definition | {
        "status": {
            "storedVersions": ["v9"],
            "acceptedNames": {"plural": "x", "kind": "Y"},
            "conditions": [{"type": "Established", "status": "True"}],
        }
    }
    reply = await api.post(CRDS, definition)
    assert (reply.status, reply.json["status"]["storedVersions"]) == (201, ["v1"])
    assert not reply.json["status"].get("conditions")
    found = await custom.established(definition["metadata"]["name"])
    changed = await custom.redefine(
        definition["metadata"]["name"], lambda made: made.update(status={})
    )
    assert changed["status"] == found["status"]


async def test_generation(group: str, custom: Custom) -> None:
    """A change of the spec increments the generation; a label does not."""
    family = small.widget(group)
    await custom.define(family.definition)
    labelled = await custom.redefine(
        family.name, lambda made: made["metadata"].update(labels={"a": "b"})
    )
    assert labelled["metadata"]["generation"] == 1
    changed = await custom.redefine(
        family.name, lambda made: made["spec"]["names"].update(shortNames=["wdg"])
    )
    assert changed["metadata"]["generation"] == 2


async def test_new_names(group: str, custom: Custom, api: ApiClient) -> None:
    """Short names and categories can change later; they are accepted and published."""
    family = await custom.use(small.widget(group))
    await custom.redefine(
        family.name,
        lambda made: made["spec"]["names"].update(shortNames=["wdg"], categories=["all"]),
    )
    await until(
        lambda: api.get(f"{CRDS}/{family.name}"),
        lambda reply: reply.json["status"]["acceptedNames"].get("shortNames") == ["wdg"],
    )
    found = await until(
        lambda: api.get(f"/apis/{group}/v1"),
        lambda reply: "shortNames" in reply.json["resources"][0],
    )
    assert found.json["resources"][0]["shortNames"] == ["wdg"]
    assert found.json["resources"][0]["categories"] == ["all"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"kind": "Widget", "singular": "squad", "listKind": "SquadList"}, "KindConflict"),
        ({"listKind": "WidgetList"}, "ListKindConflict"),
        ({"singular": "widget"}, "SingularConflict"),
        ({"shortNames": ["widgets"]}, "ShortNamesConflict"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_names_in_conflict(
    names: Json, reason: str, group: str, custom: Custom, api: ApiClient
) -> None:
    """The second CRD with a name is not served, has the reason in its conditions, and is served
    once the first is deleted."""
    first = await custom.use(small.widget(group))
    second = small.scalable(group)
    second.definition["spec"]["names"].update(names)
    assert (await api.post(CRDS, second.definition)).status == 201
    found = await until(
        lambda: api.get(f"{CRDS}/{second.name}"),
        lambda reply: condition(reply.json, "NamesAccepted") != {},
    )
    accepted = condition(found.json, "NamesAccepted")
    taken = next(iter(names.values()))
    taken = taken if isinstance(taken, str) else taken[0]
    assert (accepted["status"], accepted["reason"], accepted["message"]) == (
        "False",
        reason,
        f'"{taken}" is already in use',
    )
    established = condition(found.json, "Established")
    assert (established["status"], established["reason"], established["message"]) == (
        "False",
        "NotAccepted",
        "not all names are accepted",
    )
    assert (await api.get(second.path())).status == 404
    assert (await api.delete(f"{CRDS}/{first.name}")).status == 200
    await custom.established(second.name)
    await until(lambda: api.get(second.path()), lambda reply: reply.status == 200)


async def test_deleted_with_its_objects(group: str, custom: Custom, api: ApiClient) -> None:
    """Deleting a CRD deletes its objects, and its path."""
    family = await custom.use(small.widget(group))
    for number in range(5):
        await custom.create(family, Maker(group, "v1", "Widget").good(f"w{number}"))
    watch = await api.watch(f"{family.path()}?resourceVersion=0")
    assert {event["type"] for event in await watch.take(5)} == {"ADDED"}
    reply = await api.delete(f"{CRDS}/{family.name}")
    assert (reply.status, "deletionTimestamp" in reply.json["metadata"]) == (200, True)
    assert reply.json["metadata"]["finalizers"] == [FINALIZER]
    await custom.wait_until_deleted(f"{CRDS}/{family.name}")
    assert {event["type"] for event in await watch.take(5)} == {"DELETED"}
    await custom.wait_until_deleted(family.path())
    await custom.wait_until_deleted(f"/apis/{group}")


async def test_objects_with_finalizers(group: str, custom: Custom, api: ApiClient) -> None:
    """A terminating CRD waits for an object with a finalizer; meanwhile no object can be
    created."""
    family = await custom.use(small.widget(group))
    held = Maker(group, "v1", "Widget").good("held")
    held["metadata"]["finalizers"] = ["example.org/hold"]
    await custom.create(family, held)
    await api.delete(f"{CRDS}/{family.name}")
    found = await until(
        lambda: api.get(f"{CRDS}/{family.name}"),
        lambda reply: (
            condition(reply.json, "Terminating").get("reason") == "InstanceDeletionInProgress"
        ),
    )
    assert condition(found.json, "Terminating")["status"] == "True"
    await until(
        lambda: api.get(family.path("held")),
        lambda reply: "deletionTimestamp" in reply.json["metadata"],
    )
    found = await until(
        lambda: api.get(f"/apis/{group}/v1"),
        lambda reply: "create" not in reply.json["resources"][0]["verbs"],
        what="a resource that takes nothing new",
    )
    verbs = found.json["resources"][0]["verbs"]
    assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
    refused = await api.post(family.path(), Maker(group, "v1", "Widget").good("late"))
    assert (refused.status, refused.reason) == (403, "Forbidden"), refused.body
    assert "create not allowed while custom resource definition is terminating" in refused.message
    released = await api.patch(family.path("held"), {"metadata": {"finalizers": None}})
    assert released.status == 200
    await custom.wait_until_deleted(f"{CRDS}/{family.name}")


async def test_created_again(group: str, custom: Custom, api: ApiClient) -> None:
    """A CRD created again is a new one: no old objects, and its own schema and version."""
    family = await custom.use(small.widget(group))
    await custom.create(family, family.good[0])
    await api.delete(f"{CRDS}/{family.name}")
    await custom.wait_until_deleted(f"{CRDS}/{family.name}")
    again = small.widget(group)
    again.definition["spec"]["versions"] = [
        version("v2", struct({"spec": struct({"size": text()})}))
    ]
    await custom.use(again)
    assert (await api.get(again.path())).json["items"] == []
    made = await custom.create(again, Maker(group, "v2", "Widget").good("a", {"size": "small"}))
    assert made["spec"] == {"size": "small"}
    assert (await api.get(family.path(version="v1"))).status == 404


async def test_schema_changed(group: str, custom: Custom, api: ApiClient) -> None:
    """A changed schema applies to all objects: new fields are kept, defaults appear in old ones."""
    family = await custom.use(small.widget(group))
    await custom.create(family, family.good[0])

    def change(made: Json) -> None:
        schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["weight"] = integer(default=7)

    await custom.redefine(family.name, change)
    found = await until(
        lambda: api.get(family.path("a")), lambda reply: "weight" in reply.json.get("spec", {})
    )
    assert found.json["spec"] == {"size": 1, "colour": "grey", "weight": 7}
    listed = (await api.get(family.path())).json["items"]
    assert [each["spec"]["weight"] for each in listed] == [7]
    reply = await api.patch(family.path("a"), {"spec": {"weight": 8}}, MERGE_PATCH)
    assert (reply.status, reply.json["spec"]["weight"]) == (200, 8)


async def test_conflicting_writes(group: str, custom: Custom, api: ApiClient) -> None:
    """An update from an old version of a CRD is refused, as for every kind."""
    found = await custom.define(broken.valid(group))
    path = f"{CRDS}/{found['metadata']['name']}"
    stale = found | {"metadata": found["metadata"] | {"resourceVersion": "1"}}
    reply = await api.put(path, stale)
    assert (reply.status, reply.reason) == (409, "Conflict")
    again = await api.post(CRDS, broken.valid(group))
    assert (again.status, again.reason) == (409, "AlreadyExists")
