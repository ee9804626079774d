"""The controller: which migrations it runs, in which order, and the events and metrics of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from restow.aio import Backoff, Runtime
from restow.apimachinery.names import GroupResource
from restow.client import CacheFull
from restow.client.transport import ClientRequest
from restow.migration.event_sinks import NO_RECORDER, PageCounts
from restow.migration.metrics import ControllerMetrics
from restow.migration.migration_values import MigrationRecord
from restow.migration.migrator.controller import (
    ABORTED,
    FAILED,
    RESUMED,
    STARTED,
    SUCCEEDED,
    MigratorController,
    find_migration_apis,
    find_resource,
    is_open,
    label_of,
)
from restow.migration.migrator.options import MigratorOptions
from restow.migration.names import (
    PAUSED_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_FAILED,
    REASON_NO_RESOURCE,
    REASON_PROVEN,
)
from restow.migration.records import annotations_of
from tests.unit.migration.migrator.world import (
    QUICK,
    V1,
    V2,
    World,
    conditions,
    is_rewrite,
    until,
)

LABEL = "example.com/v2, Resource=widgets"
OPTIONS = MigratorOptions(
    engine=QUICK,
    unknown_resource_seconds=0.05,
    migration_retry_backoff=Backoff(initial_seconds=0.01, factor=2, max_seconds=0.05, jitter=0.5),
    discovery_seconds=0.01,
)


@dataclass
class RunRecord:
    """An event recorder and metrics that keep what they receive."""

    events: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    rewritten: dict[str, int] = field(default_factory=dict)
    remaining_counts: list[int | None] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def event(self, about: Any, reason: str, message: str, *, is_warning: bool = False) -> None:
        assert message
        assert is_warning == (reason == FAILED or "agree" in message), (reason, message)
        self.events.append((about["metadata"]["name"], reason))

    def page(self, resource: str, done: PageCounts) -> None:
        self.rewritten[resource] = self.rewritten.get(resource, 0) + done.rewritten

    def remaining(self, _resource: str, count: int | None) -> None:
        self.remaining_counts.append(count)

    def in_flight(self, _resource: str, _count: int) -> None:
        pass

    def ended(self, resource: str, status: str, _seconds: float) -> None:
        self.ends.append((resource, status))

    def object_failed(self, resource: str, reason: str) -> None:
        self.failures.append((resource, reason))


@asynccontextmanager
async def running(
    world: World, options: MigratorOptions = OPTIONS, recorded: RunRecord | None = None
) -> AsyncIterator[RunRecord]:
    recorded = recorded or RunRecord()
    controller = MigratorController(
        world.client, runtime=Runtime.system(), options=options, recorder=recorded, metrics=recorded
    )
    task = asyncio.ensure_future(controller.run())
    try:
        yield recorded
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def has(world: World, name: str, kind: str) -> Callable[[], Any]:
    async def check() -> bool:
        return conditions(await world.latest(name)).get(kind, ("",))[0] == "True"

    return check


async def test_one_after_another(world: World) -> None:
    """Migrations of one resource run one at a time, oldest first, each with events and metrics."""
    for name in ("b", "a"):
        await world.request(name)
    async with running(world) as recorded:
        await until(has(world, "a", "Succeeded"))
        await until(has(world, "b", "Succeeded"))
        await until(lambda: len(recorded.ends) == 2)
    oldest, other = (name for name, reason in recorded.events if reason == STARTED)
    assert recorded.events == [
        (oldest, STARTED),
        (oldest, SUCCEEDED),
        (other, STARTED),
        (other, SUCCEEDED),
    ]
    assert recorded.ends == [(LABEL, "Succeeded"), (LABEL, "Succeeded")]
    assert recorded.rewritten == {LABEL: 12}
    assert None in recorded.remaining_counts
    assert await world.versions() == {V2: 12}


async def test_both_apis(world: World) -> None:
    """Migrations of both APIs run; of the in-tree API only one version is watched."""
    apis = await find_migration_apis(world.client)
    assert [(each.group, each.version) for each in apis] == [
        ("migration.k8s.io", "v1alpha1"),
        ("storagemigration.k8s.io", "v1"),
    ]
    for world.requests in apis:
        await world.request()
    async with running(world) as recorded:
        for world.requests in apis:
            await until(has(world, "m", "Succeeded"))
        await until(lambda: len(recorded.ends) == 2)
    assert await world.versions() == {V2: 12}


async def test_several_resources_in_parallel(world: World) -> None:
    """A blocked migration does not block those of other resources."""
    await world.request("m")
    secrets = {"group": "", "resource": "secrets"}
    await other_request(world, "n", secrets)
    gate = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent) and "/m/" in sent.target:
            await gate.wait()
        return 0

    world.faults.before = before
    async with running(world):
        await until(has(world, "n", "Succeeded"))
        assert not conditions(await world.latest("m")).get("Succeeded")
        gate.set()
        await until(has(world, "m", "Succeeded"))


async def test_a_bounded_number(world: World) -> None:
    """With a limit of one, the second resource waits for the first; a paused one does not count."""
    await world.request("m")
    await until(has_age(world, "m"))
    begun = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent) and "/m/" in sent.target:
            begun.set()
        return 0

    world.faults.before = before
    patch = {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}}
    await world.client.patch(world.requests.resource, "m", patch)
    async with running(world, replace(OPTIONS, resources_at_once=1)):
        await until(lambda: has_reason(world, "m", "MigrationPaused"))
        await other_request(world, "n", {"group": "", "resource": "secrets"})
        await until(has(world, "n", "Succeeded"))
        assert not begun.is_set()
        release = {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}}
        await world.client.patch(world.requests.resource, "m", release)
        await until(has(world, "m", "Succeeded"))


def has_age(world: World, name: str) -> Callable[[], Any]:
    async def check() -> bool:
        return bool((await world.latest(name))["metadata"]["creationTimestamp"])

    return check


async def has_reason(world: World, name: str, reason: str) -> bool:
    return conditions(await world.latest(name)).get("Running", ("", ""))[1] == reason


async def other_request(world: World, name: str, resource: dict[str, str]) -> None:
    body = {"metadata": {"name": name}, "spec": {"resource": resource}}
    await world.client.create(world.requests.resource, body)


async def test_an_unknown_resource(world: World) -> None:
    """The controller waits for the resource for a while; then the migration fails."""
    await other_request(world, "m", {"group": "example.com", "resource": "nothings"})
    async with running(world) as recorded:
        await until(has(world, "m", "Failed"))
        await until(lambda: recorded.events)
    assert conditions(await world.latest())["Failed"] == ("True", REASON_NO_RESOURCE)
    assert recorded.events == [("m", FAILED)]


async def test_a_resource_that_is_not_stored(world: World) -> None:
    """A resource that cannot be rewritten fails at once, with the server's reason."""
    resource = {"group": "authentication.k8s.io", "resource": "tokenreviews"}
    await other_request(world, "m", resource)
    async with running(world):
        await until(has(world, "m", "Failed"))
    assert conditions(await world.latest())["Failed"] == ("True", REASON_FAILED)


