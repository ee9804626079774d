"""Pods: what is done by their subresources where nothing runs, and deletes that give them time."""

from __future__ import annotations

from typing import Any

import pytest

from restow.admission.review import kind_of
from restow.apimachinery.protobuf_encode import encode, write_envelope
from restow.kinds.types import load_types
from restow.storage.memory import MemoryStorage
from tests.conformance.api.plugins import Plugin
from tests.conformance.api.servers import NS, start_server
from tests.support.api_client import PROTOBUF, TABLE, ApiClient, Reply

pytestmark = pytest.mark.parametrize("driver", ["memory"], indirect=True)

PODS = f"{NS}/pods"
POD = f"{PODS}/a"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LIMITS = {"cpu": "2", "memory": "20Mi"}
STRATEGIC = "application/strategic-merge-patch+json"


def pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": spec.pop("resources", {})}
    labels = {"app": "x"}
    return {
        "metadata": {"name": "a", "labels": labels},
        "spec": {"containers": [container], **spec},
    }


def binding(name: str = "a", node: str = "n", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def eviction(name: str = "a", **options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }


async def make(api: ApiClient, **spec: Any) -> Reply:
    reply = await api.post(PODS, pod(**spec))
    assert reply.status == 201, reply.message
    return reply


async def run(api: ApiClient, *, ready: bool) -> None:
    """Say of the pod what a node would say of it."""
    obj = (await api.get(POD)).json
    condition = {"type": "Ready", "status": str(ready)}
    obj["status"] |= {"phase": "Running", "conditions": [condition]}
    reply = await api.put(f"{POD}/status", obj)
    assert reply.status == 200, reply.message


async def budget(api: ApiClient, name: str = "p", **state: Any) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    made = await api.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    obj = made.json
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    obj["status"] = {"observedGeneration": 1, "disruptionsAllowed": 0, **counts, **state}
    reply = await api.put(f"{BUDGETS}/{name}/status", obj)
    assert reply.status == 200, reply.message


async def test_a_binding_gives_a_pod_to_a_node(api: ApiClient) -> None:
    """Node, condition, labels and annotations are set once, and count as no other generation."""
    await make(api)
    reply = await api.post(f"{POD}/binding", binding(annotations={"k": "v"}, labels={"l": "m"}))
    assert (reply.status, reply.json["status"]) == (201, "Success")
    found = (await api.get(POD)).json
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"]["generation"] == 1
    assert found["metadata"]["annotations"]["k"] == "v"
    assert found["metadata"]["labels"] == {"app": "x", "l": "m"}
    [condition] = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await api.post(f"{POD}/binding", binding())
    assert (again.status, again.reason) == (409, "Conflict")
    assert again.message.endswith('pod a is already assigned to node "n"')


async def test_bindings_by_the_old_path_and_in_protobuf(api: ApiClient) -> None:
    """The collection does the same; a body may come in protobuf."""
    await make(api)
    struct = load_types().of_kind("", "v1", "Binding")
    assert struct is not None
    body = write_envelope("v1", "Binding", encode(struct, binding()))
    reply = await api.post(f"{NS}/bindings", body, content_type=PROTOBUF)
    assert reply.status == 201, reply.message
    assert (await api.get(POD)).json["spec"]["nodeName"] == "n"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (f"{POD}/binding", binding("b"), 400),
        (f"{POD}/binding", {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}, 400),
        (f"{POD}/binding", {"metadata": {"name": "a"}}, 422),
        (f"{POD}/binding", {**binding(), "target": {"kind": "Foo", "name": "n"}}, 422),
        (f"{POD}/binding", binding(uid="another"), 409),
        (f"{POD}/binding", binding(resourceVersion="1"), 409),
        (f"{POD}/binding", binding(namespace="other"), 400),
        (f"{PODS}/b/binding", binding("b"), 404),
        (f"{NS}/bindings", {"target": {"name": "n"}}, 400),
        (f"{NS}/bindings", b"[]", 400),
    ],
)
async def test_bindings_that_are_refused(api: ApiClient, path: str, body: Any, code: int) -> None:
    """A binding that does not fit is told so, and the pod stays without a node."""
    await make(api)
    assert (await api.post(path, body)).status == code
    assert "nodeName" not in (await api.get(POD)).json["spec"]


