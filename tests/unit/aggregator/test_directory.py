"""The directory of aggregated APIs: found at once, in order, and never for own groups."""

import base64

from restow.aggregator import directory as directory_module
from restow.aggregator.directory import ApiDirectory
from restow.aggregator.interface import ServiceRef
from tests.unit.aggregator.directory_world import GROUP, open_directory, register
from tests.unit.controllers.custom import widgets
from tests.unit.controllers.world import open_world


async def test_registered_apis_are_found() -> None:
    """An APIService with a Service is found with all its fields; a local one is not remote."""
    async with open_directory() as (world, directory):
        pem = "-----BEGIN CERTIFICATE-----\n"
        bundle = base64.b64encode(pem.encode()).decode()
        await register(world, "v1", "example.com", caBundle=bundle)
        await register(world, "v1", "local.com", service=None)
        found = directory.find("example.com", "v1")
        assert found is not None
        assert found.name == "v1.example.com"
        assert found.uid
        assert found.service == ServiceRef(namespace="n", name="s", port=443)
        assert found.ca_pem == pem
        assert not found.is_unverified
        assert (found.group_priority, found.version_priority) == (1000, 15)
        assert directory.all() == (found,)
        assert directory.unavailable(found) is None
        assert directory.find("example.com", "v2") is None
        assert directory.find("local.com", "v1") is None


async def test_changes_are_followed_and_notified() -> None:
    """Additions, changes and deletions are notified once; a status update is not a change."""
    async with open_directory() as (world, directory):
        told: list[str] = []
        directory.api_changed.subscribe(told.append)
        directory.changed.subscribe(lambda: told.append("all"))
        name = await register(world, "v1", "example.com", insecureSkipTLSVerify=True)
        assert told == [name, "all"]
        before = directory.find("example.com", "v1")
        assert before is not None
        assert before.is_unverified
        await world.edit(
            "APIService", name, lambda obj: obj["metadata"].update(labels={"a": "b"}), group=GROUP
        )
        await world.caches.freshen()
        assert told == [name, "all"]
        directory.note(before, "down")
        assert told == [name, "all", "all"]
        assert directory.unavailable(before) == "down"
        await world.edit(
            "APIService", name, lambda obj: obj["spec"]["service"].update(name="t"), group=GROUP
        )
        await world.caches.freshen()
        after = directory.find("example.com", "v1")
        assert after is not None
        assert after.service.name == "t"
        assert directory.unavailable(after) is None, "of the new service nothing is known yet"
        directory.note(before, "late")
        assert directory.unavailable(after) is None, "news of what it was do not count"
        await world.delete("APIService", name, group=GROUP)
        await world.caches.freshen()
        assert directory.find("example.com", "v1") is None
        assert directory.all() == ()
        assert "was deleted" in (directory.unavailable(after) or "")
        assert told[-2:] == [name, "all"]


async def test_hosted_groups_are_never_remote() -> None:
    """Neither a built-in group nor one of custom resources can be redirected to another server."""
    async with open_directory() as (world, directory):
        await register(world, "v1", "apps")
        await register(world, "v1", "example.com")
        assert directory.find("apps", "v1") is None
        assert [api.group for api in directory.all()] == ["example.com"]
        told: list[str] = []
        directory.changed.subscribe(lambda: told.append("all"))
        await widgets(world)
        assert directory.find("example.com", "v1") is None
        assert directory.all() == ()
        assert told == ["all"]
        world.catalog.drop("example.com", "widgets")
        assert directory.find("example.com", "v1") is not None


async def test_the_order_is_that_of_priorities() -> None:
    """Groups are sorted by their highest priority; versions by their own, then by version order."""
    async with open_directory() as (world, directory):
        await register(world, "v1", "low.io", groupPriorityMinimum=10)
        await register(world, "v1beta1", "b.io", groupPriorityMinimum=100, versionPriority=5)
        await register(world, "v1", "b.io", groupPriorityMinimum=2000, versionPriority=5)
        await register(world, "v1alpha1", "b.io", groupPriorityMinimum=1, versionPriority=9)
        await register(world, "v1", "a.io", groupPriorityMinimum=2000)
        assert [api.name for api in directory.all()] == [
            "v1.a.io",
            "v1alpha1.b.io",
            "v1.b.io",
            "v1beta1.b.io",
            "v1.low.io",
        ]


async def test_existing_apis_are_known_from_the_start() -> None:
    """A server knows all registered APIs before it answers its first request."""
    async with open_world() as world:
        await register(world, "v1", "example.com")
        directory = ApiDirectory(world.catalog, world.store)
        await directory.start()
        assert directory.find("example.com", "v1") is not None
        directory.close()
        assert list(world.catalog.changed) == []


async def test_a_discarded_cache_is_replaced() -> None:
    """When stored values can be decrypted differently, known APIs stay and new ones are found."""
    async with open_directory() as (world, directory):
        await register(world, "v1", "example.com")
        before = directory.find("example.com", "v1")
        assert directory.resource is not None
        world.store.reload(directory.resource.root)
        await register(world, "v1", "new.io")
        await directory.refresh()
        assert directory.find("example.com", "v1") == before
        assert directory.find("new.io", "v1") is not None
        await register(world, "v1", "newer.io")
        assert directory.find("newer.io", "v1") is not None


async def test_there_is_a_limit() -> None:
    """APIs above the limit are not served, and those below it are."""
    limit, directory_module.APIS_MAX = directory_module.APIS_MAX, 2  # type: ignore[misc]
    try:
        async with open_directory() as (world, directory):
            for number in range(3):
                await register(world, "v1", f"g{number}.io")
            assert [api.group for api in directory.all()] == ["g0.io", "g1.io"]
    finally:
        directory_module.APIS_MAX = limit  # type: ignore[misc]
