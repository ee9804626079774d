"""The client of the server's own rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.status import ServiceUnavailable, StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, ApiResource, InProcessResponse, InProcessTransport
from restow.migration.migration_values import MigrationRef
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import AgreementLost, ObjectFailure
from restow.migration.migrator.patch_rewrite import PatchOptions
from restow.migration.migrator.server_rewrite import LIMIT_MIN, REWRITE_FAILED, ServerRewrite
from tests.unit.migration.migrator.world import QUICK

REF = MigrationRef("migration.k8s.io/v1alpha1", "m", "u")
TARGET = "example.com/v2"
WIDGETS = ApiResource(
    group="example.com", version="v2", name="widgets", kind="Widget", is_namespaced=True
)
PAGE = {"continue": "", "scanned": 0, "target": TARGET}


class Server:
    """A fake server with a queue of replies and a simulated latency."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.requests: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any] | StatusError] = []
        self.take: Callable[[int], float] = lambda _limit: 0.0

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        assert method == "POST"
        assert target == "/apis/migration.k8s.io/v1alpha1/storageversionmigrations/m/rewrite"
        rewrite_options = orjson.loads(body)
        self.requests.append(rewrite_options)
        await self.clock.sleep(self.take(rewrite_options["limit"]))
        answer = (
            self.answers.pop(0) if self.answers else {**PAGE, "scanned": rewrite_options["limit"]}
        )
        if isinstance(answer, StatusError):
            headers = {"Retry-After": str(answer.retry_after_seconds)}
            return InProcessResponse(answer.code, answer.to_bytes(), headers)
        return InProcessResponse(200, orjson.dumps(answer))

    def rewriting(self, options: EngineOptions = QUICK, **given: Any) -> ServerRewrite:
        runtime = Runtime.simulated("rewriting", clock=self.clock)
        client = ApiClient(InProcessTransport(self.handle), runtime=runtime)
        requested = {"target_api_version": TARGET, "epoch": 3, **given}
        return ServerRewrite(client, REF, WIDGETS, options=options, **requested)

    async def page(self, rewriting: ServerRewrite, token: str = "") -> Any:
        return await self.clock.run_until_done(rewriting.page(token))


@pytest.fixture
def server() -> Server:
    return Server()


async def test_request_and_reply(server: Server) -> None:
    """The request has token, target and epoch; the reply has the counts and the names of failed
    objects."""
    failed = [{"namespace": "n", "name": "x", "reason": "no JSON"}, "odd"]
    server.answers = [
        {
            **PAGE,
            "continue": "next",
            "scanned": 9,
            "rewritten": 4,
            "skipped": 2,
            "settled": 1,
            "failedCount": 1,
            "failed": failed,
            "epoch": 3,
        }
    ]
    done = await server.page(server.rewriting(), "here")
    assert server.requests == [{"limit": 5, "continue": "here", "target": TARGET, "epoch": 3}]
    assert (done.token, done.scanned, done.rewritten, done.unchanged) == ("next", 9, 4, 2)
    assert (done.settled, done.failed, done.moment) == (1, 1, "3")
    assert done.failures == (
        ObjectFailure(namespace="n", name="x", reason=REWRITE_FAILED, message="no JSON"),
    )


async def test_missing_names(server: Server) -> None:
    """A page whose reply names only some failures is repeated with that number as its limit."""
    named = [{"namespace": "n", "name": f"x{number}", "reason": "no JSON"} for number in range(2)]
    few = {**PAGE, "continue": "near", "scanned": 2, "failedCount": 2, "failed": named}
    server.answers = [
        {**few, "continue": "far", "scanned": 5, "rewritten": 1, "failedCount": 4},
        few,
    ]
    done = await server.page(server.rewriting(), "here")
    assert [(each["limit"], each["continue"]) for each in server.requests] == [
        (5, "here"),
        (2, "here"),
    ]
    assert (done.token, done.scanned, done.failed, done.rewritten) == ("near", 2, 2, 1)
    assert [each.name for each in done.failures] == ["x0", "x1"]


