"""create: fields that the server sets, and requests that it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.api.objects import DEPLOYMENT
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import PROTOBUF, YAML, ApiClient

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@EVERY_STORE
async def test_server_set_metadata(api: ApiClient) -> None:
    """The server sets UID, times, resource version and namespace; values in the request are
    dropped."""
    sent = config_map(
        "a",
        {"k": "v"},
        uid="mine",
        creationTimestamp="2001-01-01T00:00:00Z",
        deletionTimestamp="2001-01-01T00:00:00Z",
        deletionGracePeriodSeconds=3,
        selfLink="/x",
        generation=7,
        labels={"l": "1"},
        annotations={"n": "2"},
    )
    reply = await api.post(CONFIG_MAPS, sent)
    assert reply.status == 201
    metadata = reply.json["metadata"]
    assert _UID.fullmatch(metadata.pop("uid"))
    assert _TIME.fullmatch(metadata.pop("creationTimestamp"))
    assert int(metadata.pop("resourceVersion")) > 0
    [entry] = metadata.pop("managedFields")
    assert (entry["operation"], entry["apiVersion"]) == ("Update", "v1")
    assert metadata == {
        "name": "a",
        "namespace": "default",
        "labels": {"l": "1"},
        "annotations": {"n": "2"},
    }
    assert (await api.get(f"{CONFIG_MAPS}/a")).json == reply.json


@EVERY_STORE
async def test_versions_grow(api: ApiClient) -> None:
    """Each created object has a higher resource version than the one before; all are decimal."""
    versions = [(await api.post(CONFIG_MAPS, config_map(f"n{i}"))).version for i in range(5)]
    assert versions == sorted(set(versions))


async def test_generated_names(api: ApiClient) -> None:
    """generateName gets five random characters appended, and stays in the object."""
    seen = set()
    for _ in range(5):
        reply = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "pre-"}})
        assert reply.status == 201
        metadata = reply.json["metadata"]
        assert re.fullmatch(r"pre-[bcdfghjklmnpqrstvwxz2456789]{5}", metadata["name"])
        assert metadata["generateName"] == "pre-"
        seen.add(metadata["name"])
    assert len(seen) == 5
    long = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "x" * 200}})
    assert long.status == 201
    assert len(long.json["metadata"]["name"]) == 63


async def test_name_takes_precedence_over_generate_name(api: ApiClient) -> None:
    """With both, the name is used."""
    reply = await api.post(CONFIG_MAPS, {"metadata": {"name": "n", "generateName": "pre-"}})
    assert reply.json["metadata"]["name"] == "n"


async def test_a_body_without_a_kind(api: ApiClient) -> None:
    """The Python client omits kind, apiVersion and the content type."""
    reply = await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}}, content_type=None)
    assert reply.status == 201
    assert (reply.json["kind"], reply.json["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_version_may_not_be_set(api: ApiClient) -> None:
    """A create with a resourceVersion gets 400 with Kubernetes' message."""
    reply = await api.post(CONFIG_MAPS, config_map("a", resourceVersion="5"))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "resourceVersion should not be set on objects to be created" in reply.message


@EVERY_STORE
async def test_a_taken_name(api: ApiClient) -> None:
    """The second create gets 409 AlreadyExists with the object's name."""
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert (reply.status, reply.reason) == (409, "AlreadyExists")
    assert reply.message == 'configmaps "a" already exists'
    assert reply.json["details"] == {"name": "a", "kind": "configmaps"}
    assert reply.json["code"] == 409
    assert reply.json["status"] == "Failure"


async def test_the_name_of_a_terminating_object(api: ApiClient) -> None:
    """The message says that the existing object is being deleted."""
    await api.post(CONFIG_MAPS, config_map("a", finalizers=["x.io/f"]))
    await api.delete(f"{CONFIG_MAPS}/a")
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert (reply.status, reply.reason) == (409, "AlreadyExists")
    assert reply.message.startswith("object is being deleted: ")


@EVERY_STORE
async def test_a_missing_namespace(api: ApiClient) -> None:
    """A create in a missing namespace gets 404 for the namespace."""
    reply = await api.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == 'namespaces "nowhere" not found'
    assert reply.json["details"] == {"name": "nowhere", "kind": "namespaces"}


