"""Attacks on the objects with which servers coordinate storage versions: S1 to S10 in the map.

Attacks that need several servers or a simulated one are tested elsewhere; the map says where.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import Conflict
from restow.client import ApiClient as Client
from tests.conformance.security.world import MASTER, World, running
from tests.unit.endpoints.custom_kinds import gadget_definition
from tests.unit.migration.running_process import running_server, until

REPORTS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
VOTES = "/apis/kube-apiserver.internal.k8s.io/v1alpha1/storageversions"
STATES = "/apis/migration.k8s.io/v1alpha1/storagestates"
MIGRATIONS = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
IN_TREE = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
FLIPS = 21
ANSWER_BYTES_MAX = 65_536


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with running() as (made, _):
        for role in ("view", "edit", "admin"):
            await made.bind(role)
        await made.create("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        spec = {"resource": {"group": "", "resource": "pods"}}
        await made.create(STATES, {"metadata": {"name": "pods"}, "spec": spec})
        spec = {"resource": {"group": "", "version": "v1", "resource": "pods"}}
        await made.create(MIGRATIONS, {"metadata": {"name": "pods"}, "spec": spec})
        await made.create(REPORTS, {"metadata": {"name": "core.pods"}, "spec": {}})
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("role", ["view", "edit", "admin"])
async def test_s1_s4_s10_no_ordinary_role_reaches_them(world: World, role: str) -> None:
    """Even an administrator of every namespace can neither read nor write StorageVersions, votes,
    StorageStates, migrations and what they name: these permissions are granted by name, or to
    system:masters."""
    client = world.client(role)
    assert (await client.get("/api/v1/configmaps")).status == 200
    for things in (REPORTS, VOTES, STATES, MIGRATIONS, IN_TREE):
        one = f"{things}/{'core.pods' if things in (REPORTS, VOTES) else 'pods'}"
        for method, target in (
            ("GET", things),
            ("GET", f"{things}?watch=true"),
            ("GET", one),
            ("POST", things),
            ("PUT", one),
            ("PATCH", one),
            ("DELETE", one),
            ("DELETE", things),
            ("GET", f"{one}/status"),
            ("PUT", f"{one}/status"),
            ("PATCH", f"{one}/status"),
            ("POST", f"{one}/rewrite"),
            ("POST", f"{one}/report"),
        ):
            reply = await client.request(method, target)
            assert reply.status == 403, (method, target, reply.body)


@pytest.mark.asyncio(loop_scope="module")
async def test_s1_s6_forged_and_absurd_reports(world: World) -> None:
    """A user with all other permissions cannot write a StorageVersion: an invalid status is a 422,
    a valid one a 403; the object is unchanged."""
    master = world.client(MASTER)
    before = (await master.get(f"{REPORTS}/core.pods")).json
    good = {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"]}
    words = ("x" * 1_000_000, "a\nb", "a\0b", "../x", "a b", "", "é", "x" * 300, "v1/v1/v1")
    forged: list[tuple[int, dict[str, Any]]] = [
        (403, {"storageVersions": [good], "commonEncodingVersion": "v1"}),
        (
            403,
            {
                "storageVersions": [good, {**good, "apiServerID": "b"}],
                "commonEncodingVersion": "v1",
            },
        ),
        (422, {"commonEncodingVersion": "v1"}),
        (422, {"storageVersions": [good, good]}),
        (422, {"storageVersions": [{**good, "encodingVersion": "v2"}]}),
    ]
    for word in words:
        entries = [{**good, "encodingVersion": word}, {**good, "decodableVersions": ["v1", word]}]
        entries.append({**good, "apiServerID": word})
        common = {"commonEncodingVersion": "v1"}
        forged += [(422, {"storageVersions": [entry], **common}) for entry in entries]
    for code, status in forged:
        for reply in (
            await master.put(f"{REPORTS}/core.pods/status", {**before, "status": status}),
            await master.patch(f"{REPORTS}/core.pods/status", {"status": status}),
        ):
            assert reply.status == code, (str(status)[:200], reply.body[:300])
            assert len(reply.body) < ANSWER_BYTES_MAX, status.keys()
    assert (await master.get(f"{REPORTS}/core.pods")).json == before


@pytest.mark.asyncio(loop_scope="module")
async def test_s3_no_lease_stands_for_a_server(world: World) -> None:
    """A lease that looks like a server's can neither be created nor made by an update, whatever its
    expiration."""
    master = world.client(MASTER)
    identity = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    spec = {"holderIdentity": "x", "renewTime": "9999-01-01T00:00:00.000000Z"}
    forged = {"metadata": {"name": "apiserver-forged", "labels": identity}, "spec": spec}
    assert (await master.post(LEASES, forged)).status == 403
    assert (await master.put(f"{LEASES}/apiserver-forged", forged)).status == 403
    plain = {"metadata": {"name": "plain"}, "spec": spec}
    assert (await master.post(LEASES, plain)).status == 201
    made = await master.patch(f"{LEASES}/plain", {"metadata": {"labels": identity}})
    assert made.status == 403
    assert (await master.get(LEASES)).names == ["plain"]


async def _reports(admin: Client) -> dict[str, dict[str, Any]]:
    reports = GroupVersionResource("internal.apiserver.k8s.io", "v1alpha1", "storageversions")
    page = await admin.list_page(reports)
    return {each["metadata"]["name"]: each for each in page.items}


async def test_s7_a_definition_that_flips(tmp_path: Path) -> None:
    """However often a CRD changes its storage version, no other StorageVersion is changed, writes
    to other resources continue, and in the end the servers agree on the last version."""
    definitions = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    maps = GroupVersionResource("", "v1", "configmaps")
    made = gadget_definition()
    name = f"test.example.com.{made['spec']['names']['plural']}"
    async with (
        running_server(tmp_path) as config,
        Client.connect(config, runtime=Runtime.system()) as admin,
    ):
        del made["status"], made["metadata"]["uid"]
        stored = await admin.create(definitions, made)

        async def is_reported() -> bool:
            return name in await _reports(admin)

        await until(is_reported)
        before = await _reports(admin)

        async def flip(storing: int) -> None:
            while True:
                found = await admin.get(definitions, stored["metadata"]["name"])
                for index, version in enumerate(found["spec"]["versions"]):
                    version["storage"] = index == storing
                try:
                    await admin.update(definitions, found)
                except Conflict:
                    continue  # the server has just updated its status
                return

        for number in range(FLIPS):
            await flip((number + 1) % 2)
            await admin.create(
                maps,
                {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": f"m{number}"}},
                namespace="default",
            )

        async def is_settled() -> bool:
            status = (await _reports(admin))[name]["status"]
            return bool(status.get("commonEncodingVersion") == "test.example.com/v1beta1")

        await until(is_settled)
        after = await _reports(admin)
    assert {each: after[each] for each in before if each != name} == {
        each: before[each] for each in before if each != name
    }
