"""update: conflicts, immutable fields, generations, no-op writes."""

from __future__ import annotations

import threading
from typing import Any

import orjson
import pytest

from restow.apimachinery import body_codec, codec
from restow.storage.interface import Key, Put, Transaction
from tests.conformance.api.objects import CRON_JOB_KEY, DEPLOYMENT, OLD_CRON_JOB
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import MERGE_PATCH, YAML, ApiClient

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@EVERY_STORE
async def test_an_update_replaces(api: ApiClient) -> None:
    """Fields missing in the body are removed; UID and creation time stay; the version increases."""
    first = await api.post(CONFIG_MAPS, config_map("a", {"x": "1"}, labels={"l": "1"}))
    second = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}))
    assert second.status == 200
    assert second.version > first.version
    assert second.json["data"] == {"y": "2"}
    assert "labels" not in second.json["metadata"]
    for field in ("uid", "creationTimestamp"):
        assert second.json["metadata"][field] == first.json["metadata"][field]
    assert (await api.get(f"{CONFIG_MAPS}/a")).json == second.json


@EVERY_STORE
async def test_a_stale_version_conflicts(api: ApiClient) -> None:
    """An update with an older version is refused with Kubernetes' message."""
    first = await api.post(CONFIG_MAPS, config_map("a"))
    await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}))
    stale = await api.put(
        f"{CONFIG_MAPS}/a", config_map("a", {"z": "3"}, resourceVersion=str(first.version))
    )
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message.startswith(
        'Operation cannot be fulfilled on configmaps "a": the object has been modified'
    )
    assert stale.json["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_future_or_invalid_version(api: ApiClient) -> None:
    """A version that is not the object's conflicts; an invalid one gets 400."""
    await api.post(CONFIG_MAPS, config_map("a"))
    for version, code in (("999999", 409), ("abc", 400), ("-1", 400), ("1e3", 400)):
        reply = await api.put(f"{CONFIG_MAPS}/a", config_map("a", resourceVersion=version))
        assert reply.status == code, version


@pytest.mark.parametrize(
    ("collection", "body", "code"),
    [
        (CONFIG_MAPS, {}, 200),
        (f"{NS}/secrets", {}, 200),
        (f"{NS}/serviceaccounts", {}, 200),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {}, 200),
        (DEPLOYMENTS, DEPLOYMENT, 200),
        (LEASES, {}, 422),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": 1}},
            422,
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            {},
            422,
        ),
    ],
)
async def test_updates_without_a_version(
    api: ApiClient, collection: str, body: dict[str, Any], code: int
) -> None:
    """Some kinds allow unconditional updates; others require a resource version."""
    body = {**body, "metadata": {"name": "a"}}
    assert (await api.post(collection, body)).status == 201
    reply = await api.put(f"{collection}/a", body)
    assert reply.status == code
    if code == 422:
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in (
            reply.message
        )


async def test_create_on_update(api: ApiClient) -> None:
    """Leases and roles are created by a PUT; ConfigMaps are not."""
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    made = await api.put(f"{LEASES}/l", lease)
    assert made.status == 201
    assert made.json["metadata"]["uid"]
    role = {"metadata": {"name": "r"}, "rules": []}
    place = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"
    assert (await api.put(place, role)).status == 201
    missing = await api.put(f"{CONFIG_MAPS}/a", config_map("a"))
    assert (missing.status, missing.reason) == (404, "NotFound")
    assert missing.message == 'configmaps "a" not found'
    nowhere = await api.put(
        "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/l", {"metadata": {"name": "l"}}
    )
    assert nowhere.message == 'namespaces "nowhere" not found'


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_an_update_does_not_recreate_a_deleted_object(api: ApiClient, field: str) -> None:
    """A PUT of an object that was read and then deleted conflicts, even for kinds that PUT
    creates."""
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    made = (await api.put(f"{LEASES}/l", lease)).json
    assert (await api.delete(f"{LEASES}/l")).status == 200
    old = {"name": "l", field: made["metadata"][field]}
    reply = await api.put(f"{LEASES}/l", {**lease, "metadata": old})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert (await api.get(f"{LEASES}/l")).status == 404


