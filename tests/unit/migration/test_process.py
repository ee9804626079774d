"""The controllers process: leader election, failures, health, probes, startup checks, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apis.resources import LEASES, STATES
from restow.client import ApiClient, LeaderTiming, lease_elector
from restow.migration.events import EventRecorder
from restow.migration.health import TROUBLE_SECONDS_MAX, ControllerHealth
from restow.migration.led_controller import LedController, Part
from restow.migration.metrics import ControllerMetrics
from restow.migration.probes import ProbeAnswer, ProbeServer
from restow.migration.process import (
    STOP_SECONDS_MAX,
    ControllersProcess,
    NotPossible,
    ProcessOptions,
)
from restow.migration.rights import rights_of
from tests.unit.client.fake_api import FakeApi, new_client
from tests.unit.migration.running_process import running_server, until, with_token

TIMING = LeaderTiming(lease_seconds=3, renew_seconds=2.0, retry_seconds=0.1)


@dataclass
class Worker:
    """A controller that does nothing and counts its starts."""

    begun: int = 0
    running: int = 0
    fail: list[Exception] = field(default_factory=list)
    is_leader: Callable[[], bool] | None = None

    async def run(self) -> None:
        self.begun += 1
        self.running += 1
        try:
            if self.fail:
                raise self.fail.pop(0)
            await asyncio.Event().wait()
        finally:
            self.running -= 1

    def part(self, name: str = "trigger", **more: Any) -> Part:
        def make(is_leader: Callable[[], bool]) -> Worker:
            self.is_leader = is_leader
            return self

        options = {"silence_seconds_max": 600.0} | more
        return Part(name=name, lease=f"restow-{name}", make=make, **options)


class Candidate:
    """A candidate process for one controller, on a clock that the test advances."""

    def __init__(self, api: FakeApi, clock: SimulatedClock, name: str, **more: Any) -> None:
        self.worker, self.name = Worker(), name
        runtime = Runtime.simulated(name, clock=clock)
        client, _ = new_client(api, seed=name)
        client = ApiClient(client._caller.transport, runtime=runtime)
        self.metrics, self.health = ControllerMetrics(clock), ControllerHealth(clock)
        self.elector = lease_elector(client, namespace="kube-system", name="t", identity=name)
        self.led = LedController(
            self.worker.part(**more),
            runtime=runtime,
            health=self.health,
            metrics=self.metrics,
            elector=self.elector,
        )
        self.tasks = runtime.tasks(name)
        self.task = self.tasks.spawn("led", self.led.run())

    @property
    def is_leading(self) -> bool:
        return b'restow_controllers_leader{name="trigger"} 1.0' in self.metrics.document()


def leading(*candidates: Candidate) -> list[str]:
    return [each.name for each in candidates if each.is_leading]


async def test_one_of_two_leads_and_the_other_takes_over() -> None:
    """While one leads, the other is a standby; when the leader stops, it releases the lease at
    once."""
    api, clock = FakeApi(), SimulatedClock()
    one = Candidate(api, clock, "one")
    await clock.advance(1)
    two = Candidate(api, clock, "two")
    await clock.advance(60)
    assert (one.worker.running, two.worker.running) == (1, 0)
    assert leading(one, two) == ["one"]
    assert two.led.leader == one.elector.identity
    await one.tasks.close()
    await clock.advance(5)
    assert (one.worker.running, two.worker.running) == (0, 1)
    assert leading(one, two) == ["two"]
    assert one.health.states() == {}
    await two.tasks.close()


async def test_a_lost_lease_stops_the_controller_until_it_is_regained() -> None:
    """A leader that cannot renew the lease stops in time, and competes for the lease again."""
    api, clock = FakeApi(), SimulatedClock()
    one = Candidate(api, clock, "one")
    await clock.advance(1)
    [path] = api.objects
    stolen = api.objects[path]["spec"] | {"holderIdentity": "thief", "leaseDurationSeconds": 15}
    api.put(path, api.objects[path] | {"spec": stolen})
    await clock.advance(5)
    assert one.worker.running == 0
    assert leading(one) == []
    await clock.advance(30)
    assert (one.worker.running, one.worker.begun) == (1, 2)
    assert leading(one) == ["one"]
    await one.tasks.close()


async def test_an_always_on_controller_checks_whether_it_leads() -> None:
    """Every instance runs; only one of the two is the leader."""
    api, clock = FakeApi(), SimulatedClock()
    one = Candidate(api, clock, "one", is_always_on=True)
    await clock.advance(1)
    two = Candidate(api, clock, "two", is_always_on=True)
    await clock.advance(10)
    assert (one.worker.running, two.worker.running) == (1, 1)
    assert one.worker.is_leader is not None
    assert two.worker.is_leader is not None
    assert (one.worker.is_leader(), two.worker.is_leader()) == (True, False)
    await one.tasks.close()
    await clock.advance(10)
    assert two.worker.is_leader()
    assert two.is_leading
    await two.tasks.close()


async def test_a_failed_controller_is_restarted() -> None:
    """After a failure the lease is released, and the controller restarted after a backoff."""
    api, clock = FakeApi(), SimulatedClock()
    one = Candidate(api, clock, "one")
    one.worker.fail = [RuntimeError("first"), RuntimeError("second")]
    await clock.advance(60)
    assert one.worker.begun == 3
    assert one.worker.running == 1
    assert b'restow_controllers_restarts_total{name="trigger"} 2.0' in one.metrics.document()
    await one.tasks.close()


async def test_a_controller_that_always_fails_is_not_healthy() -> None:
    """One failure does not make a controller unhealthy; repeated failures do."""
    api, clock = FakeApi(), SimulatedClock()
    one = Candidate(api, clock, "one")
    one.worker.fail = [RuntimeError(f"no {n}") for n in range(100)]
    await clock.advance(10)
    assert one.health.states() == {"trigger": True}
    await clock.advance(10 * TROUBLE_SECONDS_MAX)
    is_healthy, text = one.health.report()
    assert not is_healthy
    assert "it failed: no" in text
    await one.tasks.close()


async def test_a_controller_reports_its_problem() -> None:
    """A problem that a running controller reports counts as a failure until it is solved."""
    api, clock = FakeApi(), SimulatedClock()
    problems = ["the migrations could not be listed yet"]
    one = Candidate(api, clock, "one", problem_of=lambda _: problems[0])
    one.led.check_health()
    await clock.advance(TROUBLE_SECONDS_MAX + 1)
    one.led.check_health()
    assert "could not be listed" in one.health.problem("trigger")
    problems[0] = ""
    one.led.check_health()
    assert one.health.problem("trigger") == ""
    await one.tasks.close()


async def test_health_is_about_the_last_success() -> None:
    """A failure counts after a minute without success; inactivity after the controller's own
    limit."""
    clock = SimulatedClock()
    health = ControllerHealth(clock)
    assert health.report() == (True, "\n")
    health.begin("a", silence_seconds_max=300)
    health.have_trouble("a", "refused")
    await clock.advance(TROUBLE_SECONDS_MAX)
    assert health.states() == {"a": True}
    await clock.advance(1)
    assert health.report() == (False, "[-]a no success for 61 s: refused\n")
    health.succeed("a")
    assert health.report() == (True, "[+]a ok\n")
    await clock.advance(301)
    assert health.problem("a") == "no activity for 301 s"
    health.end("a")
    health.succeed("a")
    health.have_trouble("a")
    assert health.states() == {}


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def get(port: int, path: str) -> tuple[int, str]:
    answer = await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def test_probes_serve_fixed_paths_only() -> None:
    """Fixed paths are served for GET and HEAD; other requests, also malformed ones, are
    rejected."""

    def broken() -> ProbeAnswer:
        raise RuntimeError("no page")

    runtime = Runtime.system()
    probes = await ProbeServer.start(
        {"/healthz": lambda: ProbeAnswer(200, b"fine\n"), "/broken": broken},
        runtime=runtime,
        bind="127.0.0.1",
        port=0,
    )
    try:
        assert await get(probes.port, "/healthz?verbose") == (200, "fine\n")
        assert await get(probes.port, "/secrets") == (404, "not found; paths: /broken, /healthz\n")
        assert (await get(probes.port, "/broken"))[0] == 500
        head = await ask(probes.port, b"HEAD /healthz HTTP/1.0\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert head.endswith(b"\r\n\r\n")
        post = await ask(probes.port, b"POST /healthz HTTP/1.1\r\n\r\n")
        assert post.startswith(b"HTTP/1.1 405 ")
        assert (await ask(probes.port, b"\x16\x03\x01 garbage\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert await ask(probes.port, b"x" * 100_000) == b""
        assert await get(probes.port, "/healthz") == (200, "fine\n")
    finally:
        await probes.close()


@asynccontextmanager
async def process_of(
    client: ApiClient, workers: dict[str, Worker], **options: Any
) -> AsyncIterator[ControllersProcess]:
    def make(_recorder: EventRecorder, _metrics: ControllerMetrics) -> list[Part]:
        return [worker.part(name) for name, worker in workers.items()]

    process = ControllersProcess(
        client, ProcessOptions(port=0, identity="here", timing=TIMING, **options), make
    )
    try:
        yield process
    finally:
        await process.stop()


async def test_a_reporter_id_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Reports under this ID belong to another process: startup fails and names the ID and the
    state."""
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
    ):
        report = {"reporterID": "host_1_a", "currentStorageVersionHash": "h"}
        status = {"status": {"currentStorageVersionHashes": [report]}}
        await client.patch(STATES, "pods", status, subresource="status")
        async with process_of(client, {"trigger": Worker()}, reporter_id="host_1_a") as process:
            with pytest.raises(NotPossible, match="reports as host_1_a in the StorageState pods"):
                await process.start()
        async with process_of(client, {"trigger": Worker()}, reporter_id="host_2_b") as process:
            await process.start()


