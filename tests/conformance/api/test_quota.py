"""A namespace holds as many objects as its quotas allow, however many servers accept creates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.controllers.objects_watch import ObjectsWatch
from restow.controllers.quotas import QuotaController
from restow.registry.reconcile_loops import run_worker
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.interface import Revision, Storage
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    NS,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.support.api_client import MERGE_PATCH, ApiClient
from tests.unit.storageversion.world import Line

QUOTAS = f"{NS}/resourcequotas"
SERVICES = f"{NS}/services"
SECONDS_MAX = 10.0
CLIENTS = 8


def quota(name: str = "few", **hard: str) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
    return {"metadata": {"name": name}, "spec": {"hard": named}}


@asynccontextmanager
async def counting(server: RunningServer) -> AsyncIterator[None]:
    """Runs the controllers that quotas need."""
    runtime, store = Runtime.system(), server.assembly.store
    controller = QuotaController(store, server.assembly.catalog, runtime)
    watch = ObjectsWatch(server.storage, runtime, [controller])
    tasks = runtime.tasks("counting")
    tasks.spawn("watch", watch.run())
    tasks.spawn("work", run_worker(controller.queue, controller.reconcile))
    try:
        yield
    finally:
        await tasks.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    clock = Runtime.system().clock
    async with clock.timeout(SECONDS_MAX):
        while not await holds():
            await clock.sleep(0.01)


async def used(client: ApiClient, name: str = "few") -> dict[str, str]:
    status = (await client.get(f"{QUOTAS}/{name}")).json.get("status") or {}
    return dict(status.get("used") or {})


async def put_in_force(
    server: RunningServer, wanted: dict[str, Any], others: tuple[RunningServer, ...] = ()
) -> None:
    """Creates a quota and waits until its usage is counted and all servers enforce it."""
    name = wanted["metadata"]["name"]
    reply = await server.client.post(QUOTAS, wanted)
    assert reply.status == 201, reply.body
    assert reply.warnings == []
    await until(lambda: _is_counted(server.client, name, wanted["spec"]["hard"]))
    for each in (server, *others):
        await each.client.get(f"{QUOTAS}/{name}")


async def _is_counted(client: ApiClient, name: str, hard: dict[str, str]) -> bool:
    return (await used(client, name)).keys() == hard.keys()


async def test_creates_over_the_quota_are_refused(server: RunningServer) -> None:
    """Existing objects count, a create up to the limit passes, and the next gets the reason."""
    api = server.client
    async with counting(server):
        await api.post(CONFIG_MAPS, config_map("old"))
        await put_in_force(server, quota(configmaps="2", count__configmaps="5", secrets="1k"))
        assert await used(api) == {"configmaps": "1", "count/configmaps": "1", "secrets": "0"}
        assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("dry"))).status == 201
        assert (await api.post(CONFIG_MAPS, config_map("last"))).status == 201
        assert (await used(api))["configmaps"] == "2"
        for path in (CONFIG_MAPS, f"{CONFIG_MAPS}?dryRun=All"):
            reply = await api.post(path, config_map("more"))
            assert (reply.status, reply.reason) == (403, "Forbidden")
            assert reply.message == (
                'configmaps "more" is forbidden: exceeded quota: few, requested: configmaps=1,'
                " used: configmaps=2, limited: configmaps=2"
            )
        # An object at the limit can still be updated, and a create with a taken name is not
        # charged.
        change = {"data": {"a": "b"}}
        patched = await api.patch(f"{CONFIG_MAPS}/last", change, content_type=MERGE_PATCH)
        assert patched.status == 200
        assert (await api.post(CONFIG_MAPS, config_map("last"))).status == 409
        assert (await used(api))["configmaps"] == "2"
        assert (await api.delete(f"{CONFIG_MAPS}/old")).status == 200

        async def is_below_limit() -> bool:
            return (await api.post(CONFIG_MAPS, config_map("next"))).status == 201

        await until(is_below_limit)


async def test_all_quotas_of_a_namespace_count(server: RunningServer) -> None:
    """A create that one quota refuses is not charged to another; a deleted quota has no effect."""
    api = server.client
    async with counting(server):
        await put_in_force(server, quota("a", configmaps="9"))
        await put_in_force(server, quota("b", count__configmaps="1"))
        assert (await api.post(CONFIG_MAPS, config_map("one"))).status == 201
        reply = await api.post(CONFIG_MAPS, config_map("two"))
        assert reply.status == 403
        assert "exceeded quota: b, requested: count/configmaps=1" in reply.message
        assert await used(api, "a") == {"configmaps": "1"}
        assert (await api.delete(f"{QUOTAS}/b")).status == 200
        assert (await api.post(CONFIG_MAPS, config_map("two"))).status == 201
        # Other namespaces have quotas of their own.
        await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
        for name in ("a", "b", "c"):
            path = "/api/v1/namespaces/other/configmaps"
            assert (await api.post(path, config_map(name))).status == 201


async def test_a_quota_may_change(server: RunningServer) -> None:
    """A raised limit applies at once; a lowered one removes nothing and refuses creates."""
    api = server.client
    async with counting(server):
        await put_in_force(server, quota(configmaps="1"))
        assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
        for limit, status in (("2", 201), ("1", 403)):
            change = {"spec": {"hard": {"configmaps": limit}}}
            await api.patch(f"{QUOTAS}/few", change, content_type=MERGE_PATCH)

            async def is_known(limit: str = limit) -> bool:
                found = (await api.get(f"{QUOTAS}/few")).json
                return bool(found["status"]["hard"] == {"configmaps": limit})

            await until(is_known)
            assert (await api.post(CONFIG_MAPS, config_map(f"b{limit}"))).status == status


async def test_parts_of_services(server: RunningServer) -> None:
    """Node ports and load balancers are charged when a Service gets them, by an update too."""
    api = server.client
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]

    def service(name: str, kind: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}}

    async with counting(server):
        await put_in_force(
            server, quota(services="5", services_nodeports="3", services_loadbalancers="1")
        )
        assert (await api.post(SERVICES, service("a", "NodePort"))).status == 201
        reply = await api.post(SERVICES, service("b", "NodePort"))
        assert reply.status == 403
        assert reply.message.endswith(
            "requested: services.nodeports=2, used: services.nodeports=2,"
            " limited: services.nodeports=3"
        )
        assert (await api.post(SERVICES, service("b", "ClusterIP"))).status == 201
        change = {"spec": {"type": "LoadBalancer"}}
        reply = await api.patch(f"{SERVICES}/b", change, content_type=MERGE_PATCH)
        assert reply.status == 403
        change = {"spec": {"type": "LoadBalancer"}}
        assert (await api.patch(f"{SERVICES}/a", change, content_type=MERGE_PATCH)).status == 200
        assert await used(api) == {
            "services": "2",
            "services.nodeports": "2",
            "services.loadbalancers": "1",
        }


@pytest.mark.parametrize("driver", ["sqlite", "etcd"], indirect=True)
async def test_two_servers_at_the_limit(start: StartServer) -> None:
    """Of many concurrent creates on two servers exactly as many pass as the limit allows."""
    first, second = await start(), await start()
    await first.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    async with counting(first):
        await put_in_force(first, quota(configmaps="10"), (second,))
        clients = [
            ApiClient(each.port, token=TOKEN) for each in (first, second) for _ in range(CLIENTS)
        ]

        async def fill(number: int, client: ApiClient) -> list[int]:
            return [
                (await client.post(CONFIG_MAPS, config_map(f"c-{number}-{each}"))).status
                for each in range(3)
            ]

        answers = await asyncio.gather(*(fill(*each) for each in enumerate(clients)))
        statuses = [status for each in answers for status in each]
        assert sorted(set(statuses)) == [201, 403]
        assert statuses.count(201) == 10
        assert len((await first.client.get(CONFIG_MAPS)).names) == 10
        assert await used(second.client) == {"configmaps": "10"}
        for client in clients:
            await client.close()


class DelayedConnection(Line):
    """A connection to a store that delivers no events until the store's revision is queried."""

    def begin(self) -> None:
        self.hold(OBJECTS_PREFIX)

    async def revision(self) -> Revision:
        self.let_go(OBJECTS_PREFIX)
        return await super().revision()