async def test_a_dry_run_binds_nothing(api: ApiClient) -> None:
    """Whoever only tries gets the same answer."""
    await make(api)
    assert (await api.post(f"{POD}/binding?dryRun=All", binding())).status == 201
    assert "nodeName" not in (await api.get(POD)).json["spec"]


async def test_a_pod_on_a_node_is_given_time(api: ApiClient) -> None:
    """It stays until a delete gives it none; the time can be made shorter, not longer."""
    await make(api, nodeName="n")
    first = (await api.delete(POD)).json["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["generation"]) == (30, 2)
    same = (await api.delete(f"{POD}?gracePeriodSeconds=99")).json["metadata"]
    assert same == first
    shorter = (await api.delete(POD, {"gracePeriodSeconds": 10})).json["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    assert (await api.get(POD)).status == 200
    last = (await api.delete(f"{POD}?gracePeriodSeconds=0")).json["metadata"]
    assert last["deletionGracePeriodSeconds"] == 0
    assert (await api.get(POD)).status == 404


async def test_pods_that_go_at_once(api: ApiClient) -> None:
    """Nothing must end of a pod that has no node, or is over."""
    await make(api)
    assert (await api.delete(POD)).json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(POD)).status == 404
    made = await make(api, nodeName="n")
    obj = made.json
    obj["status"]["phase"] = "Succeeded"
    assert (await api.put(f"{POD}/status", obj)).status == 200
    await api.delete(POD)
    assert (await api.get(POD)).status == 404


async def test_time_and_finalizers(api: ApiClient) -> None:
    """A pod without finalizers stays as long as it has time; with them it stays after that too."""
    await api.post(PODS, pod(nodeName="n") | {"metadata": {"name": "a", "finalizers": ["x.io/a"]}})
    await api.delete(POD)
    patch = {"metadata": {"finalizers": None}}
    kept = await api.patch(POD, patch, content_type="application/merge-patch+json")
    assert kept.status == 200
    assert (await api.get(POD)).json["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.delete(f"{POD}?gracePeriodSeconds=0")
    assert (await api.get(POD)).status == 404


async def test_an_eviction_deletes_a_pod(api: ApiClient) -> None:
    """It says why in the pod, takes the options of a delete, and leaves it in a dry run."""
    await make(api, nodeName="n")
    tried = await api.post(f"{POD}/eviction", eviction(dryRun=["All"]))
    assert tried.status == 201
    assert "deletionTimestamp" not in (await api.get(POD)).json["metadata"]
    other = await api.post(f"{POD}/eviction", eviction(preconditions={"uid": "another"}))
    assert (other.status, other.reason) == (409, "Conflict")
    reply = await api.post(f"{POD}/eviction", eviction(gracePeriodSeconds=7))
    assert (reply.status, reply.json["status"]) == (201, "Success")
    found = (await api.get(POD)).json
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7
    [condition] = found["status"]["conditions"]
    assert condition["type"] == "DisruptionTarget"
    assert condition["reason"] == "EvictionByEvictionAPI"


async def test_evictions_of_the_older_version(api: ApiClient) -> None:
    """Older clients send `policy/v1beta1`, in JSON or protobuf; others' kinds are refused."""
    old = {**eviction(), "apiVersion": "policy/v1beta1"}
    await make(api)
    assert (await api.post(f"{POD}/eviction", old)).status == 201
    await make(api)
    struct = load_types().of_kind("policy", "v1", "Eviction")
    assert struct is not None
    body = write_envelope("policy/v1beta1", "Eviction", encode(struct, eviction()))
    assert (await api.post(f"{POD}/eviction", body, content_type=PROTOBUF)).status == 201
    assert (await api.post(f"{POD}/eviction", {**old, "apiVersion": "v1"})).status == 400
    assert (await api.post(f"{POD}/eviction", eviction("b"))).status == 400
    assert (await api.post(f"{POD}/eviction", eviction())).status == 404


async def test_a_budget_bounds_evictions(api: ApiClient) -> None:
    """A running pod goes only if its budget allows it, and each takes one off what it allows."""
    await make(api, nodeName="n")
    await run(api, ready=True)
    await budget(api)
    refused = await api.post(f"{POD}/eviction", eviction())
    assert (refused.status, refused.reason) == (429, "TooManyRequests")
    [cause] = refused.json["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget p needs 1 healthy pods and has 1 currently",
    }
    assert refused.header("retry-after") == ""
    obj = (await api.get(f"{BUDGETS}/p")).json
    obj["status"]["disruptionsAllowed"] = 1
    await api.put(f"{BUDGETS}/p/status", obj)
    assert (await api.post(f"{POD}/eviction?dryRun=All", eviction())).status == 201
    assert (await api.get(f"{BUDGETS}/p")).json["status"]["disruptionsAllowed"] == 1
    assert (await api.post(f"{POD}/eviction", eviction())).status == 201
    state = (await api.get(f"{BUDGETS}/p")).json["status"]
    assert (state["disruptionsAllowed"], list(state["disruptedPods"])) == (0, ["a"])
    assert state["conditions"][0]["reason"] == "InsufficientPods"


async def test_budgets_that_nobody_has_looked_at(api: ApiClient) -> None:
    """Until its status speaks of its newest generation, a budget allows nothing, and says when to
    come again; two budgets are one too many."""
    await make(api, nodeName="n")
    await run(api, ready=True)
    await budget(api, observedGeneration=0, disruptionsAllowed=1)
    refused = await api.post(f"{POD}/eviction", eviction())
    assert (refused.status, refused.header("retry-after")) == (429, "10")
    await budget(api, "q", disruptionsAllowed=1)
    several = await api.post(f"{POD}/eviction", eviction())
    assert (several.status, several.reason) == (500, "")
    assert "more than one PodDisruptionBudget" in several.message


async def test_pods_that_are_not_ready_are_not_counted_on(api: ApiClient) -> None:
    """Where enough others are healthy, a pod that is not ready may go whatever is allowed."""
    await make(api, nodeName="n")
    await run(api, ready=False)
    await budget(api, currentHealthy=0)
    assert (await api.post(f"{POD}/eviction", eviction())).status == 429
    obj = (await api.get(f"{BUDGETS}/p")).json
    obj["status"]["currentHealthy"] = 1
    await api.put(f"{BUDGETS}/p/status", obj)
    assert (await api.post(f"{POD}/eviction", eviction())).status == 201
    assert "disruptedPods" not in (await api.get(f"{BUDGETS}/p")).json["status"]


async def test_ephemeral_containers_are_added(api: ApiClient) -> None:
    """By their path they are added, and nothing else is changed by it."""
    made = await make(api, nodeName="n")
    obj = made.json
    obj["spec"] |= {"ephemeralContainers": [{"name": "d", "image": "x"}], "nodeName": "other"}
    obj["metadata"]["labels"] = {"y": "z"}
    reply = await api.put(f"{POD}/ephemeralcontainers", obj)
    assert reply.status == 200, reply.message
    assert reply.json["spec"]["nodeName"] == "n"
    assert reply.json["metadata"]["labels"] == {"app": "x"}
    assert reply.json["metadata"]["generation"] == 2
    patch = {"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}}
    added = await api.patch(f"{POD}/ephemeralcontainers", patch, content_type=STRATEGIC)
    assert {each["name"] for each in added.json["spec"]["ephemeralContainers"]} == {"d", "e"}


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([], 'existing ephemeral containers "d" may not be removed'),
        ([{"name": "d", "image": "y"}], 'existing ephemeral containers "d" may not be changed'),
        ([{"name": "c", "image": "x"}], 'Duplicate value: "c"'),
        ([{"image": "x"}], "name: Required value"),
        ([{"name": "e", "image": "x", "targetContainerName": "z"}], 'Not found: "z"'),
        ([{"name": "e", "image": "x", "ports": [{"containerPort": 1}]}], "ports: Forbidden"),
    ],
)
async def test_ephemeral_containers_that_are_refused(
    api: ApiClient, containers: list[dict[str, Any]], text: str
) -> None:
    """None is changed or taken away, and they are less than other containers."""
    obj = (await make(api, nodeName="n")).json
    obj["spec"]["ephemeralContainers"] = [{"name": "d", "image": "x"}]
    obj = (await api.put(f"{POD}/ephemeralcontainers", obj)).json
    obj["spec"]["ephemeralContainers"] = containers
    reply = await api.put(f"{POD}/ephemeralcontainers", obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert text in reply.message


async def test_ephemeral_containers_come_by_their_path_only(api: ApiClient) -> None:
    """Who may update pods need not be one who may look into them: that has a right of its own."""
    obj = (await make(api, nodeName="n")).json
    obj["spec"]["ephemeralContainers"] = [{"name": "d", "image": "x"}]
    reply = await api.put(POD, obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    patch = {"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}}
    assert (await api.patch(POD, patch, content_type=STRATEGIC)).status == 422
    obj["spec"]["ephemeralContainers"][0]["securityContext"] = {"runAsUser": -5}
    reply = await api.put(f"{POD}/ephemeralcontainers", obj)
    assert reply.status == 422
    assert "spec.ephemeralContainers[0].securityContext.runAsUser" in reply.message


async def test_a_resize(api: ApiClient) -> None:
    """Processor and memory change by it, and nothing else does."""
    made = await make(api, resources={"requests": {"cpu": "1", "memory": "10Mi"}, "limits": LIMITS})
    obj = made.json
    obj["spec"]["containers"][0] |= {"image": "other"}
    obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"
    reply = await api.put(f"{POD}/resize", obj)
    assert reply.status == 200, reply.message
    [container] = reply.json["spec"]["containers"]
    assert container["image"] == "i"
    assert container["resources"]["requests"]["cpu"] == "500m"


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([{"requests": LIMITS, "limits": LIMITS}], "Pod QOS Class may not change"),
        (
            [{"requests": {"cpu": "1", "memory": "10Mi"}, "limits": {"cpu": "2"}}],
            "resource limits cannot be removed",
        ),
        (
            [
                {
                    "requests": {"cpu": "1", "memory": "1Mi", "ephemeral-storage": "1"},
                    "limits": LIMITS,
                }
            ],
            "only cpu and memory resources are mutable",
        ),
        ([{}, {}], "containers may not be added or removed on resize"),
        (
            [{"requests": {"cpu": "-1", "memory": "10Mi"}, "limits": LIMITS}],
            "must be greater than or equal to 0",
        ),
        (
            [{"requests": {"cpu": "3", "memory": "10Mi"}, "limits": LIMITS}],
            "must be less than or equal to cpu limit",
        ),
    ],
)
async def test_resizes_that_are_refused(
    api: ApiClient, containers: list[dict[str, Any]], text: str
) -> None:
    """What a pod is to its node does not change, nor do its containers."""
    made = await make(api, resources={"requests": {"cpu": "1", "memory": "10Mi"}, "limits": LIMITS})
    obj = made.json
    obj["spec"]["containers"] = [
        {**obj["spec"]["containers"][0], "name": f"c{index}" if index else "c", "resources": each}
        for index, each in enumerate(containers)
    ]
    reply = await api.put(f"{POD}/resize", obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert text in reply.message


async def test_what_would_run_is_told_that_nothing_does(api: ApiClient) -> None:
    """Logs are empty without a node; all else is refused, and no connection is made anywhere."""
    await make(api)
    assert (await api.get(f"{POD}/log")).status == 204
    for name in ("exec?command=ls", "attach", "portforward"):
        reply = await api.post(f"{POD}/{name}", None)
        assert (reply.status, reply.message) == (400, "pod a does not have a host assigned")
    assert (await api.get(f"{POD}/log?container=z")).status == 400
    assert (await api.get(f"{POD}/log?tailLines=-1")).status == 422
    assert (await api.get(f"{PODS}/b/log")).status == 404
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    await api.post(f"{POD}/binding", binding())
    for path in (f"{POD}/log", f"{POD}/exec", f"{POD}/attach", f"{POD}/portforward"):
        reply = await api.get(path)
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable")
        assert reply.message.endswith("only stores objects; there are no kubelets")


async def test_nothing_is_passed_on(api: ApiClient) -> None:
    """A proxy path of a pod, a service or a node leads nowhere, with whatever method and port."""
    await make(api)
    await api.post(f"{NS}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    for base in (POD, f"{PODS}/https:a:6443", f"{NS}/services/s:80", "/api/v1/nodes/n"):
        for path in ("/proxy", "/proxy/", "/proxy/some/path?x=y"):
            assert (await api.get(base + path)).status == 503
        assert (await api.post(f"{base}/proxy/x", {})).status == 503
        assert (await api.delete(f"{base}/proxy/x")).status == 503
    assert (await api.get(f"{NS}/services/t/proxy/x")).status == 404
    assert (await api.get(f"{PODS}/ftp:a:80/proxy/x")).status == 400
    assert (await api.get(f"{POD}/log/x")).status == 404


async def test_component_statuses(api: ApiClient) -> None:
    """The store is the one component, and whoever asks is told that the kind is old."""
    reply = await api.get("/api/v1/componentstatuses")
    assert reply.json["kind"] == "ComponentStatusList"
    assert reply.names == ["etcd-0"]
    assert reply.warnings == ['299 - "v1 ComponentStatus is deprecated in v1.19+"']
    one = await api.get("/api/v1/componentstatuses/etcd-0")
    assert one.json["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    table = await api.get("/api/v1/componentstatuses", accept=TABLE)
    assert table.json["rows"][0]["cells"] == ["etcd-0", "Healthy", "ok", ""]
    assert (await api.get("/api/v1/componentstatuses/scheduler")).status == 404
    assert (await api.get("/api/v1/componentstatuses?fieldSelector=metadata.name%3Dx")).names == []
    assert (await api.post("/api/v1/componentstatuses", {})).status == 405


async def test_new_pods_get_a_priority_and_tolerations(api: ApiClient) -> None:
    """They have the value of their class, and stay five minutes where a node is not well."""
    plain = (await make(api)).json["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [each["key"] for each in plain["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    await api.delete(POD)
    high = {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}
    await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    made = (await make(api, priorityClassName="high", tolerations=[{"operator": "Exists"}])).json
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    await api.delete(POD)
    unknown = await api.post(PODS, pod(priorityClassName="low"))
    assert (unknown.status, unknown.reason) == (403, "Forbidden")
    assert unknown.message.endswith("no PriorityClass with name low was found")
    assert (await api.post(PODS, pod(priority=5))).status == 403
    assert (await make(api, priorityClassName="system-node-critical")).status == 201


async def test_new_claims_get_the_default_class(api: ApiClient) -> None:
    """A claim that names no class gets the one that is marked, unless it wants none."""
    classes, claims = "/apis/storage.k8s.io/v1/storageclasses", f"{NS}/persistentvolumeclaims"
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    for name, notes in (("plain", {}), ("best", marked)):
        metadata = {"name": name, "annotations": notes}
        await api.post(classes, {"metadata": metadata, "provisioner": "p/q"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    one = await api.post(claims, {"metadata": {"name": "a"}, "spec": spec})
    assert one.json["spec"]["storageClassName"] == "best"
    none = {**spec, "storageClassName": ""}
    other = await api.post(claims, {"metadata": {"name": "b"}, "spec": none})
    assert not other.json["spec"].get("storageClassName")


async def test_a_node_keeps_the_status_that_it_comes_with(driver: str) -> None:
    """Nodes say of themselves what they have when they are made, also where a plug-in is asked."""
    assert driver == "memory"
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    for admission in ([], [Plugin()]):
        server = await start_server(MemoryStorage(), admission=admission)
        try:
            made = await server.client.post("/api/v1/nodes", node)
            assert made.json["status"]["capacity"] == {"cpu": "4"}
        finally:
            await server.stop()


async def test_plug_ins_are_shown_what_is_sent(driver: str) -> None:
    """Whoever has a say in evictions and bindings is shown these, not a pod, and may refuse."""
    assert driver == "memory"
    plugin = Plugin(refused="b")
    server = await start_server(MemoryStorage(), admission=[plugin])
    try:
        api = server.client
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        await make(api)
        await api.post(f"{POD}/binding", binding())
        assert _shown(plugin) == ("binding", {"group": "", "version": "v1", "kind": "Binding"})
        await api.post(f"{POD}/eviction", eviction())
        wanted = {"group": "policy", "version": "v1", "kind": "Eviction"}
        assert _shown(plugin) == ("eviction", wanted)
        refused = await api.post(f"{PODS}/b/eviction", eviction("b"))
        assert (refused.status, refused.reason) == (403, "Forbidden")
    finally:
        await server.stop()


def _shown(plugin: Plugin) -> tuple[str, dict[str, str]]:
    asked = plugin.asked[-1]
    assert asked.obj is not None
    found = kind_of(asked.resource, asked.version, asked.subresource)
    assert asked.obj["kind"] == found["kind"]
    return asked.subresource, found