async def test_another_uid_conflicts(api: ApiClient) -> None:
    """An update for another UID of the same name is refused."""
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.put(
        f"{CONFIG_MAPS}/a", config_map("a", uid="00000000-0000-4000-8000-000000000000")
    )
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000-" in reply.message


async def test_name_and_namespace_must_match_the_path(api: ApiClient) -> None:
    """Another name, no name, or another namespace: 400."""
    await api.post(CONFIG_MAPS, config_map("a"))
    bodies: list[dict[str, Any]] = [
        config_map("b"),
        {"data": {}},
        {"metadata": {"name": ""}},
        config_map("a", namespace="other"),
    ]
    for body in bodies:
        reply = await api.put(f"{CONFIG_MAPS}/a", body)
        assert (reply.status, reply.reason) == (400, "BadRequest"), body
    assert (await api.put(f"{CONFIG_MAPS}/a", config_map("a", namespace="default"))).status == 200


async def test_server_set_metadata_cannot_be_changed(api: ApiClient) -> None:
    """Times and generation in a body are ignored."""
    first = await api.post(DEPLOYMENTS, DEPLOYMENT)
    body = {**first.json, "metadata": {**first.json["metadata"], "generation": 77}}
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
    reply = await api.put(f"{DEPLOYMENTS}/web", body)
    assert reply.status == 200
    assert reply.json["metadata"] == first.json["metadata"]


