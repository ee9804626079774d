"""StorageScan: the review that counts stored values at one revision, on real stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.names import EPOCH_ANNOTATION
from restow.encryption.providers import fingerprint
from restow.endpoints.barrier import WriteBarrier
from restow.storage.interface import Key, Revision, Storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.conformance.api.rights import client_of
from tests.conformance.api.servers import RunningServer, catalog_of, start_server
from tests.support.api_client import ApiClient
from tests.unit.encryption.keys_for_tests import IDENTITY, SECRETS, keyring, local

SCANS = "/apis/storage.restow.dev/v1alpha1/storagescans"
WIDGETS = "/registry/example.com/widgets/"
OpenStore = Callable[[], Awaitable[Storage]]
both_drivers = pytest.mark.parametrize("driver", ["sqlite", "etcd"], indirect=True)


def widget(version: str) -> dict[str, Any]:
    return {"kind": "Widget", "apiVersion": f"example.com/{version}", "metadata": {"name": "w"}}


async def page(api: ApiClient, **spec: Any) -> Any:
    reply = await api.post(SCANS, {"spec": spec})
    assert reply.status == 201, reply.body
    return reply.json["status"]


async def scan(api: ApiClient, **spec: Any) -> list[Any]:
    """Returns all pages."""
    pages = [await page(api, **spec)]
    while token := pages[-1].get("continue"):
        pages.append(await page(api, **spec | {"continue": token}))
    return pages


def rows(status: Any) -> set[tuple[Any, ...]]:
    return {
        (row["scope"], row.get("apiVersion"), row["encoding"], row.get("problem"), row["values"])
        for row in status.get("counts", ())
    }


@both_drivers
async def test_counts_by_location_and_version(server: RunningServer) -> None:
    """Values are counted by scope, version and problem, with keys as examples."""
    for name in ("a", "b", "c"):
        await server.put_raw(f"{WIDGETS}default/{name}", widget("v1"))
    await server.put_raw(f"{WIDGETS}default/new", widget("v2"))
    await server.put_raw(f"{WIDGETS}at-cluster-scope", widget("v2"))
    await server.put_raw(f"{WIDGETS}default/broken", b'{"kind":"Widget","apiVersion":')
    await server.put_raw(f"{WIDGETS}default/sealed", b"k8s:enc:aesgcm:v1:key1:xxxx")
    found = await page(server.client, prefix=WIDGETS)
    assert rows(found) == {
        ("Namespaced", "example.com/v1", "json", None, 3),
        ("Namespaced", "example.com/v2", "json", None, 1),
        ("Cluster", "example.com/v2", "json", None, 1),
        ("Namespaced", None, "unreadable", "NotDecodable", 1),
        ("Namespaced", None, "encrypted", "NotDecrypted", 1),
    }
    sealed = next(row for row in found["counts"] if row.get("problem") == "NotDecrypted")
    assert sealed["encryptionKey"] == "aesgcm:key1"
    assert sealed["examples"] == [f"{WIDGETS}default/sealed"]
    assert {(row["group"], row["resource"]) for row in found["counts"]} == {
        ("example.com", "widgets")
    }
    assert found["scanned"] == found["total"] == 7


@both_drivers
async def test_pages_read_one_revision(server: RunningServer) -> None:
    """Values created, changed or deleted between two pages do not affect the result."""
    for number in range(25):
        await server.put_raw(f"{WIDGETS}default/{number:02}", widget("v1"))
    first = await page(server.client, prefix=WIDGETS, limit=10)
    for number in range(25):
        await server.put_raw(f"{WIDGETS}default/{number:02}", widget("v2"))
    await server.put_raw(f"{WIDGETS}default/new", widget("v2"))
    pages = [first]
    while token := pages[-1].get("continue"):
        pages.append(await page(server.client, prefix=WIDGETS, limit=10, **{"continue": token}))
    assert [each["scanned"] for each in pages] == [10, 10, 5]
    assert {each["resourceVersion"] for each in pages} == {first["resourceVersion"]}
    assert {version for each in pages for _, version, *_ in rows(each)} == {"example.com/v1"}


async def test_a_new_server_has_no_unknown_values(server: RunningServer) -> None:
    """All objects that a server stores itself are counted under resources that it serves."""
    [found] = await scan(server.client)
    unnamed = [row["prefix"] for row in found["counts"] if not row.get("resource")]
    assert unnamed == []
    assert all(not row.get("problem") for row in found["counts"])


async def test_a_version_that_the_state_does_not_list(server: RunningServer) -> None:
    """A StorageState that lists fewer versions than are stored is contradicted; "Unknown" never
    is."""
    await server.put_raw(f"{WIDGETS}default/a", widget("v1"))
    v2 = storage_version_hash(GroupVersionKind("example.com", "v2", "Widget"))
    for listed, expected in (([v2], ["example.com/v1"]), ([v2, "Unknown"], []), ([], [])):
        await server.put_raw(
            "/registry/migration.k8s.io/storagestates/widgets.example.com",
            {
                "kind": "StorageState",
                "apiVersion": "migration.k8s.io/v1alpha1",
                "metadata": {"name": "widgets.example.com"},
                "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
                "status": {"persistedStorageVersionHashes": listed},
            },
        )
        found = await page(server.client, prefix=WIDGETS)
        versions = [each["apiVersion"] for each in found.get("contradictions", ())]
        assert versions == expected, listed


KEY = f"{WIDGETS}default/a"
NOT_LISTED = {
    "a version": ((), "v1", (), "1 as example.com/v1;"),
    "a key": ((), "v2", ("a",), "1 as example.com/v2, encrypted with aesgcm:a:"),
    "a key that is missing": ((), "v2", ("b",), "1 encrypted with aesgcm:b;"),
    "no encryption": (("a",), "v2", (), "1 as example.com/v2, not encrypted;"),
}


@pytest.mark.parametrize(
    ("listed", "version", "sealed", "expected"), NOT_LISTED.values(), ids=NOT_LISTED.keys()
)
async def test_a_contradiction_is_corrected(
    open_store: OpenStore,
    listed: tuple[str, ...],
    version: str,
    sealed: tuple[str, ...],
    expected: str,
) -> None:
    """ "Unknown" is added to the state, the epoch advances, an Event and a metric report it,
    once."""
    storage, catalog = await open_store(), catalog_of("x+2")
    options = CoordinatorOptions(membership=MembershipOptions(host="h"))
    plain_first = [IDENTITY, local("aesgcm", "a")]
    keys = keyring(("widgets.example.com", plain_first[::-1] if listed else plain_first))
    coordinator = Coordinator(storage, catalog, Runtime.system(), options, keys=keys)
    server = await start_server(
        storage,
        catalog,
        policy=coordinator.policy,
        barrier=WriteBarrier(coordinator),
        mirror=coordinator.mirror,
        keys=keys,
    )
    try:
        await coordinator.start()
        api = server.client
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        state = "/apis/migration.k8s.io/v1alpha1/storagestates/widgets.example.com"
        raw = "/registry/migration.k8s.io/storagestates/widgets.example.com"
        narrowed = await server.raw(raw)
        v2 = storage_version_hash(GroupVersionKind("example.com", "v2", "Widget"))
        narrowed["status"]["persistedStorageVersionHashes"] = [v2]
        if listed:
            narrowed["status"]["persistedEncryptionKeys"].remove("identity")
        await coordinator.mirror.reach(Revision(await server.put_raw(raw, narrowed)), seconds=5)
        epoch = narrowed["metadata"]["annotations"][EPOCH_ANNOTATION]
        await api.post("/apis/example.com/v2/namespaces/default/widgets", widget("v2"))
        found = await page(api, prefix=WIDGETS)
        assert "contradictions" not in found, "it was written as the state says"
        value = orjson.dumps(widget(version))
        for name in sealed:
            value = keyring(("widgets.example.com", [local("aesgcm", name)])).seal(
                f"aesgcm:{name}:{fingerprint(SECRETS[name])}", Key(KEY), value
            )
        await server.put_raw(KEY, value)
        for _ in range(2):
            await page(api, prefix=WIDGETS)
        found = (await api.get(state)).json
        assert found["status"]["persistedStorageVersionHashes"] == ["Unknown", v2]
        assert int(found["metadata"]["annotations"][EPOCH_ANNOTATION]) == int(epoch) + 1
        events = (await api.get("/api/v1/namespaces/default/events")).json["items"]
        (event,) = [each for each in events if each["reason"] == "StorageStateContradicted"]
        assert expected in event["message"]
        assert (event["type"], event["involvedObject"]["name"]) == (
            "Warning",
            "widgets.example.com",
        )
        metrics = (await api.get("/metrics")).body
        assert b"restow_storage_state_contradictions_total 1.0" in metrics
    finally:
        await coordinator.close()
        await server.stop()


async def test_plain_values_that_the_server_does_not_read(open_store: OpenStore) -> None:
    """If the encryption configuration has no identity provider, plain values are a problem."""
    keys = keyring(("widgets.example.com", [local("aesgcm", "a")]))
    server = await start_server(await open_store(), catalog_of("x+2"), keys=keys)
    try:
        await server.put_raw(KEY, widget("v2"))
        assert (
            await server.client.get("/apis/example.com/v2/namespaces/default/widgets")
        ).status == 500
        found = await page(server.client, prefix=WIDGETS)
        assert rows(found) == {("Namespaced", "example.com/v2", "json", "NotDecrypted", 1)}
    finally:
        await server.stop()


async def test_only_administrators_may_scan(server: RunningServer) -> None:
    """The counts name objects of all namespaces, so they need a permission of their own."""
    jane = client_of(server)
    reply = await jane.post(SCANS, {})
    await jane.close()
    assert reply.status == 403


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"prefix": "/restow/"}, 422, "must begin with /registry/"),
        ({"limit": -1}, 422, "must be between 1 and"),
        ({"limit": "many"}, 400, "limit"),
        ({"continue": "forged"}, 400, "continue key is not valid"),
    ],
)
async def test_wrong_fields(
    server: RunningServer, spec: dict[str, Any], code: int, message: str
) -> None:
    """An invalid field is named in a 4xx Status."""
    reply = await server.client.post(SCANS, {"spec": spec})
    assert reply.status == code
    assert message in reply.json["message"]


async def test_a_compacted_revision_is_expired(server: RunningServer) -> None:
    """A scan whose revision was compacted between two pages must be restarted."""
    for number in range(5):
        await server.put_raw(f"{WIDGETS}default/{number}", widget("v1"))
    first = await page(server.client, prefix=WIDGETS, limit=2)
    await server.put_raw(f"{WIDGETS}default/1", widget("v2"))
    await server.storage.compact(await server.storage.revision())
    reply = await server.client.post(
        SCANS, {"spec": {"prefix": WIDGETS, "continue": first["continue"]}}
    )
    assert (reply.status, reply.json["reason"]) == (410, "Expired")


async def test_it_is_in_discovery(api: ApiClient) -> None:
    """Discovery lists it with one verb, create."""
    found = (await api.get("/apis/storage.restow.dev/v1alpha1")).json["resources"]
    assert [(each["name"], each["verbs"]) for each in found] == [("storagescans", ["create"])]
