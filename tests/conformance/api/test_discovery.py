"""Discovery (unaggregated and aggregated), OpenAPI, version, health and unknown paths."""

from __future__ import annotations

import gzip
import re

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import (
    BUILTIN,
    CONFIG_MAPS,
    OTHER_TOKEN,
    RunningServer,
    catalog_of,
    config_map,
)
from tests.support.api_client import JSON, ApiClient

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
AS_KUBECTL = (
    f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,{JSON}"
)


async def test_plain_documents(api: ApiClient) -> None:
    """Group and version documents have the shape that clients expect."""
    versions = (await api.get("/api")).json
    assert versions["kind"] == "APIVersions"
    assert versions["versions"] == ["v1"]
    assert versions["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"
    groups = (await api.get("/apis")).json
    assert (groups["kind"], groups["apiVersion"]) == ("APIGroupList", "v1")
    by_name = {group["name"]: group for group in groups["groups"]}
    assert by_name["autoscaling"]["preferredVersion"] == {
        "groupVersion": "autoscaling/v2",
        "version": "v2",
    }
    assert [each["version"] for each in by_name["batch"]["versions"]] == [
        "v1",
        "v1beta1",
        "v2alpha1",
    ]
    group = (await api.get("/apis/apps")).json
    assert (group["kind"], group["name"]) == ("APIGroup", "apps")
    resources = (await api.get("/apis/apps/v1")).json
    assert resources["kind"] == "APIResourceList"
    assert resources["groupVersion"] == "apps/v1"
    found = {each["name"]: each for each in resources["resources"]}
    assert found["deployments"]["shortNames"] == ["deploy"]
    assert found["deployments"]["categories"] == ["all"]
    assert found["deployments"]["singularName"] == "deployment"
    assert sorted(found["deployments"]["verbs"]) == [
        "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
    ]  # fmt: skip
    scale = found["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert scale["singularName"] == ""
    assert "storageVersionHash" not in scale
    assert (await api.get("/")).json["paths"]


async def test_trailing_slashes(api: ApiClient) -> None:
    """Discovery paths with a trailing slash are served; some clients send one."""
    for path in ("/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"):
        assert (await api.get(path + "/")).json == (await api.get(path)).json, path
    assert (await api.get(f"{CONFIG_MAPS}/")).json["kind"] == "ConfigMapList"


async def test_hashes(api: ApiClient) -> None:
    """The storage version hash of a resource is the same under every served version."""
    table = {
        ("/api/v1", "pods"): "xPOwRZ+Yhw8=",
        ("/apis/apps/v1", "deployments"): "8aSe+NMegvE=",
        ("/apis/apps/v1beta1", "deployments"): "8aSe+NMegvE=",
        ("/apis/autoscaling/v1", "horizontalpodautoscalers"): "qwQve8ut294=",
        ("/apis/autoscaling/v2", "horizontalpodautoscalers"): "qwQve8ut294=",
        ("/apis/apiregistration.k8s.io/v1", "apiservices"): "InPBPD7+PqM=",
        ("/apis/internal.apiserver.k8s.io/v1alpha1", "storageversions"): "c8YZt5U0nPk=",
        ("/apis/storagemigration.k8s.io/v1beta1", "storageversionmigrations"): "pCjmmKOkLy4=",
        ("/apis/events.k8s.io/v1", "events"): storage_version_hash(
            GroupVersionKind("", "v1", "Event")
        ),
    }
    for (path, name), expected in table.items():
        resources = (await api.get(path)).json["resources"]
        found = next(each for each in resources if each["name"] == name)
        assert found["storageVersionHash"] == expected, name
    reviews = (await api.get("/apis/authorization.k8s.io/v1")).json["resources"]
    assert all("storageVersionHash" not in each for each in reviews)


async def test_aggregated(api: ApiClient) -> None:
    """Aggregated discovery returns all resources in two documents; the Content-Type of the response
    repeats the media type parameters."""
    for path, accept in (("/api", AS_KUBECTL), ("/apis", AS_KUBECTL), ("/apis", AGGREGATED)):
        reply = await api.get(path, accept=accept)
        assert reply.status == 200
        kind, *parameters = reply.header("content-type").replace(" ", "").split(";")
        assert kind == JSON
        assert {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= set(parameters)
        assert reply.header("vary") == "Accept"
        assert reply.header("cache-control") == "public"
        assert reply.json["apiVersion"] == "apidiscovery.k8s.io/v2"
        assert reply.json["kind"] == "APIGroupDiscoveryList"
    nopeer = await api.get("/apis", accept=AGGREGATED + ";profile=nopeer")
    assert nopeer.json["kind"] == "APIGroupDiscoveryList"
    core = (await api.get("/api", accept=AGGREGATED)).json["items"]
    assert [item["metadata"].get("name", "") for item in core] == [""]
    apis = {
        item["metadata"]["name"]: item
        for item in (await api.get("/apis", accept=AGGREGATED)).json["items"]
    }
    apps = apis["apps"]["versions"][0]
    assert (apps["version"], apps["freshness"]) == ("v1", "Current")
    deployments = next(each for each in apps["resources"] if each["resource"] == "deployments")
    assert deployments["scope"] == "Namespaced"
    assert deployments["responseKind"]["kind"] == "Deployment"
    assert deployments["singularResource"] == "deployment"
    assert {each["subresource"] for each in deployments["subresources"]} == {"status", "scale"}


async def test_both_forms_agree(api: ApiClient) -> None:
    """Aggregated and unaggregated discovery list the same resources."""
    plain, aggregated = set(), set()
    for path in ("/api", "/apis"):
        for item in (await api.get(path, accept=AGGREGATED)).json["items"]:
            group = item["metadata"].get("name", "")
            for version in item["versions"]:
                prefix = f"{group}/{version['version']}" if group else version["version"]
                for each in version["resources"]:
                    aggregated.add((prefix, each["resource"], tuple(each["verbs"])))
                    for part in each.get("subresources", ()):
                        name = f"{each['resource']}/{part['subresource']}"
                        aggregated.add((prefix, name, tuple(part["verbs"])))
    paths = ["/api/v1"]
    for group in (await api.get("/apis")).json["groups"]:
        paths += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
    for path in paths:
        document = (await api.get(path)).json
        for each in document["resources"]:
            plain.add((document["groupVersion"], each["name"], tuple(each["verbs"])))
    assert plain == aggregated


async def test_forms_of_discovery_that_are_not_offered(api: ApiClient) -> None:
    """A request that accepts only the beta form gets 406; so does one for groups as a Table."""
    beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    assert (await api.get("/apis", accept=beta)).status == 406
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    assert (await api.get("/apis", accept=table)).status == 406
    assert (await api.get(CONFIG_MAPS, accept=AGGREGATED)).status == 406


async def test_tags(api: ApiClient) -> None:
    """If-None-Match with the current ETag returns 304 without a body; another ETag gets the
    document."""
    first = await api.get("/apis", accept=AGGREGATED)
    tag = first.header("etag")
    assert re.fullmatch(r'"[0-9A-F]+"', tag)
    same = await api.get("/apis", accept=AGGREGATED, headers={"If-None-Match": tag})
    assert (same.status, same.body) == (304, b"")
    other = await api.get("/apis", accept=AGGREGATED, headers={"If-None-Match": '"X"'})
    assert other.json == first.json


async def test_openapi_v3(api: ApiClient) -> None:
    """The index has hashes, and each group version's document contains what kubectl reads."""
    index = (await api.get("/openapi/v3")).json["paths"]
    assert set(index) >= {"api/v1", "apis/apps/v1", "apis/batch/v1beta1"}
    for group, versions in BUILTIN.groups.items():
        for version in versions:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            assert name in index
    url = index["apis/coordination.k8s.io/v1"]["serverRelativeURL"]
    assert url.startswith("/openapi/v3/apis/coordination.k8s.io/v1?hash=")
    kept = await api.get(url)
    assert kept.status == 200
    assert "immutable" in kept.header("cache-control")
    document = kept.json
    assert document["openapi"].startswith("3.")
    path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    patch = document["paths"][path]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Lease"
    names = {each.get("name") for each in patch["parameters"]}
    assert "fieldValidation" in names
    plain = await api.get("/openapi/v3/apis/coordination.k8s.io/v1")
    assert plain.header("cache-control") == "no-cache, private"
    assert plain.body == kept.body
    tag = plain.header("etag")
    again = await api.get("/openapi/v3/apis/coordination.k8s.io/v1", headers={"If-None-Match": tag})
    assert again.status == 304
    packed = await api.get(
        "/openapi/v3/apis/coordination.k8s.io/v1", headers={"Accept-Encoding": "gzip"}
    )
    assert gzip.decompress(packed.body) == plain.body


async def test_a_wrong_hash(api: ApiClient) -> None:
    """A request with an outdated hash is redirected to the current one."""
    reply = await api.get("/openapi/v3/apis/coordination.k8s.io/v1?hash=OLD")
    assert reply.status == 301
    index = (await api.get("/openapi/v3")).json["paths"]
    assert reply.header("location") == index["apis/coordination.k8s.io/v1"]["serverRelativeURL"]


async def test_openapi_documents_that_are_not_there(api: ApiClient) -> None:
    """A group version that is not served has no OpenAPI document."""
    for path in ("/openapi/v3/apis/none/v1", "/openapi/v3/api/v9", "/openapi/v3/x", "/openapi/v9"):
        reply = await api.get(path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n"), path


async def test_version(api: ApiClient, server: RunningServer) -> None:
    """/version has a semantic version, only string fields, and is readable without credentials."""
    anonymous = ApiClient(server.port)
    reply = await anonymous.get("/version")
    await anonymous.close()
    assert reply.status == 200
    assert re.match(r"v\d\.\d+\.\d+", reply.json["gitVersion"])
    assert all(isinstance(value, str) for value in reply.json.values())
    assert {"major", "minor", "gitCommit", "platform", "compiler"} <= set(reply.json)


async def test_health(server: RunningServer) -> None:
    """Health endpoints are public, list their checks with `verbose`, and return 500 on failure."""
    anonymous = ApiClient(server.port)
    for probe in ("healthz", "livez", "readyz"):
        reply = await anonymous.get(f"/{probe}")
        assert (reply.status, reply.body) == (200, b"ok")
        assert reply.header("content-type") == "text/plain; charset=utf-8"
        told = await anonymous.get(f"/{probe}?verbose")
        assert b"[+]ping ok\n" in told.body
        assert told.body.endswith(f"{probe} check passed\n".encode())
    assert (await anonymous.get("/livez/ping")).status == 403
    assert (await server.client.get("/livez/ping")).body == b"ok"
    assert (await server.client.get("/livez/none")).status == 404
    server.assembly.health.add("broken", lambda: "the secret reason", "readyz")
    bad = await anonymous.get("/readyz")
    assert bad.status == 500
    assert b"[-]broken failed: reason withheld\n" in bad.body
    assert bad.body.endswith(b"readyz check failed\n")
    assert b"secret" not in bad.body
    assert (await anonymous.get("/readyz?exclude=broken")).status == 200
    assert (await anonymous.get("/livez")).status == 200
    await anonymous.close()


async def test_metrics(server: RunningServer) -> None:
    """/metrics is in Prometheus' text format and requires authorization."""
    reply = await server.client.get("/metrics")
    assert reply.header("content-type").startswith("text/plain; version=0.0.4")
    assert b"apiserver_request_total{" in reply.body
    anonymous = ApiClient(server.port)
    assert (await anonymous.get("/metrics")).status == 403
    await anonymous.close()


async def test_paths_that_are_not_there(api: ApiClient) -> None:
    """An unknown group gets plain text; an unknown version or resource of a known one, a Status."""
    for path in ("/nonsense", "/apis/none", "/apis/none/v1", "/apis/none/v1/things"):
        reply = await api.get(path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n"), path
        assert reply.header("content-type").startswith("text/plain")
    for path in (
        "/api/v2",
        "/api/v2/configmaps",
        "/apis/apps/v9",
        "/apis/apps/v9/deployments",
        "/apis/apps/v9/namespaces/default/deployments/x",
        "/api/v1/things",
        "/apis/apps/v1/things",
        "/apis/apps/v1beta1/daemonsets",
        "/api/v1/namespaces/default/things/x",
        "/api/v1/namespaces/default/configmaps/x/status",
        "/api/v1/namespaces/default/configmaps/x/y/z",
        "/api/v1/configmaps/x",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/nodes/x",
        "/api/v1/namespaces/default/namespaces",
        "/api/v1/namespaces/default/namespaces/kube-system",
    ):
        reply = await api.get(path)
        assert (reply.status, reply.reason) == (404, "NotFound"), path
        assert reply.json["details"] == {}, path


async def test_cluster_scoped_resources_below_a_namespace(api: ApiClient) -> None:
    """Cluster-scoped resources are not reachable through a namespace's path, with any verb."""
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for place in ("namespaces/other", "nodes/other"):
        path = f"/api/v1/namespaces/default/{place}"
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            body = None if method == "GET" else {"metadata": {"name": "other"}}
            reply = await api.request(method, path, body)
            assert (reply.status, reply.reason) == (404, "NotFound"), (method, path)
    created = await api.post(
        "/api/v1/namespaces/default/namespaces", {"metadata": {"name": "sneaky"}}
    )
    assert created.status == 404
    assert (await api.get("/api/v1/namespaces/sneaky")).status == 404
    assert (await api.get("/api/v1/namespaces/other")).json["status"]["phase"] == "Active"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", CONFIG_MAPS),
        ("PATCH", CONFIG_MAPS),
        ("POST", f"{CONFIG_MAPS}/a"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews/x"),
        ("OPTIONS", CONFIG_MAPS),
        ("OPTIONS", f"{CONFIG_MAPS}/a"),
        ("HEAD", CONFIG_MAPS),
        ("HEAD", f"{CONFIG_MAPS}/a"),
        ("POST", "/api/v1/namespaces/default/status"),
        ("GET", "/api/v1/namespaces/default/finalize"),
        ("DELETE", "/apis/apps/v1/namespaces/default/deployments/x/scale"),
    ],
)
async def test_methods_that_are_not_offered(api: ApiClient, method: str, path: str) -> None:
    """An unsupported method gets 405 with reason MethodNotAllowed."""
    reply = await api.request(method, path, {} if method in ("PUT", "POST", "PATCH") else None)
    assert reply.status == 405
    if method != "HEAD":
        assert reply.reason == "MethodNotAllowed"


async def test_methods_of_other_paths(api: ApiClient) -> None:
    """Discovery and health endpoints only accept reads."""
    for path in ("/api", "/apis/apps", "/version", "/livez", "/openapi/v3"):
        for method in ("POST", "DELETE", "PUT"):
            assert (await api.request(method, path)).status == 405, (method, path)


async def test_authentication_and_authorization(server: RunningServer) -> None:
    """No credential: 403; a wrong one: 401; a user without permission: 403, as in Kubernetes."""
    anonymous, wrong, jane = (
        ApiClient(server.port, token=token) for token in (None, "wrong", OTHER_TOKEN)
    )
    forbidden = await anonymous.get(f"{CONFIG_MAPS}/a")
    assert (forbidden.status, forbidden.reason) == (403, "Forbidden")
    assert forbidden.message == (
        'configmaps "a" is forbidden: User "system:anonymous" cannot get resource "configmaps"'
        ' in API group "" in the namespace "default"'
    )
    assert forbidden.json["details"] == {"name": "a", "kind": "configmaps"}
    for path in (CONFIG_MAPS, "/version", "/livez", "/apis"):
        refused = await wrong.get(path)
        assert (refused.status, refused.reason) == (401, "Unauthorized"), path
        assert refused.message == "Unauthorized"
    assert (await jane.get("/apis")).status == 200
    assert (await anonymous.get("/apis")).status == 403
    everywhere = await jane.get("/api/v1/nodes")
    assert everywhere.message.endswith('resource "nodes" in API group "" at the cluster scope')
    part = await jane.request("PUT", "/apis/apps/v1/namespaces/x/deployments/d/scale", {})
    assert 'cannot update resource "deployments/scale" in API group "apps"' in part.message
    metrics = await jane.get("/metrics")
    assert metrics.message == 'forbidden: User "jane" cannot get path "/metrics"'
    unknown = await jane.get("/api/v1/namespaces/x/things")
    assert unknown.status == 403
    for client in (anonymous, wrong, jane):
        await client.close()


async def test_reviews(server: RunningServer) -> None:
    """Reviews get 201 with a status and are never stored."""
    jane = ApiClient(server.port, token=OTHER_TOKEN)
    place = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    requested = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    for client, allowed in ((server.client, True), (jane, False)):
        reply = await client.post(place, {"spec": requested})
        assert (reply.status, reply.json["status"]["allowed"]) == (201, allowed)
    neither = await server.client.post(place, {"spec": {}})
    assert (neither.status, neither.reason) == (422, "Invalid")
    who = await jane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.json["status"]["userInfo"] == {
        "username": "jane",
        "uid": "u-1",
        "groups": ["developers", "system:authenticated"],
    }
    token = "/apis/authentication.k8s.io/v1/tokenreviews"
    known = await server.client.post(token, {"spec": {"token": OTHER_TOKEN}})
    assert known.json["status"]["authenticated"] is True
    unknown = await server.client.post(token, {"spec": {"token": "none"}})
    # The reference omits false fields.
    assert (unknown.status, "authenticated" in unknown.json["status"]) == (201, False)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    only = await server.client.post(place, {"spec": requested}, accept=table)
    assert (only.status, only.reason) == (406, "NotAcceptable")
    other = await server.client.post(place, {"spec": requested}, accept=f"{table},{JSON}")
    assert other.json["kind"] == "SelfSubjectAccessReview"
    await jane.close()


async def test_a_release_with_additional_kinds(start: StartServer) -> None:
    """Kinds that a release adds are discovered, described, stored and shown as Tables."""
    server = await start(catalog_of("x+1"))
    api = server.client
    await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    groups = {each["name"]: each for each in (await api.get("/apis")).json["groups"]}
    assert [each["version"] for each in groups["example.com"]["versions"]] == ["v2", "v1"]
    found = (await api.get("/apis/example.com/v2")).json["resources"]
    widget = storage_version_hash(GroupVersionKind("example.com", "v1", "Widget"))
    assert [(each["name"], each["storageVersionHash"]) for each in found] == [("widgets", widget)]
    assert (await api.get("/openapi/v3/apis/example.com/v2")).status == 200
    place = "/apis/example.com/{}/namespaces/default/widgets"
    made = await api.post(place.format("v2"), {"metadata": {"name": "w"}, "spec": {"any": [1]}})
    assert (made.status, made.json["apiVersion"]) == (201, "example.com/v2")
    assert made.json["spec"] == {"any": [1]}
    shown = await api.get(place.format("v1") + "/w")
    assert (shown.json["apiVersion"], shown.json["spec"]) == ("example.com/v1", {"any": [1]})
    stored = await server.raw("/registry/example.com/widgets/default/w")
    assert stored["apiVersion"] == "example.com/v1"
    table = await api.get(place.format("v2"), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.json["rows"][0]["cells"][0] == "w"


async def test_releases_that_follow_each_other(start: StartServer) -> None:
    """Releases x to x+3 on one store: each reads what the one before wrote, or reports that it
    cannot."""
    place = "/apis/example.com/{}/namespaces/default/widgets"
    api = None
    for name, version in (("x", "v1"), ("x+1", "v1"), ("x+2", "v2"), ("x+3", "v2")):
        api = (await start(catalog_of(name))).client
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        label = "w-" + name.replace("+", "-")
        made = await api.post(place.format(version), {"metadata": {"name": label}})
        assert made.status == 201, name
        if name != "x+3":
            listed = await api.get(place.format(version))
            assert label in listed.names
    assert api is not None
    gone = await api.get(place.format("v2"))
    assert (gone.status, gone.reason) == (500, "InternalError")
    assert "default/w-x:" in gone.message
    assert "not decodable" in gone.message
    assert (await api.get(place.format("v2") + "/w-x-2")).status == 200


async def test_a_list_that_is_too_long_for_yaml(api: ApiClient) -> None:
    """A list over 4 MiB is refused as YAML with a Status; the same list in pages is served."""
    import yaml

    for number in range(5):
        body = config_map(f"a{number}", {"text": "x" * 900_000})
        assert (await api.post(CONFIG_MAPS, body)).status == 201
    refused = await api.get(CONFIG_MAPS, accept="application/yaml")
    assert refused.status == 406
    found = yaml.safe_load(refused.body)
    assert (found["kind"], found["reason"], found["code"]) == ("Status", "NotAcceptable", 406)
    assert found["message"] == "only the following media types are accepted: application/json"
    page = await api.get(f"{CONFIG_MAPS}?limit=3", accept="application/yaml")
    assert [each["metadata"]["name"] for each in yaml.safe_load(page.body)["items"]] == [
        "a0", "a1", "a2",
    ]  # fmt: skip
    assert (await api.get(CONFIG_MAPS)).status == 200


async def test_yaml_and_pretty_answers(api: ApiClient) -> None:
    """Responses, errors included, can be YAML; `pretty` indents them."""
    import yaml

    made = await api.post(CONFIG_MAPS, config_map("a", {"n": "1", "yes": "true", "t": "a\nb"}))
    reply = await api.get(f"{CONFIG_MAPS}/a", accept="application/yaml")
    assert reply.header("content-type") == "application/yaml"
    assert yaml.safe_load(reply.body) == made.json
    listed = await api.get(CONFIG_MAPS, accept="application/yaml")
    assert yaml.safe_load(listed.body) == (await api.get(CONFIG_MAPS)).json
    nothing = await api.get("/api/v1/namespaces/none/configmaps", accept="application/yaml")
    assert yaml.safe_load(nothing.body)["items"] == []
    missing = await api.get(f"{CONFIG_MAPS}/none", accept="application/yaml")
    assert missing.header("content-type") == "application/yaml"
    assert yaml.safe_load(missing.body)["reason"] == "NotFound"
    for target, headers in (
        (f"{CONFIG_MAPS}/a?pretty=true", {}),
        (f"{CONFIG_MAPS}/a?pretty", {}),
        (f"{CONFIG_MAPS}/a", {"User-Agent": "curl/8.0"}),
        (CONFIG_MAPS, {"User-Agent": "Mozilla/5.0 (X11)"}),
        (f"{CONFIG_MAPS}?pretty=1", {}),
    ):
        pretty = await api.get(target, headers=headers)
        assert pretty.body.startswith(b"{\n  "), target
        assert orjson.loads(pretty.body)
    for target, headers in (
        (f"{CONFIG_MAPS}/a?pretty=false", {"User-Agent": "curl/8.0"}),
        (f"{CONFIG_MAPS}/a?pretty=0", {}),
        (f"{CONFIG_MAPS}/a", {"User-Agent": "kubectl/v1.36"}),
    ):
        assert b"\n" not in (await api.get(target, headers=headers)).body, target


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        (None, 200),
        ("", 200),
        ("*/*", 200),
        ("application/*", 200),
        ("application/json, */*", 200),
        ("application/vnd.kubernetes.protobuf, */*", 200),
        ("application/json;q=0.5,application/cbor;q=1", 200),
        ("APPLICATION/JSON", 200),
        ("application/json;stream=watch", 200),
        ("application/cbor", 406),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/json;as=Table;v=v1;g=nowhere", 406),
        ("nonsense", 406),
        (";;;,,,", 200),
        ("a," * 5000, 406),
    ],
)
async def test_accept(api: ApiClient, accept: str | None, code: int) -> None:
    """The first media type in Accept that can be served wins; with none, 406 in JSON."""
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.get(f"{CONFIG_MAPS}/a", accept=accept)
    assert reply.status == code
    assert reply.header("content-type") == JSON
    if code == 406:
        assert reply.reason == "NotAcceptable"


async def test_answers_to_single_objects(api: ApiClient) -> None:
    """A single object can be returned as a Table and as PartialObjectMetadata."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    table = await api.get(f"{CONFIG_MAPS}/a", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert len(table.json["rows"]) == 1
    partial = await api.get(
        f"{CONFIG_MAPS}/a", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )
    assert partial.json == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made.json["metadata"],
    }
    error = await api.get(f"{CONFIG_MAPS}/b", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert (error.status, error.json["kind"]) == (404, "Status")