@pytest_asyncio.fixture
async def late(
    open_store: Callable[[], Awaitable[Storage]],
) -> AsyncIterator[tuple[RunningServer, DelayedConnection]]:
    """A server that receives changes of other servers late."""
    line = DelayedConnection(await open_store())
    server = await start_server(line)
    yield server, line
    await server.stop()


async def test_a_name_that_another_server_has_freed(
    start: StartServer, late: tuple[RunningServer, DelayedConnection]
) -> None:
    """A create is charged although its name is still taken in this server's cache."""
    first, (second, line) = await start(), late
    await first.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    async with counting(first):
        await put_in_force(first, quota(configmaps="1"), (second,))
        assert (await first.client.post(CONFIG_MAPS, config_map("a"))).status == 201
        assert (await second.client.get(f"{CONFIG_MAPS}/a")).status == 200
        line.begin()
        await first.client.delete(f"{CONFIG_MAPS}/a")

        async def is_below_limit() -> bool:
            return (await first.client.post(CONFIG_MAPS, config_map("b"))).status == 201

        await until(is_below_limit)
        reply = await second.client.post(CONFIG_MAPS, config_map("a"))
        assert (reply.status, "exceeded quota: few" in reply.message) == (403, True)
        assert (await first.client.get(CONFIG_MAPS)).names == ["b"]
        # A create with a name that is taken gets 409.
        reply = await second.client.post(CONFIG_MAPS, config_map("b"))
        assert (reply.status, reply.message) == (409, 'configmaps "b" already exists')