async def test_a_conflict_ends_the_agreement(server: Server) -> None:
    """A conflict is not retried."""
    server.answers = [status.conflict(GroupResource("", "m"), "m", why="moved")]
    with pytest.raises(AgreementLost, match="moved"):
        await server.page(server.rewriting())
    assert len(server.requests) == 1


async def test_temporary_errors_are_retried(server: Server) -> None:
    """Retries respect Retry-After and are bounded."""
    busy = status.too_many_requests("busy", retry_after_seconds=7)
    server.answers = [busy, status.internal("oh"), status.unavailable("down")]
    await server.page(server.rewriting())
    assert len(server.requests) == 4
    assert 7 <= server.clock.monotonic() < 8
    server.answers = [status.unavailable("down") for _ in range(99)]
    with pytest.raises(ServiceUnavailable):
        await server.page(server.rewriting(replace(QUICK, page_attempts_max=3)))
    assert len(server.requests) == 4 + 3


async def test_permanent_errors_are_not_retried(server: Server) -> None:
    """A permanent error is raised after one request."""
    server.answers = [status.bad_request("no")]
    with pytest.raises(StatusError):
        await server.page(server.rewriting())
    assert len(server.requests) == 1


async def test_another_target(server: Server) -> None:
    """Without a requested target, the server must keep to the hash in discovery and to its first
    target."""
    shown: dict[str, Any] = {
        "target_api_version": "",
        "epoch": None,
        "target_hash": storage_version_hash(GroupVersionKind.of(TARGET, "Widget")),
    }
    rewriting = server.rewriting(**shown)
    await server.page(rewriting)
    await server.page(rewriting)
    assert server.requests == [{"limit": 5}, {"limit": 5, "target": TARGET}]
    for again in (rewriting, server.rewriting(**shown), server.rewriting()):
        server.answers = [{**PAGE, "target": "example.com/v1"}]
        with pytest.raises(AgreementLost):
            await server.page(again)


async def test_the_limit_follows_the_latency(server: Server) -> None:
    """Pages grow until they take about a second, and shrink when the server slows down."""
    rewriting = server.rewriting(EngineOptions())
    server.take = lambda limit: limit / 4000
    seconds = 0.0
    for _ in range(6):
        began = server.clock.monotonic()
        await server.page(rewriting)
        seconds = server.clock.monotonic() - began
    assert 0.5 <= seconds <= 1.5
    server.take = lambda limit: limit / 100
    for _ in range(3):
        began = server.clock.monotonic()
        await server.page(rewriting)
        seconds = server.clock.monotonic() - began
    assert seconds <= 1.5
    server.take = lambda _limit: 30.0
    for _ in range(5):
        await server.page(rewriting)
    assert rewriting.limit == LIMIT_MIN
    server.take = lambda _limit: 0.0
    for _ in range(9):
        await server.page(rewriting)
    assert rewriting.limit == EngineOptions().page_limit_max


async def test_small_pages_stay_small(server: Server) -> None:
    """A limit chosen by the user does not grow because pages take long."""
    rewriting = server.rewriting(EngineOptions(page_limit_first=5, page_limit_max=5))
    server.take = lambda _limit: 30.0
    await server.page(rewriting)
    assert rewriting.limit == 5


async def test_a_rate_is_kept(server: Server) -> None:
    """Pages are no larger than the rate allows per page, and are spaced accordingly."""
    patch = PatchOptions(objects_per_second=20)
    rewriting = server.rewriting(EngineOptions(patch=patch))
    for _ in range(4):
        await server.page(rewriting)
    assert [each["limit"] for each in server.requests] == [20] * 4
    assert 3 <= server.clock.monotonic() < 3.1
    server.requests.clear()
    small = EngineOptions(page_limit_first=5, page_limit_max=5, patch=patch)
    rewriting, began = server.rewriting(small), server.clock.monotonic()
    for _ in range(5):
        await server.page(rewriting)
    assert [each["limit"] for each in server.requests] == [5] * 5
    assert 1 <= server.clock.monotonic() - began < 1.1