@EVERY_STORE
async def test_a_terminating_namespace(api: ApiClient) -> None:
    """Nothing can be created in a terminating namespace; existing objects can be changed."""
    await api.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    place = "/api/v1/namespaces/going/configmaps"
    await api.post(place, config_map("there"))
    deleted = await api.delete("/api/v1/namespaces/going")
    assert deleted.json["status"]["phase"] == "Terminating"
    reply = await api.post(place, config_map("a"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert reply.json["details"]["causes"][0]["field"] == "metadata.namespace"
    changed = await api.put(f"{place}/there", config_map("there", {"a": "b"}))
    assert changed.status == 200


async def test_namespace_of_body_and_path(api: ApiClient) -> None:
    """The namespace in the body must be empty or equal to the path's."""
    assert (await api.post(CONFIG_MAPS, config_map("a", namespace="default"))).status == 201
    other = await api.post(CONFIG_MAPS, config_map("b", namespace="kube-system"))
    assert (other.status, other.reason) == (400, "BadRequest")
    cluster = await api.post(
        "/api/v1/namespaces", {"metadata": {"name": "x", "namespace": "default"}}
    )
    assert cluster.status == 400


async def test_a_new_namespace(api: ApiClient) -> None:
    """A new namespace has its label, its finalizer and its phase at once."""
    reply = await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert reply.json["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert reply.json["spec"] == {"finalizers": ["kubernetes"]}
    assert reply.json["status"] == {"phase": "Active"}
    assert "generation" not in reply.json["metadata"]


@EVERY_STORE
async def test_dry_run_stores_nothing(api: ApiClient) -> None:
    """A dry run returns the result of a create, without a resource version, and stores nothing."""
    reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"generateName": "dry-"}})
    assert reply.status == 201
    metadata = reply.json["metadata"]
    assert "resourceVersion" not in metadata
    assert metadata["uid"]
    assert metadata["name"].startswith("dry-")
    assert (await api.get(f"{CONFIG_MAPS}/{metadata['name']}")).status == 404
    await api.post(CONFIG_MAPS, config_map("a"))
    taken = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
    assert taken.reason == "AlreadyExists"


async def test_invalid_dry_run_values(api: ApiClient) -> None:
    """A value other than All gets 422."""
    for requested in ("true", "all", "", "All&dryRun=Some"):
        reply = await api.post(f"{CONFIG_MAPS}?dryRun={requested}", config_map("a"))
        assert (reply.status, reply.reason) == (422, "Invalid"), requested


async def test_status_is_not_created(api: ApiClient) -> None:
    """A kind with a status subresource is created without the status in the request."""
    reply = await api.post("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
    assert reply.status == 201
    assert reply.json.get("status", {}) == {}
    assert reply.json["metadata"]["generation"] == 1
    assert reply.json["spec"]["replicas"] == 1


async def test_unknown_fields(api: ApiClient) -> None:
    """Unknown and duplicate fields: a warning by default, silent with Ignore, 400 with Strict."""
    body = b'{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"},"nonsense":1}'
    plain = await api.post(CONFIG_MAPS, body.replace(b"NAME", b"a"))
    assert plain.status == 201
    assert plain.warnings == [
        '299 - "unknown field \\"nonsense\\""',
        '299 - "duplicate field \\"data.a\\""',
    ]
    assert "nonsense" not in plain.json
    warned = await api.post(f"{CONFIG_MAPS}?fieldValidation=Warn", body.replace(b"NAME", b"b"))
    assert len(warned.warnings) == 2
    silent = await api.post(f"{CONFIG_MAPS}?fieldValidation=Ignore", body.replace(b"NAME", b"c"))
    assert (silent.status, silent.warnings) == (201, [])
    strict = await api.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body.replace(b"NAME", b"d"))
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "nonsense", duplicate field "data.a"' in (
        strict.message
    )
    wrong = await api.post(f"{CONFIG_MAPS}?fieldValidation=Foo", config_map("e"))
    assert (wrong.status, wrong.reason) == (422, "Invalid")


async def test_yaml_bodies(api: ApiClient) -> None:
    """An object can be sent as YAML."""
    body = b"kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: y\ndata:\n  yes: 'on'\n"
    reply = await api.post(CONFIG_MAPS, body, content_type=YAML)
    assert reply.status == 201
    assert reply.json["data"] == {"yes": "on"}


async def test_an_unacceptable_response_type_stores_nothing(api: ApiClient) -> None:
    """406 is returned before the write, as is 422."""
    refused = await api.post(CONFIG_MAPS, config_map("a"), accept="application/cbor")
    assert (refused.status, refused.reason) == (406, "NotAcceptable")
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    bad = await api.post(f"{CONFIG_MAPS}?includeObject=Some", config_map("a"), accept=table)
    assert (bad.status, bad.reason) == (422, "Invalid")
    assert (await api.get(f"{CONFIG_MAPS}/a")).status == 404


