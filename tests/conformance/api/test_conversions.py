"""Objects in several versions: written in one, read in another, stored in a third."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api.objects import CRON_JOB_KEY, OLD_CRON_JOB
from tests.conformance.api.servers import NS, RunningServer
from tests.support.api_client import MERGE_PATCH, ApiClient

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)


def place(group_version: str, plural: str) -> str:
    return f"/apis/{group_version}/namespaces/default/{plural}"


@EVERY_STORE
async def test_deployments(server: RunningServer) -> None:
    """A deployment in an old version gets the defaults of that version and is stored in v1."""
    api = server.client
    old, new = place("apps/v1beta1", "deployments"), place("apps/v1", "deployments")
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    body = {"metadata": {"name": "web"}, "spec": {"template": template}}
    made = await api.post(old, body)
    assert made.status == 201
    assert made.json["apiVersion"] == "apps/v1beta1"
    assert made.json["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    stored = await server.raw("/registry/deployments/default/web")
    assert (stored["apiVersion"], stored["kind"]) == ("apps/v1", "Deployment")
    shown = await api.get(f"{new}/web")
    assert shown.json["apiVersion"] == "apps/v1"
    assert shown.version == made.version
    assert (await api.get(f"{old}/web")).json == made.json
    listed = await api.get(old)
    assert [item["apiVersion"] for item in listed.json["items"]] == ["apps/v1beta1"]
    watch = await api.watch(f"{old}?resourceVersion={made.version}")
    await api.patch(f"{new}/web", {"spec": {"replicas": 2}})
    event = await watch.next()
    assert event is not None
    assert event["object"]["apiVersion"] == "apps/v1beta1"
    assert event["object"]["spec"]["replicas"] == 2
    same = await api.put(f"{old}/web", (await api.get(f"{old}/web")).json)
    assert same.json == event["object"]
    missing = await api.post(new, {"metadata": {"name": "x"}, "spec": {"template": template}})
    assert (missing.status, missing.reason) == (422, "Invalid")


async def test_autoscalers(server: RunningServer) -> None:
    """Fields of v2 that v1 lacks are preserved."""
    api = server.client
    old, new = (place(f"autoscaling/{v}", "horizontalpodautoscalers") for v in ("v1", "v2"))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    memory = {
        "type": "Resource",
        "resource": {
            "name": "memory",
            "target": {"type": "AverageValue", "averageValue": "100Mi"},
        },
    }
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "metrics": [cpu, memory]}
    made = await api.post(new, {"metadata": {"name": "h"}, "spec": spec})
    assert made.status == 201
    seen = await api.get(f"{old}/h")
    assert seen.json["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "metrics" not in seen.json["spec"]
    changed = await api.patch(f"{old}/h", {"spec": {"maxReplicas": 9}})
    assert changed.status == 200
    back = await api.get(f"{new}/h")
    assert back.json["spec"]["maxReplicas"] == 9
    assert {each["resource"]["name"] for each in back.json["spec"]["metrics"]} == {"cpu", "memory"}
    simple = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    await api.post(old, {"metadata": {"name": "i"}, "spec": simple})
    stored = await server.raw("/registry/horizontalpodautoscalers/default/i")
    assert stored["apiVersion"] == "autoscaling/v2"
    assert stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50


@EVERY_STORE
async def test_events_of_two_groups(server: RunningServer) -> None:
    """Core events and events.k8s.io share one store: each group serves what the other wrote."""
    api = server.client
    new, old = place("events.k8s.io/v1", "events"), f"{NS}/events"
    event = {
        "metadata": {"name": "e1"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "x.io/c",
        "reportingInstance": "c-1",
        "action": "Did",
        "reason": "Because",
        "type": "Normal",
        "note": "a note",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    }
    made = await api.post(new, event)
    assert made.status == 201, made.body
    assert made.json["apiVersion"] == "events.k8s.io/v1"
    seen = await api.get(f"{old}/e1")
    assert (seen.json["apiVersion"], seen.json["message"]) == ("v1", "a note")
    assert seen.json["involvedObject"]["name"] == "p"
    stored = await server.raw("/registry/events/default/e1")
    assert stored["apiVersion"] == "v1"
    watch = await api.watch(f"{new}?resourceVersion={made.version}")
    core = {
        "metadata": {"name": "e2"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "q"},
        "message": "m",
        "reason": "R",
        "type": "Warning",
        "source": {"component": "c"},
    }
    assert (await api.post(old, core)).status == 201
    added = await watch.next()
    assert added is not None
    assert (added["type"], added["object"]["note"]) == ("ADDED", "m")
    assert added["object"]["apiVersion"] == "events.k8s.io/v1"
    assert (await api.get(f"{old}?fieldSelector=involvedObject.name%3Dq")).names == ["e2"]
    assert (await api.get(f"{new}?fieldSelector=regarding.name%3Dq")).names == ["e2"]
    assert (await api.get(f"{old}?fieldSelector=type%3DNormal")).names == ["e1"]
    assert (await api.get(new)).json["kind"] == "EventList"
    unchanged = await api.patch(f"{new}/e1", {}, MERGE_PATCH)
    assert unchanged.version == made.version
    assert (await api.delete(f"{new}/e2")).status == 200
    assert (await api.get(f"{old}/e2")).status == 404


async def test_disruption_budgets(server: RunningServer) -> None:
    """An empty selector matches nothing in v1beta1 and everything in v1: preserved in both
    directions."""
    api = server.client
    old, new = (place(f"policy/{v}", "poddisruptionbudgets") for v in ("v1beta1", "v1"))
    made = await api.post(old, {"metadata": {"name": "a"}, "spec": {"selector": {}}})
    assert made.status == 201
    assert made.json["spec"]["selector"] == {}
    shown = (await api.get(f"{new}/a")).json["spec"]["selector"]
    assert shown != {}
    assert (await api.get(f"{old}/a")).json["spec"]["selector"] == {}
    everything = await api.post(new, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
    assert everything.json["spec"]["selector"] == {}
    assert (await api.get(f"{old}/b")).json["spec"]["selector"] != {}
    assert (await api.get(f"{new}/b")).json["spec"]["selector"] == {}


async def test_cron_jobs(server: RunningServer) -> None:
    """Three versions of the same schema; each response has the requested version."""
    api = server.client
    await server.put_raw(CRON_JOB_KEY, OLD_CRON_JOB)
    bodies: list[dict[str, Any]] = []
    for version in ("v1", "v1beta1", "v2alpha1"):
        reply = await api.get(place(f"batch/{version}", "cronjobs") + "/nightly")
        assert (reply.status, reply.json["apiVersion"]) == (200, f"batch/{version}")
        bodies.append({**reply.json, "apiVersion": ""})
    assert bodies[0]["spec"]["schedule"] == bodies[2]["spec"]["schedule"]
    listed = await api.get(place("batch/v1", "cronjobs"))
    assert [item["apiVersion"] for item in listed.json["items"]] == ["batch/v1"]
    table = await api.get(
        place("batch/v1", "cronjobs"), accept="application/json;as=Table;v=v1;g=meta.k8s.io"
    )
    assert table.json["rows"][0]["cells"][:2] == ["nightly", "0 3 * * *"]


async def test_a_body_of_another_version(api: ApiClient) -> None:
    """A body must have the version of its path, and its kind."""
    target = place("apps/v1", "deployments")
    for body in (
        {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Deployment", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "deployment", "metadata": {"name": "a"}},
    ):
        reply = await api.post(target, body)
        assert (reply.status, reply.reason) == (400, "BadRequest"), body


async def test_foreign_bytes(server: RunningServer) -> None:
    """A value that another program wrote, with its fields in another order, is served and
    preserved."""
    api = server.client
    value = (
        b'{"data":{"k":"v"},"metadata":{"namespace":"default","name":"f","uid":"u",'
        b'"resourceVersion":"77","creationTimestamp":"2020-01-01T00:00:00Z"},'
        b'"apiVersion":"v1","kind":"ConfigMap"}'
    )
    revision = await server.put_raw("/registry/configmaps/default/f", value)
    reply = await api.get(f"{NS}/configmaps/f")
    assert (reply.version, reply.json["data"]) == (revision, {"k": "v"})
    assert reply.body.count(b"resourceVersion") == 1
    changed = await api.patch(f"{NS}/configmaps/f", {"data": {"k": "w"}})
    assert changed.json["metadata"]["uid"] == "u"
    versioned = (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"h","resourceVersion":"5"}}\n'
    )
    revision = await server.put_raw("/registry/configmaps/default/h", versioned)
    reply = await api.get(f"{NS}/configmaps/h")
    assert (reply.version, reply.body.count(b"resourceVersion")) == (revision, 1)
    spaced = b'{ "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "g"} }\n'
    await server.put_raw("/registry/configmaps/default/g", spaced)
    assert (await api.get(f"{NS}/configmaps/g")).status == 200
