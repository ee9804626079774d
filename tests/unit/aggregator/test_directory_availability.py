"""Availability checks of aggregated APIs: recorded by each server, written by the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from restow.aggregator.directory import ApiDirectory
from restow.aggregator.directory_availability import (
    CHECK_SECONDS,
    CHECKS_AT_ONCE,
    Availability,
)
from restow.aggregator.services import StoredServices
from restow.client.transport import InProcessResponse
from tests.unit.aggregator.directory_world import (
    GROUP,
    FunctionBackends,
    open_directory,
    register,
    serve,
    well,
)
from tests.unit.controllers.world import World


@dataclass
class Leading:
    """Whether the server is the leader, which writes conditions."""

    is_leading: bool = True


@dataclass
class CheckedWorld:
    """One server that checks the availability of APIs."""

    world: World
    directory: ApiDirectory
    backends: FunctionBackends
    availability: Availability
    leading: Leading

    async def condition(self, name: str) -> dict[str, Any]:
        found = await self.world.get("APIService", name, group=GROUP)
        assert found is not None
        [condition] = found["status"]["conditions"]
        return dict(condition)

    def problem(self, group: str = "example.com") -> str | None:
        api = self.directory.find(group, "v1")
        assert api is not None
        return self.directory.unavailable(api)


@asynccontextmanager
async def look() -> AsyncIterator[CheckedWorld]:
    async with open_directory() as (world, directory):
        backends = FunctionBackends()
        services = StoredServices(world.store, world.catalog)
        leading = Leading()
        availability = Availability(
            directory,
            backends,
            services,
            world.store,
            world.runtime,
            is_leading=lambda: leading.is_leading,
        )
        checked = CheckedWorld(world, directory, backends, availability, leading)
        availability.start()
        try:
            yield checked
        finally:
            await availability.close()


async def test_an_api_that_responds_is_available() -> None:
    """Its discovery document is requested with read rights; the condition is written once."""
    async with look() as checked:
        world = checked.world
        await serve(world, "s", "10.0.0.1")
        checked.backends.handlers["v1.example.com"] = well
        name = await register(world, "v1", "example.com")
        await world.clock.advance(2)
        condition = await checked.condition(name)
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "Available",
            "status": "True",
            "reason": "Passed",
            "message": "all checks passed",
        }
        assert checked.problem() is None
        _, target, headers = checked.backends.asked[0]
        assert target == "/apis/example.com/v1"
        assert headers["x-remote-user"] == "system:kube-aggregator"
        assert headers["x-remote-group"] == "system:masters"
        revision, count = await world.storage.revision(), len(checked.backends.asked)
        await world.clock.advance(CHECK_SECONDS + 1)
        assert len(checked.backends.asked) > count
        assert await world.storage.revision() == revision


async def test_each_failure_has_its_reason() -> None:
    """No Service, no such port, no endpoints, none that is ready, no response, a bad response."""
    async with look() as checked:
        world = checked.world
        name = await register(world, "v1", "example.com")

        async def reason() -> tuple[str, str, str]:
            await world.clock.advance(40)
            found = await checked.condition(name)
            assert (checked.problem() or "").startswith(found["reason"])
            return found["status"], found["reason"], found["message"]

        assert await reason() == (
            "False",
            "ServiceNotFound",
            'service/s in "n" is not present',
        )
        await serve(world, "s", port=444)
        assert await reason() == (
            "False",
            "ServicePortError",
            'service/s in "n" is not listening on port 443',
        )
        await world.delete("Service", "n/s")
        await serve(world, "s")
        assert (await reason())[1] == "EndpointsNotFound"
        await world.delete("Service", "n/s")
        await serve(world, "s", "10.0.0.1")
        not_ready = [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]
        for endpoints, expected in (
            (not_ready, "MissingEndpoints"),
            ([{"addresses": ["10.0.0.1"]}], "FailedDiscoveryCheck"),
        ):
            await world.edit(
                "EndpointSlice",
                "n/s",
                lambda obj, them=endpoints: obj.update(endpoints=them),  # type: ignore[misc]
                group="discovery.k8s.io",
            )
            assert (await reason())[1] == expected

        async def moved(*_: object) -> InProcessResponse:
            return InProcessResponse(302, b"", {"Location": "https://elsewhere/"})

        checked.backends.handlers[name] = moved
        url = "https://s.n.svc:443/apis/example.com/v1"
        assert await reason() == (
            "False",
            "FailedDiscoveryCheck",
            f"failing or missing response from {url}: bad status from {url}: 302",
        )


async def test_it_comes_back_soon() -> None:
    """After a failure it is checked again soon, and a change is detected at once."""
    async with look() as checked:
        world = checked.world
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        await world.clock.advance(1)
        assert checked.problem() is not None
        since = (await checked.condition(name))["lastTransitionTime"]
        checked.backends.handlers[name] = well
        await world.clock.advance(5)
        assert checked.problem() is None
        assert (await checked.condition(name))["lastTransitionTime"] > since
        del checked.backends.handlers[name]
        await world.edit(
            "EndpointSlice",
            "n/s",
            lambda obj: obj.update(endpoints=[{"addresses": ["10.0.0.2"]}]),
            group="discovery.k8s.io",
        )
        await world.clock.advance(2)
        assert checked.problem() is not None


async def test_a_hanging_server_delays_no_others() -> None:
    """More servers hang than are checked concurrently, and the others are still found available."""
    async with look() as checked:
        world = checked.world
        await serve(world, "s", "10.0.0.1")

        async def hang(
            _method: str, _target: str, _headers: Mapping[str, str], _body: bytes
        ) -> InProcessResponse:
            await world.clock.sleep(1e6)
            raise AssertionError

        hanging = [f"h{number}.io" for number in range(CHECKS_AT_ONCE)]
        for group in hanging:
            checked.backends.handlers[f"v1.{group}"] = hang
            await register(world, "v1", group)
        await world.clock.advance(0.1)
        checked.backends.handlers["v1.example.com"] = well
        await register(world, "v1", "example.com")
        await world.clock.advance(15)
        assert (await checked.condition("v1.example.com"))["status"] == "True"
        for group in hanging:
            assert "timed out waiting for" in (checked.problem(group) or "")


async def test_only_the_leader_writes() -> None:
    """Every server checks; only the leader writes, and a new leader writes at once."""
    async with look() as checked:
        world = checked.world
        checked.leading.is_leading = False
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        revision = await world.storage.revision()
        await world.clock.advance(3)
        assert checked.problem() is not None
        assert await world.storage.revision() == revision
        checked.leading.is_leading = True
        await world.clock.advance(2)
        assert (await checked.condition(name))["reason"] == "FailedDiscoveryCheck"


async def test_deleted_apis_are_forgotten() -> None:
    """A deleted APIService is not checked any more, and another one may take its place."""
    async with look() as checked:
        world = checked.world
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        await world.clock.advance(2)
        await world.delete("APIService", name, group=GROUP)
        await world.caches.freshen()
        await world.clock.advance(60)
        count = len(checked.backends.asked)
        await world.clock.advance(120)
        assert len(checked.backends.asked) == count
        checked.backends.handlers[name] = well
        await register(world, "v1", "example.com")
        await world.clock.advance(2)
        assert (await checked.condition(name))["status"] == "True"