async def test_validation_lists_every_cause(api: ApiClient) -> None:
    """A 422 has the kind, the name and one cause for each error."""
    reply = await api.post(
        CONFIG_MAPS, config_map("Not_A_Name", labels={"bad key": "x"}, finalizers=["bare"])
    )
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.message.startswith('ConfigMap "Not_A_Name" is invalid: [')
    details = reply.json["details"]
    assert (details["kind"], details["name"]) == ("ConfigMap", "Not_A_Name")
    fields = {cause["field"] for cause in details["causes"]}
    assert fields == {"metadata.name", "metadata.labels", "metadata.finalizers[0]"}
    assert all(cause["reason"] == "FieldValueInvalid" for cause in details["causes"])


@pytest.mark.parametrize(
    ("collection", "name", "code"),
    [
        (CONFIG_MAPS, "a.b", 201),
        ("/api/v1/namespaces", "a.b", 422),
        (f"{NS}/services", "1abc", 201),
        (f"{NS}/services", "a.b", 422),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "system:Some Role", 201),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "a%b", 422),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "..", 422),
    ],
)
async def test_name_rules_per_kind(api: ApiClient, collection: str, name: str, code: int) -> None:
    """DNS subdomains for most, labels for namespaces and services, path segments for roles."""
    body: dict[str, Any] = {"metadata": {"name": name}}
    if collection.endswith("services"):
        body["spec"] = {"ports": [{"port": 80}]}
    assert (await api.post(collection, body)).status == code


async def test_kinds_without_behaviour_warn(api: ApiClient) -> None:
    """A create of a kind without a controller has a warning."""
    bindings = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
    reply = await api.post(bindings, {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})
    assert reply.status == 201, reply.message
    assert len(reply.warnings) == 1


async def test_create_on_a_subresource_is_no_create(server: RunningServer) -> None:
    """A POST to a subresource never creates an object of the kind itself."""
    api = server.client
    await api.post(f"{NS}/serviceaccounts", {"metadata": {"name": "sa"}})
    reply = await api.post(f"{NS}/serviceaccounts/sa/token", {"metadata": {"name": "other"}})
    assert reply.status >= 400
    assert (await api.get(f"{NS}/serviceaccounts/other")).status == 404


async def test_protobuf_bodies(api: ApiClient) -> None:
    """Go clients send protobuf: ConfigMap, Namespace and Lease are decoded from it."""
    from restow.apimachinery.protobuf_encode import encode, write_envelope
    from restow.kinds.types import load_types

    def message(group: str, version: str, kind: str, obj: dict[str, Any]) -> bytes:
        struct = load_types().of_kind(group, version, kind)
        assert struct is not None
        name = f"{group}/{version}" if group else version
        return write_envelope(name, kind, encode(struct, obj))

    body = message("", "v1", "ConfigMap", {"metadata": {"name": "p"}, "data": {"a": "b"}})
    reply = await api.post(
        CONFIG_MAPS, body, content_type=PROTOBUF, accept=f"{PROTOBUF},application/json"
    )
    assert reply.status == 201
    assert reply.header("content-type") == PROTOBUF
    assert (await api.get(f"{CONFIG_MAPS}/p")).json["data"] == {"a": "b"}
    body = message("", "v1", "Namespace", {"metadata": {"name": "from-go"}})
    assert (await api.post("/api/v1/namespaces", body, content_type=PROTOBUF)).status == 201
    lease = {
        "metadata": {"name": "l"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.678901Z",
        },
    }
    body = message("coordination.k8s.io", "v1", "Lease", lease)
    place = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    reply = await api.post(place, body, content_type=PROTOBUF)
    assert reply.status == 201
    assert reply.json["spec"] == lease["spec"]
    wrong = await api.post(CONFIG_MAPS, body, content_type=PROTOBUF)
    assert (wrong.status, wrong.reason) == (400, "BadRequest")


async def test_duplicate_owners(api: ApiClient) -> None:
    """Of equal owner references one is kept, with a warning."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    other = {**owner, "uid": "v"}
    owners = [owner, dict(reversed(owner.items())), other]
    reply = await api.post(CONFIG_MAPS, config_map("a", ownerReferences=owners))
    assert reply.status == 201
    assert reply.json["metadata"]["ownerReferences"] == [owner, other]
    assert len(reply.warnings) == 1
