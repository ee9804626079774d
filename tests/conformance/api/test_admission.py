"""Admission plug-ins in a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from restow.admission import Admission
from restow.storage.interface import Storage
from tests.conformance.api.plugins import Plugin
from tests.conformance.api.servers import (
    BUILTIN,
    CONFIG_MAPS,
    NS,
    RunningServer,
    catalog_of,
    config_map,
    start_server,
)
from tests.support.api_client import ApiClient, Reply

BODY_BYTES_IN_THREAD = 300_000
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


Start = Callable[..., Awaitable[ApiClient]]


@pytest_asyncio.fixture
async def start_with(open_store: Callable[[], Awaitable[Storage]]) -> AsyncIterator[Start]:
    """Starts a server with plug-ins, and the namespace `default`."""
    running: list[RunningServer] = []

    async def start(*plugins: Admission, release: str = "") -> ApiClient:
        catalog = catalog_of(release) if release else BUILTIN
        running.append(await start_server(await open_store(), catalog, admission=plugins))
        client = running[-1].client
        assert (await client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})).status
        return client

    yield start
    for server in running:
        await server.stop()


def assert_refused(reply: Reply) -> None:
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.message.endswith("is forbidden: not that one")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_each_verb_is_asked_about(start_with: Start, waits: bool, query: str) -> None:
    """The new and the old object are reviewed, in a dry run too."""
    plugin = Plugin(waits=waits)
    api = await start_with(plugin)
    assert (await api.post(CONFIG_MAPS, config_map("a", {"x": "1"}))).status == 201
    item = f"{CONFIG_MAPS}/a"

    assert (await api.post(CONFIG_MAPS + query, config_map("b"))).status == 201
    asked = plugin.asked[-1]
    assert (plugin.last(), asked.namespace) == (("CREATE", "", "b"), "default")
    assert (asked.old, asked.dry_run) == (None, bool(query))
    assert asked.obj is not None
    assert asked.obj["metadata"]["uid"]
    assert (asked.user.name, str(asked.resource.kind.group_resource)) == ("admin", "configmaps")
    assert asked.version == "v1"

    assert (await api.put(item + query, config_map("a", {"x": "2"}))).status == 200
    assert plugin.last() == ("UPDATE", "", "a")
    assert _data(plugin) == ({"x": "2"}, {"x": "1"})
    before = {"x": "1"} if query else {"x": "2"}
    assert (await api.patch(item + query, {"data": {"x": "3"}})).status == 200
    assert plugin.last() == ("UPDATE", "", "a")
    assert _data(plugin) == ({"x": "3"}, before)

    assert (await api.delete(item + query)).status == 200
    assert plugin.last() == ("DELETE", "", "a")
    assert plugin.asked[-1].obj is None
    assert plugin.asked[-1].old is not None
    assert plugin.asked[-1].dry_run is bool(query)


def _data(plugin: Plugin) -> tuple[Any, Any]:
    asked = plugin.asked[-1]
    assert asked.obj is not None
    assert asked.old is not None
    return asked.obj["data"], asked.old["data"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_refusal_changes_nothing(start_with: Start, waits: bool) -> None:
    """One object is refused by every verb, in a dry run as well; others are not affected."""
    plugin = Plugin(waits=waits)
    api = await start_with(plugin)
    for name in ("a", "bad", "c"):
        assert (await api.post(CONFIG_MAPS, config_map(name))).status == 201
    plugin.refused = "bad"
    before = (await api.get(f"{CONFIG_MAPS}/bad")).json
    for query in ("", "?dryRun=All"):
        item = f"{CONFIG_MAPS}/bad{query}"
        assert_refused(await api.put(item, config_map("bad", {"x": "2"})))
        assert_refused(await api.patch(item, {"data": {"x": "2"}}))
        assert_refused(await api.delete(item))
        assert_refused(await api.delete(f"{CONFIG_MAPS}{query}"))
    assert (await api.get(f"{CONFIG_MAPS}/bad")).json == before
    assert (await api.put(f"{CONFIG_MAPS}/c", config_map("c", {"x": "2"}))).status in (200, 404)
    plugin.refused = "new"
    assert_refused(await api.post(CONFIG_MAPS, config_map("new")))
    assert_refused(await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("new")))
    assert (await api.get(f"{CONFIG_MAPS}/new")).status == 404


async def test_subresources_and_large_bodies(start_with: Start) -> None:
    """Writes to subresources, and bodies parsed in a thread, are reviewed too."""
    plugin = Plugin()
    api = await start_with(plugin)
    large = {"x": "y" * BODY_BYTES_IN_THREAD}
    assert (await api.post(CONFIG_MAPS, config_map("large", large))).status == 201
    assert plugin.last() == ("CREATE", "", "large")
    assert (await api.put(f"{CONFIG_MAPS}/large", config_map("large", large))).status == 200
    assert plugin.last() == ("UPDATE", "", "large")
    labels = {"app": "d"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    assert (await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})).status == 201
    item = f"{DEPLOYMENTS}/d"
    assert (await api.patch(f"{item}/status", {"status": {"replicas": 1}})).status == 200
    assert plugin.last() == ("UPDATE", "status", "d")
    assert (await api.patch(f"{item}/scale", {"spec": {"replicas": 3}})).status == 200
    assert plugin.last() == ("UPDATE", "scale", "d")
    asked = plugin.asked[-1].obj
    assert asked is not None
    assert asked["spec"]["replicas"] == 3


async def test_a_lease_that_an_update_creates(start_with: Start) -> None:
    """It is reviewed as a create; for other kinds the generated name is visible."""
    plugin = Plugin()
    api = await start_with(plugin)
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert (await api.put(f"{leases}/l", {"metadata": {"name": "l"}})).status == 201
    assert plugin.last() == ("CREATE", "", "l")
    made = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "g-"}})
    assert plugin.last() == ("CREATE", "", made.json["metadata"]["name"])


async def test_plugins_are_called_in_order(start_with: Start) -> None:
    """The first refusal ends the review; invalid objects are not reviewed."""
    first, second = Plugin("a", waits=True), Plugin()
    api = await start_with(first, second)
    count = len(second.asked)
    assert_refused(await api.post(CONFIG_MAPS, config_map("a")))
    assert len(second.asked) == count
    assert (await api.post(CONFIG_MAPS, config_map("b"))).status == 201
    assert second.last() == ("CREATE", "", "b")
    asked = len(first.asked)
    assert (await api.post(CONFIG_MAPS, config_map("Not A Name"))).status == 422
    assert (await api.put(f"{CONFIG_MAPS}/missing", config_map("missing"))).status == 404
    stale = config_map("b", resourceVersion="1")
    assert (await api.put(f"{CONFIG_MAPS}/b", stale)).status == 409
    assert (await api.get(f"{NS}/configmaps/b")).status == 200
    assert len(first.asked) == asked


async def test_a_rewrite_needs_no_admission(start_with: Start) -> None:
    """A rewrite changes only the version that an object is encoded in."""
    plugin = Plugin()
    api = await start_with(plugin, release="x+2")
    migrations = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
    resource = {"group": "example.com", "version": "v2", "resource": "widgets"}
    made = await api.post(migrations, {"metadata": {"name": "m"}, "spec": {"resource": resource}})
    assert (made.status, made.headers.get("warning")) == (201, None)
    widgets = "/apis/example.com/v2/namespaces/default/widgets"
    assert (await api.post(widgets, {"metadata": {"name": "w"}, "spec": {}})).status == 201
    asked = len(plugin.asked)
    reply = await api.post(f"{migrations}/m/rewrite", {})
    assert (reply.status, reply.json["scanned"]) == (200, 1)
    assert len(plugin.asked) == asked
