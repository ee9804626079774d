"""The source of each resource, its observer, and the addresses of the servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersion, GroupVersionResource
from restow.client import ApiClient, ApiGroup, ApiResource, Object
from restow.client import DiscoveredResources as Discovery
from restow.migration.migration_objects import MIGRATION_APIS
from restow.migration.trigger.addresses import read_addresses
from restow.migration.trigger.eligibility import DiscoveredVersion
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.sources import (
    NotKnownYet,
    SourceMissing,
    Sources,
    eligible_resources,
    served_migration_apis,
)
from restow.migration.trigger.storage_version_watch import StorageVersionWatch
from restow.migration.trigger.values import (
    DiscoveryReading,
    ServerHash,
    ServersReading,
    Settings,
)
from tests.unit.migration.trigger.fake_kubernetes import (
    ENDPOINTS,
    WIDGETS,
    Kubernetes,
    hash_of,
)

RESOURCE = DiscoveredVersion(name=WIDGETS, kind="Widget", verbs=frozenset({"list", "update"}))
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
VERBS = frozenset({"get", "list", "watch", "create", "update", "delete"})


def shown(*names: GroupVersionResource, **failures: Exception) -> Discovery:
    """Returns a discovery with these resources, and with groups that could not be read."""
    groups: dict[str, list[str]] = {}
    for each in names:
        groups.setdefault(each.group, []).append(each.version)
    return Discovery(
        tuple(ApiGroup(name, tuple(found), found[0]) for name, found in groups.items()),
        tuple(
            ApiResource(
                group=each.group,
                version=each.version,
                name=each.resource,
                kind="Kind",
                is_namespaced=False,
                verbs=VERBS,
            )
            for each in names
        ),
        {GroupVersion.parse(name.replace("__", "/")): each for name, each in failures.items()},
    )


async def addresses_of(world: Kubernetes) -> tuple[str, ...]:
    return await read_addresses(world.client("s1"))


def new_world() -> Kubernetes:
    world = Kubernetes()
    world.server("s1", "v1")
    world.groups["discovery.k8s.io/v1"] = [("endpointslices", "EndpointSlice")]
    return world


def sources(
    world: Kubernetes,
    tasks: Any,
    options: TriggerOptions,
    connect_to: Callable[[str], ApiClient] | None = None,
) -> Sources:
    return Sources(
        world.client("s1"), options, tasks=tasks, is_leader=lambda: True, connect_to=connect_to
    )


# Addresses.


async def test_endpoint_slices_have_the_addresses_of_all_servers() -> None:
    """Includes servers that are not ready, which may write; of several ports the HTTPS port is
    used."""
    world = new_world()
    slice_: Object = {
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [
            {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
            {"addresses": ["10.0.0.1"]},
        ],
        "ports": [{"name": "metrics", "port": 9}, {"name": "https", "port": 6443}],
    }
    world.put(f"{SLICES}/a", slice_)
    world.put(f"{SLICES}/b", {**slice_, "endpoints": [{"addresses": ["fd00::1"]}, "junk"]})
    assert await addresses_of(world) == ("10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443")


async def test_endpoints_are_used_without_slices() -> None:
    """Also if slices are served but empty."""
    world = new_world()
    ports = [{"port": 443}]
    subsets = [{"addresses": [{"ip": "1.1.1.1"}], "notReadyAddresses": [{"ip": "1.1.1.2"}]}]
    world.put(ENDPOINTS, {"subsets": [{**subsets[0], "ports": ports}, {"addresses": 5}]})
    assert await addresses_of(world) == ("1.1.1.1:443", "1.1.1.2:443")
    del world.groups["discovery.k8s.io/v1"]
    assert await addresses_of(world) == ("1.1.1.1:443", "1.1.1.2:443")


# Eligible resources and APIs.


def test_each_resource_and_each_migration_api_counts_once() -> None:
    """A resource in its preferred version, an API group of migrations in its best version."""
    found = shown(*MIGRATION_APIS, WIDGETS, WIDGETS._replace(version="v2"))
    assert eligible_resources(found)[GroupResource("example.org", "widgets")].name == WIDGETS
    assert served_migration_apis(found) == MIGRATION_APIS[:2]
    assert served_migration_apis(shown(MIGRATION_APIS[2])) == (MIGRATION_APIS[2],)
    assert served_migration_apis(shown(WIDGETS)) == ()


async def test_a_group_that_cannot_be_read_is_not_missing() -> None:
    """While a relevant group is unavailable there is no result; other groups do not matter."""
    world = new_world()
    async with Runtime.system().tasks("test") as tasks:
        at = sources(world, tasks, TriggerOptions())
        hidden = {"migration.k8s.io__v1alpha1": status.unavailable("starting")}
        foreign = {"metrics.k8s.io__v1": status.unavailable("down")}
        assert not at.check(shown(WIDGETS, **hidden))
        with pytest.raises(SourceMissing, match="restow controllers --install"):
            at.check(shown(WIDGETS, **foreign))


# Observers.


async def test_one_server_is_read_by_discovery() -> None:
    """Its hash, or none; a group that is not served has none."""
    world = new_world()
    async with Runtime.system().tasks("test") as tasks:
        at = sources(world, tasks, TriggerOptions(source=TriggerSource.DISCOVERY))
        observer = await at.observer(RESOURCE)
        assert observer is not None
        assert await observer.read() == DiscoveryReading(hash=hash_of("v1"))
        del world.groups["example.org/v1"]
        assert await observer.read() == DiscoveryReading(hash="")


async def test_all_servers_are_read_at_once() -> None:
    """Each has its address; one that does not respond has no hash."""
    world = new_world()
    world.server("s2", "v2")
    world.show_endpoints("s1", "s2")
    async with Runtime.system().tasks("test") as tasks:
        options = TriggerOptions(source=TriggerSource.DISCOVERY_HA)
        at = Sources(
            world.client("s2"),
            options,
            tasks=tasks,
            is_leader=lambda: True,
            connect_to=world.connect_to,
        )
        world.servers["s1"].is_down = True
        observer = await at.observer(RESOURCE)
        assert observer is not None
        down, reported = ServerHash("s1:6443", ""), ServerHash("s2:6443", hash_of("v2"))
        assert await observer.read() == ServersReading(servers=(down, reported))
        assert at.silent == {"s1:6443"}
        world.show_endpoints()
        with pytest.raises(NotKnownYet, match="no endpoints"):
            await at.observer(RESOURCE)
        await at.close()


async def test_before_the_first_list_there_is_no_source() -> None:
    """A resource does not get a weaker source while the better one is being listed, and none at all
    if
    servers keep epochs."""
    world = new_world()
    async with Runtime.system().tasks("test") as tasks:
        at = sources(world, tasks, TriggerOptions())
        watch = StorageVersionWatch(world.client("s1"), on_change=lambda _resource: None)
        at.follow(watch)
        with pytest.raises(NotKnownYet):
            await at.observer(RESOURCE)
        watch.is_synced = True
        observer = await at.observer(RESOURCE)
        assert observer is not None
        assert observer.name == "discovery"
        watch.keeps_epochs = True
        assert await at.observer(RESOURCE) is None


async def test_without_endpoints_one_server_is_assumed() -> None:
    """After several servers have been seen, the count stays: a rolling upgrade may leave one of
    them."""
    world = new_world()
    world.server("s2", "v1")
    async with Runtime.system().tasks("test") as tasks:
        at = sources(world, tasks, TriggerOptions(), world.connect_to)
        await at.count_servers()
        one = await at.observer(RESOURCE)
        assert one is not None
        assert one.name == "discovery"
        world.show_endpoints("s1", "s2")
        await at.count_servers()
        world.show_endpoints("s1")
        await at.count_servers()
        many = await at.observer(RESOURCE)
        assert many is not None
        assert many.name == "discovery-ha"
        await at.close()


# Options.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers"),
        ({"rules": Settings(poll_seconds=0)}, "poll_seconds"),
        ({"is_local": True}, "reporter_id"),
        ({"is_local": True, "reporter_id": "a", "source": TriggerSource.DISCOVERY}, "discovery"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], text: str) -> None:
    """Each error names the option."""
    with pytest.raises(ValueError, match=text):
        TriggerOptions(**options)


async def test_all_servers_cannot_be_read_without_connect_to() -> None:
    """The error is raised at once, not at the first resource."""
    world = new_world()
    async with Runtime.system().tasks("test") as tasks:
        with pytest.raises(ValueError, match="needs connect_to"):
            sources(world, tasks, TriggerOptions(source=TriggerSource.DISCOVERY_HA))