async def test_a_unique_identity_is_that_of_the_lease(tmp_path: Path) -> None:
    """It is also the reporter ID, so no suffix is added."""
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
    ):
        workers = {"trigger": Worker()}
        async with process_of(client, workers, is_identity_unique=True) as process:
            await process.start()
            await until(lambda: workers["trigger"].running == 1)
            lease = await client.get(LEASES, "restow-trigger", namespace="kube-system")
            assert lease["spec"]["holderIdentity"] == "here"


async def test_from_start_to_stop(tmp_path: Path) -> None:
    """The process leads, serves its pages, records events, and releases both leases when it
    stops."""
    workers = {"trigger": Worker(), "migrator": Worker()}
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
    ):
        async with process_of(client, workers) as process:
            await process.start()
            await until(lambda: all(each.running for each in workers.values()))
            code, text = await get(process.port, "/readyz")
            assert code == 200
            assert "trigger: leads" in text
            assert "[+]connection ok" in text
            assert "[+]migrator ok" in text
            assert (await get(process.port, "/healthz"))[0] == 200
            code, text = await get(process.port, "/metrics")
            assert 'restow_controllers_leader{name="migrator"} 1.0' in text
            lease = await client.get(LEASES, "restow-trigger", namespace="kube-system")
            assert lease["spec"]["holderIdentity"].startswith("here_")
        assert not any(each.running for each in workers.values())
        for name in ("restow-trigger", "restow-migrator"):
            lease = await client.get(LEASES, name, namespace="kube-system")
            assert "holderIdentity" not in lease["spec"]
        with pytest.raises(ConnectionRefusedError):
            await get(process.port, "/healthz")


