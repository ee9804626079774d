"""Agreement: how it is read at the start, and every event that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.names import EPOCH_ANNOTATION, KEYS_ANNOTATION
from restow.client import ApiClient, ApiResource, InProcessResponse, InProcessTransport
from restow.migration.migration_values import MigrationRecord
from restow.migration.migrator import agreement as agreements
from restow.migration.migrator.agreement import AgreementCheck, LeftAlone, NotAgreed
from restow.migration.migrator.controller import find_resource
from restow.migration.migrator.passes import AgreementLost
from tests.unit.client.fake_api import FakeApi
from tests.unit.migration.migrator.world import QUICK, World, until

PATH = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets"
V1, V2 = "example.com/v1", "example.com/v2"
TARGET = storage_version_hash(GroupVersionKind.of(V2, "Widget"))
WIDGETS = ApiResource(
    group="example.com",
    version="v2",
    name="widgets",
    kind="Widget",
    is_namespaced=True,
    storage_version_hash=TARGET,
)


def report(common: str | None = V2, *, epoch: str = "", **more: Any) -> dict[str, Any]:
    entries = [{"apiServerID": "a", "encodingVersion": common or V1}]
    if common is None:
        entries.append({"apiServerID": "b", "encodingVersion": V2})
    return {
        "metadata": {"uid": "u", "annotations": {EPOCH_ANNOTATION: epoch} if epoch else {}},
        "status": {"storageVersions": entries, "commonEncodingVersion": common, **more},
    }


def under_key(key: str, *, epoch: str = "", **more: Any) -> dict[str, Any]:
    """Returns a StorageVersion whose servers write with this encryption key."""
    found = report(epoch=epoch, **more)
    found["metadata"]["annotations"][KEYS_ANNOTATION] = orjson.dumps({"a": key}).decode()
    return found


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.put(PATH, report())
    made.put(PATH.replace("widgets", "others"), report())
    return made


@pytest.fixture
def client(api: FakeApi) -> ApiClient:
    return ApiClient(InProcessTransport(api.handle), runtime=Runtime.system())


async def begin(client: ApiClient, record: MigrationRecord | None = None) -> AgreementCheck:
    return await agreements.begin(client, WIDGETS, record=record, options=QUICK)


async def follow_until_lost(agreed: AgreementCheck) -> str:
    with pytest.raises(AgreementLost) as caught:
        await agreed.follow()
    return str(caught.value)


async def test_agreement_at_the_start(client: ApiClient) -> None:
    """The target is the common encoding version; the agreement holds while nothing changes."""
    agreed = await begin(client)
    assert (agreed.target, agreed.target_version, agreed.epoch) == (TARGET, V2, None)
    assert (agreed.by, agreed.mark) == ("second pass", "u/version/11")
    await agreed.confirm()


@pytest.mark.parametrize("epoch", ["", "3"])
async def test_a_change_that_keeps_the_agreement(
    api: FakeApi, client: ApiClient, epoch: str
) -> None:
    """A server joins that writes the same version: the agreement holds once the watch has caught
    up."""
    api.put(PATH, report(epoch=epoch))
    agreed = await begin(client)
    task = asyncio.ensure_future(agreed.follow())
    await until(lambda: api.watches)
    before = agreed.mark
    api.put(PATH, report(epoch=epoch))
    await agreed.confirm()
    await until(lambda: agreed.mark != before or epoch)
    api.cut()
    await agreed.confirm()
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "changed",
    [
        report(None),
        report(V1),
        {**report(), "metadata": {"uid": "other"}},
        report(epoch="4"),
        report(conditions=[{"type": "AllEncryptionKeysEqual", "status": "False"}]),
        under_key("aesgcm:key1:11"),
        {"metadata": {}, "status": {"storageVersions": 7}},
    ],
)
async def test_lost_by_a_change(api: FakeApi, client: ApiClient, changed: dict[str, Any]) -> None:
    """Another common version, none, other keys, another object, another epoch, or a malformed
    object."""
    agreed = await begin(client)
    api.put(PATH, changed)
    await follow_until_lost(agreed)
    with pytest.raises(AgreementLost):
        await agreed.confirm()


@pytest.mark.parametrize("epoch", ["", "3"])
async def test_an_encryption_key_is_part_of_it(api: FakeApi, client: ApiClient, epoch: str) -> None:
    """The agreement includes the encryption key; another key ends it, with and without an epoch."""
    api.put(PATH, under_key("aesgcm:key1:11", epoch=epoch))
    agreed = await begin(client)
    assert (agreed.target, agreed.target_key) == (TARGET, "aesgcm:key1:11")
    await agreed.confirm()
    api.put(PATH, under_key("aesgcm:key2:22", epoch=epoch))
    with pytest.raises(AgreementLost, match="aesgcm:key2:22"):
        await agreed.confirm()


async def test_a_pending_key_is_no_obstacle(api: FakeApi, client: ApiClient) -> None:
    """The migration starts while all servers write with one key; if they differ, the error says
    so."""
    condition = {"type": "AllEncryptionKeysEqual", "status": "False"}
    pending = [{**condition, "reason": "EncryptionKeyPending"}]
    api.put(PATH, under_key("aesgcm:key1:11", conditions=pending))
    assert (await begin(client)).target == TARGET
    split = [{**condition, "reason": "CommonEncryptionKeyUnset"}]
    api.put(PATH, under_key("aesgcm:key1:11", conditions=split))
    with pytest.raises(NotAgreed, match="encryption key of widgets"):
        await begin(client)


@pytest.mark.parametrize("service", [{"name": "theirs", "namespace": "x"}, None])
async def test_resources_of_non_reporting_servers_are_left_alone(
    api: FakeApi, client: ApiClient, service: dict[str, str] | None
) -> None:
    """An aggregated API without a StorageVersion and without a hash is left alone; not one that the
    server itself serves, nor one with a hash."""
    api.remove(PATH)
    spec = {"group": "example.com", "version": "v2", "service": service}
    api.put("/apis/apiregistration.k8s.io/v1/apiservices/v2.example.com", {"spec": spec})
    silent = replace(WIDGETS, storage_version_hash="")
    begun = agreements.begin(client, silent, record=None, options=QUICK)
    if service is None:
        assert (await begun).target == ""
    else:
        with pytest.raises(LeftAlone, match=r"APIService v2\.example\.com.*not migrated"):
            await begun
    assert (await begin(client)).target == TARGET


async def test_lost_by_an_intermediate_state(api: FakeApi, client: ApiClient) -> None:
    """Without an epoch every observed state counts, including one that was already replaced."""
    agreed = await begin(client)
    api.put(PATH, report(None))
    api.put(PATH, report())
    assert "no longer agree" in await follow_until_lost(agreed)


async def test_lost_by_deletion(api: FakeApi, client: ApiClient) -> None:
    """A deleted StorageVersion ends the agreement."""
    agreed = await begin(client)
    api.remove(PATH)
    assert "was deleted" in await follow_until_lost(agreed)
    with pytest.raises(AgreementLost):
        await agreed.confirm()


async def test_a_gap_without_an_epoch(api: FakeApi, client: ApiClient) -> None:
    """Without an epoch, unobserved changes count as an interruption."""
    agreed = await begin(client)
    api.put(PATH, report())
    api.compact()
    assert "gap" in await follow_until_lost(agreed)


async def test_a_gap_with_an_epoch(api: FakeApi, client: ApiClient) -> None:
    """The epoch shows whether the agreement was interrupted during the gap."""
    api.put(PATH, report(epoch="3"))
    agreed = await begin(client)
    assert (agreed.epoch, agreed.mark) == (3, "u/epoch/3")
    api.put(PATH, report(epoch="3"))
    api.compact()
    task = asyncio.ensure_future(follow_until_lost(agreed))
    await until(lambda: api.watches)
    assert not task.done()
    api.put(PATH, report(epoch="5"))
    api.compact()
    api.cut()
    assert "interrupted" in await task


async def test_a_watch_that_lags_behind(api: FakeApi, client: ApiClient) -> None:
    """Without an epoch, confirmation waits until the watch has delivered every state."""
    agreed = await begin(client)
    api.put(PATH, report())
    confirming = asyncio.ensure_future(agreed.confirm())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not confirming.done()
    following = asyncio.ensure_future(agreed.follow())
    await confirming
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_not_agreed(api: FakeApi, client: ApiClient) -> None:
    """Without a common version no migration starts; a migration of the trigger is aborted."""
    api.put(PATH, report(None))
    with pytest.raises(NotAgreed):
        await begin(client)
    with pytest.raises(AgreementLost):
        await begin(client, MigrationRecord(target=TARGET, state_uid="u", change="c"))


async def test_made_for_something_else(client: ApiClient) -> None:
    """A migration of the trigger is compared with the current agreement."""
    good = MigrationRecord(target=TARGET, state_uid="u", change="c", storage_version="u/version/9")
    await begin(client, good)
    for target, storage_version in (("x", ""), (TARGET, "other/version/11")):
        wrong = MigrationRecord(
            target=target, state_uid="u", change="c", storage_version=storage_version
        )
        with pytest.raises(AgreementLost):
            await begin(client, wrong)


async def test_a_watch_that_cannot_be_opened(api: FakeApi, client: ApiClient) -> None:
    """With an epoch, the StorageVersion is polled instead, a bounded number of times."""
    api.put(PATH, report(epoch="3"))
    agreed = await begin(client)
    trouble = status.internal("down")
    api.refuse = [trouble] * 6
    task = asyncio.ensure_future(follow_until_lost(agreed))
    await until(lambda: api.watches)
    api.refuse = [trouble] * 1000
    api.cut()
    assert "could not be read" in await task


class Discovery:
    """A fake server whose discovery has hashes, without StorageVersions."""

    def __init__(self) -> None:
        self.hash = TARGET
        self.code = 200
        self.asked = 0

    def was_requested(self, times: int) -> bool:
        return self.asked >= times

    async def handle(
        self, _method: str, target: str, _headers: Mapping[str, str], _body: bytes
    ) -> InProcessResponse:
        if target != "/apis/example.com/v2":
            return InProcessResponse(404, b"{}")
        self.asked += 1
        entry = {"name": "widgets", "kind": "Widget", "verbs": [], "storageVersionHash": self.hash}
        return InProcessResponse(self.code, orjson.dumps({"resources": [entry]}))


async def test_by_discovery() -> None:
    """If servers do not report, the hash in discovery is polled."""
    server = Discovery()
    client = ApiClient(InProcessTransport(server.handle), runtime=Runtime.system())
    agreed = await begin(client, MigrationRecord(target=TARGET, state_uid="u", change="c"))
    assert (agreed.by, agreed.target, agreed.mark) == ("discovery", TARGET, "")
    await agreed.confirm()
    task = asyncio.ensure_future(follow_until_lost(agreed))
    server.code = 503
    await until(partial(server.was_requested, server.asked + 2))
    server.code = 200
    await until(partial(server.was_requested, server.asked + 2))
    assert not task.done()
    server.hash = "other"
    assert "no longer show" in await task
    with pytest.raises(AgreementLost):
        await agreed.confirm()
    with pytest.raises(AgreementLost):
        await begin(client, MigrationRecord(target="x", state_uid="u", change="c"))
    made_by_report = MigrationRecord(
        target=TARGET, state_uid="u", change="c", storage_version="u/epoch/1"
    )
    with pytest.raises(AgreementLost):
        await begin(client, made_by_report)


async def test_a_resource_that_shares_a_store(world: World) -> None:
    """Events of the newer group have their StorageVersion under the name of the older group."""
    events = await find_resource(world.client, GroupResource("events.k8s.io", "events"))
    assert events is not None
    agreed = await agreements.begin(world.client, events, record=None, options=QUICK)
    assert (agreed.target_version, agreed.epoch) == ("v1", 1)
