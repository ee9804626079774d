"""The steps of an upgrade, and their checks."""

from __future__ import annotations

import asyncio
from typing import Self

import msgspec
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.client import ApiClient, ClientError
from restow.kinds.releases import Release, default_release, shipped_release
from restow.localcluster import rolling_upgrade
from restow.localcluster.cluster_facts import ClusterFacts, ResourceFacts, ServerMember
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.messages import ControlRequest, ProcessOverview, ProcessView
from restow.localcluster.rolling_upgrade import (
    RollingUpgrade,
    Step,
    changing_resources,
    not_ready,
    plan_rollback,
    plan_upgrade,
    situation_of,
)
from restow.localcluster.state import Upgrade
from restow.localcluster.step_check import PreflightReport, Situation

WIDGETS = GroupResource("example.com", "widgets")
V1, V2 = "example.com/v1", "example.com/v2"


def overview(*releases: str, upgrade: Upgrade | None = None) -> ProcessOverview:
    return ProcessOverview(
        pid=1,
        data_dir="d",
        kubeconfig="k",
        front_url="https://127.0.0.1:6443",
        store="sqlite",
        is_ready=True,
        upgrade=upgrade,
        processes=tuple(
            ProcessView(name=f"server-{index}", state="ready", index=index, release=release)
            for index, release in enumerate(releases)
        ),
    )


def test_an_upgrade_takes_the_servers_in_order() -> None:
    """Servers that run the target already are skipped, so that a paused upgrade can continue."""
    assert plan_upgrade(overview("x+1", "x", "x"), "x+1") == [
        Step(1, "x", "x+1"),
        Step(2, "x", "x+1"),
    ]
    assert plan_upgrade(overview("x", "x", "x"), "x+1", server=2) == [Step(2, "x", "x+1")]
    assert plan_upgrade(overview("x", "x"), "x") == []


def test_a_rollback_takes_them_in_the_other_order() -> None:
    """Each server gets its previous release, the last one first."""
    upgrade = Upgrade(target="x+1", origins=("x", "x", "x"))
    found = plan_rollback(overview("x+1", "x+1", "x", upgrade=upgrade))
    assert found == [Step(1, "x+1", "x"), Step(0, "x+1", "x")]


def test_impossible_plans_are_rejected() -> None:
    """An unknown server, and a rollback without an upgrade."""
    with pytest.raises(ClusterRefused, match="there is no server 3"):
        plan_upgrade(overview("x", "x"), "x+1", server=3)
    with pytest.raises(ClusterRefused, match="nothing to roll back"):
        plan_rollback(overview("x", "x"))


def with_state(found: ProcessOverview, index: int, state: str, note: str = "") -> ProcessOverview:
    """The overview, with one server in another state."""
    return msgspec.structs.replace(
        found,
        processes=tuple(
            msgspec.structs.replace(each, state=state, note=note) if each.index == index else each
            for each in found.processes
        ),
    )


@pytest.mark.parametrize("state", ["failed", "restarting", "stopped"])
def test_a_server_that_does_not_run_is_started_again(state: str) -> None:
    """Also with the release that it already has: by an upgrade or a rollback to it."""
    down = with_state(overview("x+1", "x"), 0, state)
    assert plan_upgrade(down, "x+1") == [Step(0, "x+1", "x+1"), Step(1, "x", "x+1")]
    assert plan_upgrade(down, "x+1", server=0)[0].is_restart
    undone = msgspec.structs.replace(down, upgrade=Upgrade(target="x+2", origins=("x+1", "x")))
    assert plan_rollback(undone) == [Step(0, "x+1", "x+1")]
    with pytest.raises(ClusterRefused, match=r"restow upgrade --to x\+1 --server 0"):
        plan_rollback(down)


@pytest.mark.parametrize("state", ["starting", "not ready", "ready"])
def test_a_server_that_runs_is_not_restarted(state: str) -> None:
    """A server that is not ready yet, or no longer, has a process that may still serve."""
    assert plan_upgrade(with_state(overview("x", "x"), 0, state), "x") == []


async def test_a_restart_changes_no_release() -> None:
    """The supervisor restarts it, so that the last upgrade can still be rolled back."""
    asked: list[ControlRequest] = []
    release = shipped_release("x+1")
    member = ServerMember("a", "127.0.0.1:7000", release.name)

    class Asked(Told):
        async def ask(self, request: ControlRequest) -> ProcessOverview:
            asked.append(request)
            return self._found

    class Seen(RollingUpgrade):
        async def look(self) -> ClusterFacts:
            return ClusterFacts((member,), {})

    processes = (ProcessView(name="server-0", state="ready", index=0, port=7000, release="x+1"),)
    roller = Seen(
        Asked(msgspec.structs.replace(overview(), processes=processes)),  # type: ignore[arg-type]
        Reply(),  # type: ignore[arg-type]
        open_client=lambda _: Reply(),  # type: ignore[arg-type,return-value]
        check=not_asked,
        release_of=shipped_release,
    )
    step = Step(0, "x+1", "x+1")
    assert step.is_restart
    await roller.take(step, is_rollback=False)
    assert asked == [ControlRequest(verb="restart", name="server-0")]


async def not_asked(client: ApiClient, *, target: Release, situation: Situation) -> PreflightReport:
    """A check that must not be called."""
    raise AssertionError((client, target, situation))


@pytest.mark.parametrize("names", [("x", "x+1"), ("x+1", "x+2"), ("x", "builtin")])
def test_the_matrix_shows_changes(names: tuple[str, ...]) -> None:
    """A resource is shown if its versions differ, or if it is in one release only."""
    assert changing_resources(shipped_release(name) for name in names) == [WIDGETS]