async def test_yaml_is_read_in_a_thread(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing takes long, so other requests run meanwhile, for every path."""
    threads: list[threading.Thread] = []
    decode = body_codec.decode

    def recording(body: bytes, media_type: str = codec.JSON, **options: Any) -> codec.Decoded:
        threads.append(threading.current_thread())
        return decode(body, media_type, **options)

    assert (await api.post(DEPLOYMENTS, DEPLOYMENT)).status == 201
    monkeypatch.setattr(body_codec, "decode", recording)
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for method, path, body, code in (
        ("POST", CONFIG_MAPS, b"metadata: {name: a}", 201),
        ("PUT", f"{CONFIG_MAPS}/a", b"metadata: {name: a}", 200),
        ("PUT", f"{DEPLOYMENTS}/web/scale", b"metadata: {name: web}\nspec: {replicas: 2}", 200),
        ("POST", reviews, b"spec: {nonResourceAttributes: {path: /, verb: get}}", 201),
        ("DELETE", f"{CONFIG_MAPS}/a", b"propagationPolicy: Background", 200),
    ):
        threads.clear()
        reply = await api.request(method, path, body, content_type=YAML)
        assert reply.status == code, reply.body
        assert threads
        assert threading.main_thread() not in threads, path


async def test_generations(api: ApiClient) -> None:
    """The generation counts changes of the spec: not of labels or status, and not no-ops."""
    made = (await api.post(DEPLOYMENTS, DEPLOYMENT)).json
    assert made["metadata"]["generation"] == 1
    made["spec"]["replicas"] = 3
    reply = await api.put(f"{DEPLOYMENTS}/web", made)
    assert reply.json["metadata"]["generation"] == 2
    labelled = await api.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 2
    state = await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})
    assert state.json["metadata"]["generation"] == 2
    scaled = await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 4}})
    assert scaled.json["spec"]["replicas"] == 4
    after = await api.get(f"{DEPLOYMENTS}/web")
    assert after.json["metadata"]["generation"] == 3
    noted = await api.patch(f"{DEPLOYMENTS}/web", {"metadata": {"annotations": {"a": "b"}}})
    assert noted.json["metadata"]["generation"] == 4
    path, note = f"{DEPLOYMENTS}/web/status", {"annotations": {"c": "d"}, "labels": {"c": "d"}}
    noted = await api.patch(path, {"metadata": note})
    assert noted.json["metadata"]["generation"] == 4
    assert noted.json["metadata"]["annotations"] == {"a": "b", "c": "d"}
    assert noted.json["metadata"]["labels"] == {"a": "b"}
    config = await api.post(CONFIG_MAPS, config_map("a"))
    assert "generation" not in config.json["metadata"]


@pytest.mark.parametrize(
    ("collection", "body", "change", "counts"),
    [
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"value": 1},
            {"description": "other"},
            [1, 1, 1],
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            {"spec": {}},
            {"spec": {"requiresRepublish": True}},
            [None, 1, 1],
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            {"addressType": "IPv4", "endpoints": []},
            {"ports": [{"name": "a", "port": 1}]},
            [1, 2, 3],
        ),
    ],
)
async def test_generations_of_special_kinds(
    api: ApiClient,
    collection: str,
    body: dict[str, Any],
    change: dict[str, Any],
    counts: list[int | None],
) -> None:
    """Some kinds have none, some start with the first change, and some count labels too."""
    replies = [
        await api.post(collection, {**body, "metadata": {"name": "a"}}),
        await api.patch(f"{collection}/a", change),
        await api.patch(f"{collection}/a", {"metadata": {"labels": {"a": "b"}}}),
    ]
    assert [each.json["metadata"].get("generation") for each in replies] == counts


@pytest.mark.parametrize("kind", ["flowschemas", "prioritylevelconfigurations"])
async def test_a_status_leaves_the_metadata(api: ApiClient, kind: str) -> None:
    """For some kinds the status subresource writes nothing but the status."""
    path = f"/apis/flowcontrol.apiserver.k8s.io/v1/{kind}"
    spec: dict[str, Any] = {"priorityLevelConfiguration": {"name": "exempt"}}
    if kind != "flowschemas":
        spec = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    made = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == 201, made.body
    note = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]}
    reply = await api.patch(f"{path}/a/status", {"metadata": note})
    assert reply.status == 200
    assert not note.keys() & reply.json["metadata"].keys()


@EVERY_STORE
async def test_a_write_that_changes_nothing(api: ApiClient) -> None:
    """The resource version stays and watchers get no event, for PUT and for an empty patch."""
    first = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}, labels={"b": "1", "a": "2"}))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={first.version}")
    same = await api.put(f"{CONFIG_MAPS}/a", first.json)
    assert (same.status, same.json) == (200, first.json)
    unversioned = config_map("a", {"k": "v"}, labels={"b": "1", "a": "2"})
    again = await api.put(f"{CONFIG_MAPS}/a", unversioned)
    assert again.json == first.json
    empty = await api.patch(f"{CONFIG_MAPS}/a", {}, MERGE_PATCH)
    assert empty.json == first.json
    assert await watch.is_silent()


async def test_order_of_fields_is_no_change(api: ApiClient) -> None:
    """The same object with its fields in another order is the same object."""
    first = await api.post(CONFIG_MAPS, config_map("a", {"x": "1", "y": "2"}, labels={"b": "c"}))
    body = {
        "data": {"y": "2", "x": "1"},
        "metadata": {"labels": {"b": "c"}, "name": "a"},
        "apiVersion": "v1",
        "kind": "ConfigMap",
    }
    reply = await api.put(f"{CONFIG_MAPS}/a", body)
    assert reply.version == first.version


async def test_finalizers_cannot_be_added_while_terminating(api: ApiClient) -> None:
    """While an object is being deleted its finalizers can only be removed."""
    await api.post(CONFIG_MAPS, config_map("a", finalizers=["x.io/a"]))
    await api.delete(f"{CONFIG_MAPS}/a")
    reply = await api.put(f"{CONFIG_MAPS}/a", config_map("a", finalizers=["x.io/a", "x.io/b"]))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.json["details"]["causes"][0]["field"] == "metadata.finalizers"


async def test_immutable_objects(api: ApiClient) -> None:
    """A ConfigMap marked immutable refuses other data."""
    await api.post(CONFIG_MAPS, {**config_map("a", {"k": "v"}), "immutable": True})
    reply = await api.put(f"{CONFIG_MAPS}/a", {**config_map("a", {"k": "w"}), "immutable": True})
    assert (reply.status, reply.reason) == (422, "Invalid")


async def test_dry_run(api: ApiClient) -> None:
    """A dry run returns the result and changes nothing."""
    first = await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.put(f"{CONFIG_MAPS}/a?dryRun=All", config_map("a", {"k": "v"}))
    assert (reply.status, reply.json["data"]) == (200, {"k": "v"})
    assert (await api.get(f"{CONFIG_MAPS}/a")).json == first.json


CRON_JOB = "/apis/batch/v1/namespaces/default/cronjobs/nightly"


@EVERY_STORE
@pytest.mark.parametrize("how", ["put", "patch"])
async def test_an_unchanged_write_rewrites_older_bytes(server: RunningServer, how: str) -> None:
    """An object stored in another version is rewritten even if it is unchanged.

    Migration relies on this. The second such write is a no-op.
    """
    api = server.client
    revision = await server.put_raw(CRON_JOB_KEY, OLD_CRON_JOB)
    found = await api.get(CRON_JOB)
    assert (found.status, found.version) == (200, revision)
    assert found.json["apiVersion"] == "batch/v1"
    watch = await api.watch(
        f"/apis/batch/v1/namespaces/default/cronjobs?resourceVersion={revision}"
    )
    if how == "put":
        reply = await api.put(CRON_JOB, found.json)
    else:
        reply = await api.patch(CRON_JOB, {}, MERGE_PATCH)
    assert reply.status == 200
    assert reply.version > revision
    stored = await server.raw(CRON_JOB_KEY)
    assert stored["apiVersion"] == "batch/v1"
    assert stored["metadata"]["generation"] == 4
    assert stored["metadata"]["uid"] == OLD_CRON_JOB["metadata"]["uid"]
    event = await watch.next()
    assert event is not None
    assert (event["type"], event["object"]) == ("MODIFIED", reply.json)
    again = await api.patch(CRON_JOB, {}, MERGE_PATCH)
    assert again.version == reply.version
    assert await watch.is_silent()


@EVERY_STORE
async def test_a_write_that_lost_a_race_is_retried(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unconditional update whose base state was replaced meanwhile succeeds on the newest
    one; a create of a name taken meanwhile conflicts. In both cases the client sees a single
    response."""
    await server.client.post(CONFIG_MAPS, config_map("a", {"x": "1"}))
    commit = server.storage.commit
    key = "/registry/configmaps/default/"
    rival: dict[str, Any] = {**config_map("a", {"x": "rival"}, namespace="default", uid="u")}
    lost: list[Any] = []

    async def lose(transaction: Any) -> Any:
        if not lost:
            lost.append(await commit(Transaction(writes=(Put(Key(key + "a"), _bytes(rival)),))))
            lost.append(await commit(Transaction(writes=(Put(Key(key + "b"), _bytes(rival)),))))
        return await commit(transaction)

    monkeypatch.setattr(server.storage, "commit", lose)
    updated = await server.client.put(f"{CONFIG_MAPS}/a", config_map("a", {"x": "2"}))
    assert (updated.status, updated.json["data"]) == (200, {"x": "2"})
    assert updated.json["metadata"]["uid"] == "u"
    lost.clear()
    created = await server.client.post(CONFIG_MAPS, config_map("b"))
    assert (created.status, created.reason) == (409, "AlreadyExists")


def _bytes(obj: dict[str, Any]) -> bytes:
    return orjson.dumps(obj) + b"\n"


async def test_a_lease_is_released(api: ApiClient) -> None:
    """A holder that releases it writes an empty holderIdentity, as clients do when they stop
    leading."""
    collection = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    made = (await api.post(collection, lease)).json
    reply = await api.put(f"{collection}/l", {**made, "spec": {"holderIdentity": ""}})
    assert reply.status == 200