async def test_deleted(world: World) -> None:
    """A deleted migration is aborted; the next one of the resource starts."""
    gate = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent) and "/m/" in sent.target:
            gate.set()
            await asyncio.Event().wait()
        return 0

    world.faults.before = before
    await world.request("m")
    async with running(world) as recorded:
        await gate.wait()
        await world.request("n")
        await world.delete_request("m")
        await until(has(world, "n", "Succeeded"))
    assert recorded.events[:2] == [("m", STARTED), ("m", ABORTED)]
    assert recorded.ends[0] == (LABEL, "Aborted")
    assert await world.versions() == {V2: 12}


async def test_agreement_lost(world: World) -> None:
    """A migration that ends because servers disagree is reported as aborted."""
    gate = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent):
            gate.set()
            await asyncio.Event().wait()
        return 0

    world.faults.before = before
    await world.request()
    async with running(world) as recorded:
        await gate.wait()
        await world.join("x+1")
        await until(has(world, "m", "Failed"))
        await until(lambda: len(recorded.events) == 2)
    assert recorded.events == [("m", STARTED), ("m", ABORTED)]
    assert await world.versions() == {V1: 12}


async def test_waits_for_agreement(world: World) -> None:
    """A migration created while servers disagree starts when they agree."""
    old = await world.join("x+1")
    await world.request()
    async with running(world) as recorded:
        await asyncio.sleep(0)
        await old.leave()
        await until(has(world, "m", "Succeeded"))
        await until(lambda: len(recorded.events) == 2)
    assert recorded.events == [("m", STARTED), ("m", SUCCEEDED)]