async def test_it_stops_although_the_server_does_not_answer() -> None:
    """A hanging server does not delay shutdown: leases that cannot be released expire."""
    api, worker = Hanging(), Worker()
    client, clock = new_client(api)
    async with process_of(client, {"migrator": worker}) as process:
        tasks = client.runtime.tasks("controllers")
        process._undo.push_async_callback(process._end_parts, tasks)
        tasks.spawn("migrator", process._parts[0].run())
        await clock.advance(1)
        assert worker.running == 1
        api.hangs = True
        before = clock.monotonic()
        await clock.run_until_done(process.stop())
        assert clock.monotonic() - before <= STOP_SECONDS_MAX
        assert worker.running == 0
        await clock.run_until_idle()


class Hanging(FakeApi):
    """A fake server that can stop responding."""

    hangs = False

    async def handle(self, *arguments: Any) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        return await super().handle(*arguments)


async def test_a_standby_is_ready_and_names_the_leader(tmp_path: Path) -> None:
    """Both processes are healthy; only one is active."""
    one, two = Worker(), Worker()
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
        process_of(client, {"migrator": one}) as first,
        process_of(client, {"migrator": two}) as second,
    ):
        await first.start()
        await until(lambda: one.running == 1)
        await second.start()
        assert await get_until(second.port, "/readyz", "migrator: waits for here_")
        assert two.begun == 0
        await first.stop()
        await until(lambda: two.running == 1)


