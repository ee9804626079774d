"""Pods: their subresources on a server without kubelets, and graceful deletion."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.admission.review import kind_of
from restow.apimachinery.protobuf_encode import encode, write_envelope
from restow.kinds.types import load_types
from restow.registry.write_options import RETRIES_MAX
from restow.storage.interface import Key, Outcome, Put, Transaction
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
    """Writes the status that a kubelet would report."""
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


async def test_a_binding_assigns_a_pod_to_a_node(api: ApiClient) -> None:
    """Node, condition, labels and annotations are set once; the generation does not change."""
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
    """A create in the bindings collection does the same; the body may be protobuf."""
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
    """An invalid binding is refused with the reason, and the pod stays without a node."""
    await make(api)
    assert (await api.post(path, body)).status == code
    assert "nodeName" not in (await api.get(POD)).json["spec"]


async def test_a_dry_run_binds_nothing(api: ApiClient) -> None:
    """A dry run returns the same answer."""
    await make(api)
    assert (await api.post(f"{POD}/binding?dryRun=All", binding())).status == 201
    assert "nodeName" not in (await api.get(POD)).json["spec"]


async def test_graceful_deletion_of_a_pod_on_a_node(api: ApiClient) -> None:
    """The pod stays until a delete with grace period 0; the period can be shortened, not
    extended."""
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


async def test_pods_that_are_deleted_at_once(api: ApiClient) -> None:
    """A pod without a node, or in a final phase, is deleted at once."""
    await make(api)
    assert (await api.delete(POD)).json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(POD)).status == 404
    made = await make(api, nodeName="n")
    obj = made.json
    obj["status"]["phase"] = "Succeeded"
    assert (await api.put(f"{POD}/status", obj)).status == 200
    await api.delete(POD)
    assert (await api.get(POD)).status == 404


async def test_grace_period_and_finalizers(api: ApiClient) -> None:
    """A pod without finalizers stays for its grace period; with finalizers it stays longer."""
    await api.post(PODS, pod(nodeName="n") | {"metadata": {"name": "a", "finalizers": ["x.io/a"]}})
    await api.delete(POD)
    patch = {"metadata": {"finalizers": None}}
    kept = await api.patch(POD, patch, content_type="application/merge-patch+json")
    assert kept.status == 200
    assert (await api.get(POD)).json["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.delete(f"{POD}?gracePeriodSeconds=0")
    assert (await api.get(POD)).status == 404


async def test_an_eviction_deletes_a_pod(api: ApiClient) -> None:
    """An eviction sets the condition, accepts DeleteOptions, and deletes nothing in a dry run."""
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
    """Older clients send `policy/v1beta1`, in JSON or protobuf; other kinds are refused."""
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
    """A running pod is evicted only if its budget allows it; each eviction decrements
    disruptionsAllowed."""
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


class Contended(MemoryStorage):
    """A store in which, while `is_contended`, the pod changes before each transaction on it except
    the fifth, so that an eviction sets its condition and its delete is contended as well."""

    def __init__(self) -> None:
        super().__init__()
        self.is_contended = False
        self.attempts = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        key = Key("/registry/pods/default/a")
        is_on_pod = any(each.key == key for each in transaction.guards)
        self.attempts += is_on_pod and self.is_contended
        if is_on_pod and self.is_contended and self.attempts != 5:
            item = await self.get(key)
            assert item is not None
            obj = orjson.loads(item.value)
            obj["metadata"]["labels"] = {"count": str(self.attempts)}
            await super().commit(Transaction(writes=(Put(key, orjson.dumps(obj)),)))
        return await super().commit(transaction)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
async def test_all_writes_of_an_eviction_share_one_retry_limit(driver: str, phase: str) -> None:
    """One eviction, of a pending or a running pod, sends the store at most two transactions (its
    condition and its delete) and `RETRIES_MAX` retries."""
    assert driver == "memory"
    storage = Contended()
    server = await start_server(storage)
    try:
        api = server.client
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        await make(api, nodeName="n")
        if phase == "Running":
            await run(api, ready=True)
        storage.is_contended = True
        reply = await api.post(f"{POD}/eviction", eviction())
        assert reply.reason in ("ServerTimeout", "Conflict"), reply.message
        assert 5 < storage.attempts <= RETRIES_MAX + 2
    finally:
        storage.is_contended = False
        await server.stop()


async def test_budgets_with_a_stale_status(api: ApiClient) -> None:
    """Until its status has the current generation, a budget allows no evictions and the answer
    has Retry-After; two matching budgets are an error."""
    await make(api, nodeName="n")
    await run(api, ready=True)
    await budget(api, observedGeneration=0, disruptionsAllowed=1)
    refused = await api.post(f"{POD}/eviction", eviction())
    assert (refused.status, refused.header("retry-after")) == (429, "10")
    await budget(api, "q", disruptionsAllowed=1)
    several = await api.post(f"{POD}/eviction", eviction())
    assert (several.status, several.reason) == (500, "")
    assert "more than one PodDisruptionBudget" in several.message


async def test_unready_pods_may_be_evicted(api: ApiClient) -> None:
    """If enough other pods are healthy, an unready pod may be evicted with 0 disruptions
    allowed."""
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
    """The subresource adds them and changes nothing else."""
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
    """They cannot be changed or removed, and allow fewer fields than other containers."""
    obj = (await make(api, nodeName="n")).json
    obj["spec"]["ephemeralContainers"] = [{"name": "d", "image": "x"}]
    obj = (await api.put(f"{POD}/ephemeralcontainers", obj)).json
    obj["spec"]["ephemeralContainers"] = containers
    reply = await api.put(f"{POD}/ephemeralcontainers", obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert text in reply.message


async def test_ephemeral_containers_need_their_subresource(api: ApiClient) -> None:
    """Update permission on pods does not include them: the subresource has a permission of its
    own."""
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
    """The resize subresource changes CPU and memory only."""
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
    """The QoS class of a pod does not change, nor do its containers."""
    made = await make(api, resources={"requests": {"cpu": "1", "memory": "10Mi"}, "limits": LIMITS})
    obj = made.json
    obj["spec"]["containers"] = [
        {**obj["spec"]["containers"][0], "name": f"c{index}" if index else "c", "resources": each}
        for index, each in enumerate(containers)
    ]
    reply = await api.put(f"{POD}/resize", obj)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert text in reply.message


async def test_subresources_that_need_a_kubelet(api: ApiClient) -> None:
    """Logs are empty without a node; exec, attach and port-forward are refused; no connection is
    made."""
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


async def test_proxy_subresources_are_refused(api: ApiClient) -> None:
    """Proxy paths of pods, services and nodes are refused, with any method and port."""
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
    """The store is the only component; the answer has the deprecation warning."""
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
    """Pods get the value of their PriorityClass, and tolerate unhealthy nodes for five minutes."""
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
    """A claim without storageClassName gets the default class, unless it is set to empty."""
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


async def test_a_node_keeps_its_status_on_create(driver: str) -> None:
    """A node's create includes its status, also with an admission plug-in."""
    assert driver == "memory"
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    for admission in ([], [Plugin()]):
        server = await start_server(MemoryStorage(), admission=admission)
        try:
            made = await server.client.post("/api/v1/nodes", node)
            assert made.json["status"]["capacity"] == {"cpu": "4"}
        finally:
            await server.stop()


async def test_plugins_review_the_object_that_was_sent(driver: str) -> None:
    """For evictions and bindings, plug-ins review that object, not the pod, and may refuse it."""
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
