"""CRDs that change while requests and watches wait for a webhook."""

from __future__ import annotations

import asyncio

import pytest

from restow.registry.resource import Resource
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, config_map
from tests.conformance.api.webhooks.conftest import make
from tests.conformance.api.webhooks.gears import (
    KEY,
    NEW,
    OLD,
    V1,
    V2,
    Object,
    changed,
    convert,
    gear,
    gears,
)
from tests.support.conversion_webhook import ConversionWebhook

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
HANG_SECONDS = 0.2
FAILED = f"conversion webhook for {V1}, Kind=Gear failed: "


def replace(server: RunningServer, resource: Resource) -> None:
    """Serves another resource instead of the gears, as after a change of the CRD."""
    catalog = server.assembly.catalog
    before = catalog.named("example.com", "gears")
    assert before is not None
    server.assembly.store.forget(before)
    catalog.host(resource)


class HangingWebhook:
    """Delays all responses of a webhook until `end` is called."""

    def __init__(self, webhook: ConversionWebhook) -> None:
        self._webhook = webhook
        self._released = asyncio.Event()
        self.was_called = asyncio.Event()
        webhook.behave = self._answer

    async def _answer(self, review: Object) -> Object:
        self.was_called.set()
        await self._released.wait()
        return self._webhook.answer(review)

    def end(self) -> None:
        self._webhook.behave = None
        self._released.set()


@pytest.mark.parametrize("verb", ["create", "update", "patch", "get", "list", "deletecollection"])
async def test_replaced_during_a_request(
    server: RunningServer, webhook: ConversionWebhook, verb: str
) -> None:
    """A request that waits while its CRD changes is repeated with the new one."""
    api = server.client
    await make(api, 2)
    before = server.assembly.catalog.named("example.com", "gears")
    assert before is not None
    body = gear("g-0000", 7, version="v2", resourceVersion=str((await api.get(OLD)).version))
    requests = {
        "create": api.post(NEW, gear("n", 7, version="v2")),
        "update": api.put(f"{NEW}/g-0001", {**body, "metadata": {"name": "g-0001"}}),
        "patch": api.patch(f"{NEW}/g-0000", {"spec": {"shape": {"teeth": 7}}}),
        "get": api.get(f"{NEW}/g-0000"),
        "list": api.get(NEW),
        "deletecollection": api.delete(NEW),
    }
    request = asyncio.ensure_future(requests.pop(verb))
    for other in requests.values():
        other.close()
    hanging = HangingWebhook(webhook)
    await hanging.was_called.wait()
    replace(server, gears({}, storage="v2", remote=before.remote))
    hanging.end()
    reply = await request
    # An update must carry a resource version; this error shows that it was validated.
    assert reply.status == {"create": 201, "update": 422}.get(verb, 200), reply.body
    stored = {"create": "n", "patch": "g-0000"}.get(verb)
    if stored is not None:
        found = await server.raw(f"{KEY}/{stored}")
        assert (found["apiVersion"], found["spec"]["shape"]) == (V2, {"teeth": 7})
    if verb == "deletecollection":
        assert (await api.get(OLD)).names == []


async def test_watches_end_when_replaced(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A watch ends when its CRD changes, even while it waits for a conversion."""
    api = server.client
    await make(api, 1)
    before = server.assembly.catalog.named("example.com", "gears")
    assert before is not None
    seen = await api.watch(NEW)
    assert await seen.next() is not None
    hanging = HangingWebhook(webhook)
    waits = await api.watch(f"{NEW}?resourceVersion={(await api.get(OLD)).version}")
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 5}})
    await hanging.was_called.wait()
    replace(server, gears({}, storage="v2", remote=before.remote))
    assert await seen.next() is None
    assert await waits.next() is None
    hanging.end()
    again = await api.watch(NEW)
    event = await again.next()
    assert event is not None
    assert event["object"]["spec"]["shape"] == {"teeth": 5}


async def test_other_watches_continue(server: RunningServer, webhook: ConversionWebhook) -> None:
    """While the conversions of one watch hang, watches of other versions and kinds continue."""
    api = server.client
    await make(api, 1)
    version = (await api.get(OLD)).version
    waits = await api.watch(f"{NEW}?resourceVersion={version}&allowWatchBookmarks=true")
    same_kind = await api.watch(f"{OLD}?resourceVersion={version}")
    other_kind = await api.watch(CONFIG_MAPS)
    hanging = HangingWebhook(webhook)
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 5}})
    await hanging.was_called.wait()
    await api.post(CONFIG_MAPS, config_map("c"))
    assert (await same_kind.next() or {})["type"] == "MODIFIED"
    assert (await other_kind.next() or {})["type"] == "ADDED"
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 6}})
    hanging.end()
    teeth = [event["object"]["spec"]["shape"]["teeth"] for event in await waits.take(2)]
    assert teeth == [5, 6]


async def test_a_bad_object_ends_only_its_watches(
    server: RunningServer, webhook: ConversionWebhook
) -> None:
    """An object that cannot be converted ends the watches that need it, and no others."""
    api = server.client
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    other = NEW.replace("default", "other")
    assert (await api.post(OLD, gear("good", 1))).status == 201
    hanging = HangingWebhook(webhook)
    first = await api.watch(NEW)  # so that the following objects are converted together
    await hanging.was_called.wait()
    assert (await api.post(OLD.replace("default", "other"), gear("bad", 1))).status == 201
    watches = [await api.watch(each) for each in (other, NEW, other)]
    webhook.convert = lambda obj, target: (
        changed(name="x")(obj, target) if obj["metadata"]["name"] == "bad" else convert(obj, target)
    )
    hanging.end()
    for watch in (first, watches[1]):
        event = await watch.next()
        assert event is not None
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "good")
    for watch in (watches[0], watches[2]):
        event = await watch.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert "must have the same name: bad != x" in event["object"]["message"]