async def test_interrupted_and_resumed(world: World) -> None:
    """After server errors the migration resumes at its position."""
    options = replace(OPTIONS, engine=replace(QUICK, page_attempts_max=1))
    count = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal count
        if is_rewrite(sent):
            count += 1
            # Bounded: on a slow machine passes have more pages, and all of them would be
            # interrupted.
            return 500 if count in (2, 4, 6) else 0
        return 0

    world.faults.before = before
    await world.request()
    async with running(world, options) as recorded:
        await until(has(world, "m", "Succeeded"))
        await until(lambda: ("m", SUCCEEDED) in recorded.events)
    assert recorded.events[0] == ("m", STARTED)
    assert {reason for _, reason in recorded.events[1:-1]} == {RESUMED}
    assert await world.versions() == {V2: 12}


async def test_interrupted_too_often(world: World) -> None:
    """Permanent server errors fail the migration."""
    options = replace(OPTIONS, engine=replace(QUICK, page_attempts_max=1), interruptions_max=2)

    async def before(sent: ClientRequest) -> int:
        return 500 if is_rewrite(sent) else 0

    world.faults.before = before
    await world.request()
    async with running(world, options):
        await until(has(world, "m", "Failed"))
    assert conditions(await world.latest())["Failed"] == ("True", REASON_FAILED)
    assert await world.versions() == {V1: 12}


async def test_two_controllers(world: World) -> None:
    """Two concurrent controllers, or one that takes over from another, cause no errors."""
    await world.request()
    async with running(world), running(world):
        await until(has(world, "m", "Succeeded"))
    assert conditions(await world.latest())["Succeeded"] == ("True", REASON_PROVEN)
    assert await world.versions() == {V2: 12}


async def test_apis_that_are_installed_later(world: World) -> None:
    """A server without the API of migrations is polled until it has the API."""
    asked = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal asked
        if sent.target in {"/apis/migration.k8s.io/v1alpha1", "/apis/storagemigration.k8s.io/v1"}:
            asked += 1
            return 404 if asked < 4 else 0
        return 503 if asked < 4 and "storagemigration" in sent.target else 0

    await world.request()
    world.faults.before = before
    async with running(world):
        await until(has(world, "m", "Succeeded"))


def test_open_migrations() -> None:
    """Open are migrations in progress, and successes of the trigger's migrations without a
    verification."""
    record = annotations_of(MigrationRecord(target="t", state_uid="u", change="c"))

    def request(kind: str = "", **metadata: Any) -> dict[str, Any]:
        found = [{"type": kind, "status": "True"}] if kind else []
        return {"metadata": metadata, "status": {"conditions": found}}

    table = [
        (request(), True),
        (request("Running"), True),
        (request("Failed"), False),
        (request("Succeeded"), False),
        (request("Succeeded", annotations=record), True),
        (request("Succeeded", annotations={**record, PROOF_ANNOTATION: '{"target": "t"}'}), False),
        (request("Succeeded", annotations={**record, PROOF_ANNOTATION: "done by hand"}), True),
        (request("Succeeded", annotations={**record, PROOF_ANNOTATION: '{"target": "u"}'}), True),
        (request(deletionTimestamp="now"), False),
    ]
    for each, expected in table:
        assert is_open(each) is expected, each


async def test_names(world: World) -> None:
    """Metrics name a resource in the preferred version of its group."""
    secrets = await find_resource(world.client, GroupResource("", "secrets"))
    assert secrets is not None
    assert label_of(secrets) == "/v1, Resource=secrets"
    assert label_of(world.widgets) == LABEL
    assert await find_resource(world.client, GroupResource("", "nothings")) is None


async def test_an_informer_that_ends(world: World) -> None:
    """A migrator whose informer fails stops with the error instead of waiting silently."""
    controller = MigratorController(
        world.client,
        runtime=Runtime.system(),
        options=MigratorOptions(engine=QUICK),
        recorder=NO_RECORDER,
        metrics=ControllerMetrics(Runtime.system().clock),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(ended_by(controller))
        await until(lambda: controller.is_synced)
        controller._apis[0].informer.objects_max = 0
        await world.request()
    assert isinstance(running.result(), CacheFull)


async def ended_by(controller: MigratorController) -> Exception | None:
    try:
        await controller.run()
    except CacheFull as error:
        return error