def test_equal_releases_change_nothing() -> None:
    """Nothing is shown for equal releases."""
    assert changing_resources([default_release(), default_release()]) == []


def facts(**encodings: str) -> ResourceFacts:
    return ResourceFacts(encodings=encodings)


def test_a_server_has_arrived_when_it_has_reported() -> None:
    """Its lease has the release, and each of its resources has its server entry."""
    release = shipped_release("x+1")
    old, new = ServerMember("a", "127.0.0.1:7000", "x"), ServerMember("b", "127.0.0.1:7000", "x+1")
    assert not ClusterFacts((old,), {WIDGETS: facts(a=V1)}).has_reported(7000, release)
    assert not ClusterFacts((old, new), {WIDGETS: facts(a=V1)}).has_reported(7000, release)
    world = ClusterFacts((old, new), {WIDGETS: facts(a=V1, b=V1)})
    assert world.has_reported(7000, release)
    assert not world.has_reported(7001, release)


def test_of_two_incarnations_the_one_that_writes_is_shown() -> None:
    """A server that has just crashed may still have a lease beside that of its successor."""
    old, new = ServerMember("a", "127.0.0.1:7000", "x"), ServerMember("b", "127.0.0.1:7000", "x+1")
    world = ClusterFacts((old, new), {WIDGETS: facts(b=V2)})
    assert world.member_at(7000) == new
    assert world.reports_of(new) == {WIDGETS: V2}
    assert world.member_at(7001) is None


@pytest.mark.parametrize(
    ("found", "step", "expected"),
    [
        (overview("x", "x"), Step(0, "x", "x+1"), False),
        (overview("x+1", "x"), Step(1, "x", "x+1"), True),
        (
            overview("x+1", "x+1", upgrade=Upgrade(target="x+1", origins=("x", "x"))),
            Step(1, "x+1", "x"),
            True,
        ),
        (
            overview("x+1", "x+1", upgrade=Upgrade(target="x+1", origins=("x", "x"))),
            Step(0, "x+1", "x+2"),
            False,
        ),
    ],
)
def test_the_situation_of_a_step(found: ProcessOverview, step: Step, expected: bool) -> None:
    """The first step begins an upgrade; later ones, and those of a rollback, continue it."""
    assert situation_of(found, step, shipped_release) == Situation(is_begun=expected)


def test_a_step_waits_for_servers_that_are_not_ready() -> None:
    """While another server is not ready no step is taken, unless that server is accepted; its
    release is checked in both cases."""
    ready = overview("x+1", "x+1", "x")
    away = msgspec.structs.replace(
        ready,
        processes=tuple(
            msgspec.structs.replace(each, state="not ready") if each.index == 2 else each
            for each in ready.processes
        ),
    )
    step = Step(0, "x+1", "x+2")
    assert not_ready(ready, step, ()) == []
    (blocker,) = not_ready(away, step, ())
    assert blocker.what == "server 2 is not ready (not ready, release x)"
    assert "logs/server-2.log" in blocker.advice
    assert "repeat the command with --ignore-not-ready 2" in blocker.advice
    assert not_ready(away, step, (2,)) == []
    assert not_ready(away, Step(2, "x", "x+1"), ()) == []
    assert situation_of(away, step, shipped_release).absent == (("server 2", shipped_release("x")),)


class Reply:
    """A client of one server: ready, silent, or not ready."""

    runtime = Runtime.system()

    def __init__(self, answer: str = "ok") -> None:
        self._answer = answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def text(self, path: str) -> str:
        assert path == "/readyz"
        if self._answer == "silent":
            await asyncio.Event().wait()
        if self._answer != "ok":
            raise ClientError(self._answer)
        return self._answer


class Told:
    """A supervisor that reports all servers as ready."""

    def __init__(self, found: ProcessOverview) -> None:
        self._found = found

    async def overview(self) -> ProcessOverview:
        return self._found


@pytest.mark.parametrize("answer", ["silent", "connection refused"])
@pytest.mark.parametrize("is_late", [False, True])
async def test_every_server_is_asked_before_a_step(
    monkeypatch: pytest.MonkeyPatch, answer: str, is_late: bool
) -> None:
    """A paused server blocks the step of another one, also if it was paused during the check; it
    does not block its own step, nor one for which it is accepted."""
    monkeypatch.setattr(rolling_upgrade, "READY_SECONDS_MAX", 0.05)
    answers = {0: "ok", 1: "ok", 2: "ok" if is_late else answer}
    asked: list[Situation] = []

    async def check(client: ApiClient, *, target: Release, situation: Situation) -> PreflightReport:
        assert client is not None
        asked.append(situation)
        answers[2] = answer
        return PreflightReport(target=target.name)

    roller = RollingUpgrade(
        Told(overview("x", "x", "x")),  # type: ignore[arg-type]
        Reply(),  # type: ignore[arg-type]
        open_client=lambda index: Reply(answers[index]),  # type: ignore[arg-type,return-value]
        check=check,
        release_of=shipped_release,
    )
    report = await roller.check(Step(0, "x", "x+1"))
    (blocker,) = report.blockers
    reason = "no response within 0.05 s" if answer == "silent" else answer
    assert blocker.what == f"server 2 is not ready (not ready: {reason}, release x)"
    assert "kill -CONT" in blocker.advice
    assert [name for name, _ in asked[0].absent] == ([] if is_late else ["server 2"])
    assert (await roller.check(Step(0, "x", "x+1"), accepted=(2,))).is_safe
    assert (await roller.check(Step(2, "x", "x+1"))).is_safe