async def test_the_charge_of_a_failed_create_is_returned(start: StartServer) -> None:
    """Of two concurrent creates with one name, the one that fails is not charged."""
    first, second = await start(), await start()
    await first.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    async with counting(first):
        await put_in_force(first, quota(configmaps="30"), (second,))
        for turn in range(10):
            replies = await asyncio.gather(
                *(each.client.post(CONFIG_MAPS, config_map(f"c{turn}")) for each in (first, second))
            )
            assert sorted(each.status for each in replies) == [201, 409]
            late = next(each for each in replies if each.status == 409)
            assert late.message == f'configmaps "c{turn}" already exists'

        async def is_right() -> bool:
            return (await used(first.client))["configmaps"] == "10"

        await until(is_right)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"hard": {"pods": "-1"}}, "must be greater than or equal to 0"),
        ({"hard": {"pods": "1500m"}}, "must be an integer"),
        ({"hard": {"widgets": "1"}}, "must be a standard resource for quota"),
        ({"hard": {"count/a b": "1"}}, "name part must consist of alphanumeric characters"),
        ({"hard": {"secrets": "1"}, "scopes": ["BestEffort"]}, "unsupported scope applied"),
        ({"hard": {"pods": "1"}, "scopes": ["Best"]}, "unsupported scope"),
        ({"scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]
                }
            },
            "must be at least one value",
        ),
    ],
)
async def test_invalid_quotas(api: ApiClient, spec: dict[str, Any], why: str) -> None:
    """An invalid quota is refused with the field and the reason."""
    reply = await api.post(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert why in reply.message


async def test_requests_of_pods_and_claims(server: RunningServer) -> None:
    """They are charged by their resource requests, must specify them, and are released on
    delete."""
    api, pods = server.client, f"{NS}/pods"
    hard = {"requests_cpu": "2", "limits_memory": "1Gi", "requests_storage": "1Gi"}

    def pod(name: str, cpu: str, memory: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": cpu}, "limits": {"memory": memory}}
        container = {"name": "c", "image": "i", "resources": resources}
        return {"metadata": {"name": name}, "spec": {"containers": [container]}}

    async with counting(server):
        await put_in_force(server, quota(**hard))
        silent = {"containers": [{"name": "c", "image": "i"}]}
        reply = await api.post(pods, {"metadata": {"name": "a"}, "spec": silent})
        why = "failed quota: few: must specify limits.memory for: c; requests.cpu for: c"
        assert (reply.status, reply.message) == (403, f'pods "a" is forbidden: {why}')
        assert (await api.post(pods, pod("a", "1500m", "512Mi"))).status == 201
        reply = await api.post(pods, pod("b", "600m", "100Mi"))
        why = "requested: requests.cpu=600m, used: requests.cpu=1500m, limited: requests.cpu=2"
        assert (reply.status, reply.message.endswith(f"exceeded quota: few, {why}")) == (403, True)
        grown = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
        patch = {"spec": {"containers": [grown]}}
        strategic = "application/strategic-merge-patch+json"
        reply = await api.patch(f"{pods}/a/resize", patch, content_type=strategic)
        assert (reply.status, "requests.cpu=1500m, used" in reply.message) == (403, True)
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"]}
        spec["resources"] = {"requests": {"storage": "2Gi"}}
        claim = {"metadata": {"name": "c"}, "spec": spec}
        reply = await api.post(f"{NS}/persistentvolumeclaims", claim)
        assert "requested: requests.storage=2Gi, used: requests.storage=0" in reply.message
        assert await used(api) == {
            "requests.cpu": "1500m",
            "limits.memory": "512Mi",
            "requests.storage": "0",
        }
        await api.delete(f"{pods}/a?gracePeriodSeconds=0")

        async def is_released() -> bool:
            return (await used(api))["requests.cpu"] == "0"

        await until(is_released)
