"""The ConfigMap for aggregated servers contains the CAs and headers of all servers."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from restow.aio import SimulatedClock
from restow.controllers.proxy_trust import (
    NAME,
    NAMESPACE,
    ProxyTrust,
    ProxyTrustController,
    merged,
)
from restow.storage.errors import CannotOpen
from restow.storage.interface import Put, Transaction
from tests.support.certificates import make_certificate
from tests.unit.controllers.world import World, open_world

PATH = f"{NAMESPACE}/{NAME}"


def pem(directory: Path, name: str) -> str:
    return make_certificate(directory / name, name=name).ca_file.read_text()


async def data_of(world: World) -> dict[str, str]:
    found = await world.get("ConfigMap", PATH)
    assert found is not None
    return dict(found["data"])


def now() -> SimulatedClock:
    """A clock within the validity of test certificates."""
    return SimulatedClock(datetime.now(UTC))


async def test_it_is_made_and_comes_back(tmp_path: Path) -> None:
    """It has the fields of kube-apiserver, and is created again after its deletion."""
    clients, proxies = pem(tmp_path, "clients"), pem(tmp_path, "proxies")
    own = ProxyTrust(client_ca_pem=clients, proxy_ca_pem=proxies, allowed_names=("front",))
    async with open_world(clock=now()) as world:
        controller = ProxyTrustController(world.store, world.catalog, world.runtime, own)
        observed = await world.observe(controller)
        await observed.settle(controller.queue, controller.reconcile)
        assert await data_of(world) == {
            "client-ca-file": clients,
            "requestheader-client-ca-file": proxies,
            "requestheader-allowed-names": '["front"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        revision = await world.storage.revision()
        await controller.resync()
        assert await world.storage.revision() == revision, "a resync writes nothing"
        await world.delete("ConfigMap", PATH)
        await observed.settle(controller.queue, controller.reconcile)
        assert (await data_of(world))["client-ca-file"] == clients


async def test_undecryptable_config_maps_are_not_changed(tmp_path: Path) -> None:
    """A ConfigMap under a missing encryption key raises an error and is not changed."""
    own = ProxyTrust(client_ca_pem=pem(tmp_path, "clients"))
    async with open_world(clock=now()) as world:
        controller = ProxyTrustController(world.store, world.catalog, world.runtime, own)
        key = world.kind("ConfigMap").key_of(PATH)
        sealed = b"k8s:enc:aesgcm:v1:gone:it is not for us to read"
        await world.storage.commit(Transaction(writes=(Put(key, sealed),)))
        with pytest.raises(CannotOpen, match="aesgcm key gone"):
            await controller.reconcile(NAME)
        item = await world.storage.get(key)
        assert item is not None
        assert item.value == sealed


async def test_every_server_adds_its_own(tmp_path: Path) -> None:
    """The CAs of two servers are both included, and no server removes the other's."""
    trusts = [
        ProxyTrust(
            client_ca_pem=pem(tmp_path, f"clients {name}"),
            proxy_ca_pem=pem(tmp_path, f"proxies {name}"),
            allowed_names=(name,),
        )
        for name in ("one", "two")
    ]
    async with open_world(clock=now()) as world:
        controllers = [
            ProxyTrustController(world.store, world.catalog, world.runtime, own) for own in trusts
        ]
        for controller in controllers:
            await controller.resync()
        found = await data_of(world)
        for own in trusts:
            assert own.client_ca_pem in found["client-ca-file"]
            assert own.proxy_ca_pem in found["requestheader-client-ca-file"]
        assert json.loads(found["requestheader-allowed-names"]) == ["one", "two"]
        revision = await world.storage.revision()
        for controller in controllers:
            await controller.resync()
        assert await world.storage.revision() == revision


def test_expired_and_unreadable_cas_are_dropped(tmp_path: Path) -> None:
    """Expired CAs are removed, and unreadable values are replaced."""
    own = ProxyTrust(client_ca_pem=pem(tmp_path, "a"), proxy_ca_pem=pem(tmp_path, "b"))
    broken = {
        "client-ca-file": "nonsense",
        "requestheader-allowed-names": "{",
        "requestheader-group-headers": '{"a": 1}',
        "requestheader-username-headers": '["X-Remote-User", 7]',
    }
    today = datetime.now(UTC)
    found = merged(broken, own, today)
    assert found["client-ca-file"] == own.client_ca_pem
    assert found["requestheader-allowed-names"] == "[]"
    assert found["requestheader-group-headers"] == '["X-Remote-Group"]'
    assert found["requestheader-username-headers"] == '["X-Remote-User"]'
    assert merged(found, own, today) == found
    assert "client-ca-file" not in merged(found, own, today + timedelta(days=2))


def test_a_server_that_passes_on_nothing_says_nothing_of_it(tmp_path: Path) -> None:
    """Without a request header CA only the client CA is published."""
    own = ProxyTrust(client_ca_pem=pem(tmp_path, "a"))
    assert merged({}, own, datetime.now(UTC)) == {"client-ca-file": own.client_ca_pem}