async def get_until(port: int, path: str, text: str) -> bool:
    async def is_there() -> bool:
        code, found = await get(port, path)
        return code == 200 and text in found

    await until(is_there)
    return True


async def test_without_leases_it_starts_at_once(tmp_path: Path) -> None:
    """Without leader election no lease is created, and the controller runs."""
    worker = Worker()
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
        process_of(client, {"migrator": worker}, is_elected=False) as process,
    ):
        await process.start()
        await until(lambda: worker.running == 1)
        page = await client.list_page(LEASES, namespace="kube-system")
        assert "restow-migrator" not in {each["metadata"]["name"] for each in page.items}


async def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """For a user without permissions, startup fails with the verbs, resources and namespace
    needed."""
    users = tmp_path / "tokens.csv"
    users.touch(mode=0o600)
    users.write_text('a-token,jane,u-1,"developers"\n')
    async with (
        running_server(tmp_path / "data", token_auth_file=users) as config,
        ApiClient.connect(with_token(config, "a-token"), runtime=Runtime.system()) as client,
        process_of(client, {"trigger": Worker()}, namespace="restow-system") as process,
    ):
        with pytest.raises(NotPossible) as refusal:
            await process.start()
    text = str(refusal.value)
    assert "get, list, watch, create, patch storagestates.migration.k8s.io: " in text
    assert (
        "get, update leases.coordination.k8s.io restow-trigger in namespace restow-system" in text
    )
    assert "storageversionmigrations/status" not in text  # only the migrator needs it
    assert "rbac.yaml" in text


async def test_missing_kinds_are_named() -> None:
    """On a server without the CRDs, startup fails with the command that installs them."""
    api = Bare()
    client, _ = new_client(api)
    async with process_of(client, {"trigger": Worker()}) as process:
        with pytest.raises(NotPossible, match=r"storagestates.migration.k8s.io .*--install"):
            await process.start()


class Bare(FakeApi):
    """A fake server that serves `/version` and no other resources."""

    def _answer(self, sent: Any) -> Any:
        if sent.path == "/version":
            return {"major": "1", "minor": "30"}
        if sent.path == "/apis":
            return {"kind": "APIGroupList", "groups": []}
        if sent.path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        return super()._answer(sent)


async def test_a_lost_server_makes_it_unhealthy_after_a_while() -> None:
    """The periodic server check makes a standby unhealthy too."""
    api = Bare()
    client, clock = new_client(api)
    async with process_of(client, {}) as process:
        process.health.begin("connection", silence_seconds_max=60)
        async with client.runtime.tasks("test") as tasks:
            tasks.spawn("pulse", process._probe_server())
            await clock.advance(120)
            assert process.health.states() == {"connection": True}
            api.refuse = [ConnectionRefusedError() for _ in range(100)]
            await clock.advance(120)
            assert process.health.states() == {"connection": False}
            api.refuse = []
            await clock.advance(20)
            assert process.health.states() == {"connection": True}


def test_each_controller_needs_only_its_own_permissions() -> None:
    """The trigger needs no write access to migrated objects, and no lease without leader
    election."""
    trigger = rights_of(["trigger"], is_elected=False)
    assert not any(each.group in {"*", "coordination.k8s.io"} for each in trigger)
    assert any(each.resource == "storagestates/status" for each in trigger)
    migrator = rights_of(["migrator"], is_elected=True)
    assert not any(each.resource.startswith("storagestates") for each in migrator)
    assert any(each.names == ("restow-migrator",) for each in migrator)
