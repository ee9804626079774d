"""Whether other servers can be asked: found out by asking, noted, and written by one server."""

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
    """Whether the server writes what it finds."""

    is_leading: bool = True


@dataclass
class Looking:
    """One server that looks at APIs."""

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
async def look() -> AsyncIterator[Looking]:
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
        looking = Looking(world, directory, backends, availability, leading)
        availability.start()
        try:
            yield looking
        finally:
            await availability.close()


async def test_an_api_that_answers_is_available() -> None:
    """It is asked for its document as one who may see it; the condition says so, written once."""
    async with look() as looking:
        world = looking.world
        await serve(world, "s", "10.0.0.1")
        looking.backends.handlers["v1.example.com"] = well
        name = await register(world, "v1", "example.com")
        await world.clock.advance(2)
        condition = await looking.condition(name)
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "Available",
            "status": "True",
            "reason": "Passed",
            "message": "all checks passed",
        }
        assert looking.problem() is None
        _, target, headers = looking.backends.asked[0]
        assert target == "/apis/example.com/v1"
        assert headers["x-remote-user"] == "system:kube-aggregator"
        assert headers["x-remote-group"] == "system:masters"
        revision, count = await world.storage.revision(), len(looking.backends.asked)
        await world.clock.advance(CHECK_SECONDS + 1)
        assert len(looking.backends.asked) > count
        assert await world.storage.revision() == revision


async def test_each_failure_has_its_reason() -> None:
    """No service, no such port, no endpoints, none that is ready, no answer, a bad answer."""
    async with look() as looking:
        world = looking.world
        name = await register(world, "v1", "example.com")

        async def reason() -> tuple[str, str, str]:
            await world.clock.advance(40)
            found = await looking.condition(name)
            assert (looking.problem() or "").startswith(found["reason"])
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

        looking.backends.handlers[name] = moved
        url = "https://s.n.svc:443/apis/example.com/v1"
        assert await reason() == (
            "False",
            "FailedDiscoveryCheck",
            f"failing or missing response from {url}: bad status from {url}: 302",
        )


async def test_it_comes_back_soon() -> None:
    """After a failure it is looked at again before long, and a change is noticed at once."""
    async with look() as looking:
        world = looking.world
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        await world.clock.advance(1)
        assert looking.problem() is not None
        since = (await looking.condition(name))["lastTransitionTime"]
        looking.backends.handlers[name] = well
        await world.clock.advance(5)
        assert looking.problem() is None
        assert (await looking.condition(name))["lastTransitionTime"] > since
        del looking.backends.handlers[name]
        await world.edit(
            "EndpointSlice",
            "n/s",
            lambda obj: obj.update(endpoints=[{"addresses": ["10.0.0.2"]}]),
            group="discovery.k8s.io",
        )
        await world.clock.advance(2)
        assert looking.problem() is not None


async def test_one_that_never_answers_holds_up_nobody() -> None:
    """More hang than are asked at a time, and the others are found to be well all the same."""
    async with look() as looking:
        world = looking.world
        await serve(world, "s", "10.0.0.1")

        async def hang(
            _method: str, _target: str, _headers: Mapping[str, str], _body: bytes
        ) -> InProcessResponse:
            await world.clock.sleep(1e6)
            raise AssertionError

        hanging = [f"h{number}.io" for number in range(CHECKS_AT_ONCE)]
        for group in hanging:
            looking.backends.handlers[f"v1.{group}"] = hang
            await register(world, "v1", group)
        await world.clock.advance(0.1)
        looking.backends.handlers["v1.example.com"] = well
        await register(world, "v1", "example.com")
        await world.clock.advance(15)
        assert (await looking.condition("v1.example.com"))["status"] == "True"
        for group in hanging:
            assert "timed out waiting for" in (looking.problem(group) or "")


async def test_only_who_has_the_turn_writes() -> None:
    """Every server knows; the one with the turn writes, and the next one as soon as it has it."""
    async with look() as looking:
        world = looking.world
        looking.leading.is_leading = False
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        revision = await world.storage.revision()
        await world.clock.advance(3)
        assert looking.problem() is not None
        assert await world.storage.revision() == revision
        looking.leading.is_leading = True
        await world.clock.advance(2)
        assert (await looking.condition(name))["reason"] == "FailedDiscoveryCheck"


async def test_what_is_gone_is_forgotten() -> None:
    """An APIService that was deleted is asked no more, and its place may be taken by another."""
    async with look() as looking:
        world = looking.world
        await serve(world, "s", "10.0.0.1")
        name = await register(world, "v1", "example.com")
        await world.clock.advance(2)
        await world.delete("APIService", name, group=GROUP)
        await world.caches.freshen()
        await world.clock.advance(60)
        count = len(looking.backends.asked)
        await world.clock.advance(120)
        assert len(looking.backends.asked) == count
        looking.backends.handlers[name] = well
        await register(world, "v1", "example.com")
        await world.clock.advance(2)
        assert (await looking.condition(name))["status"] == "True"
