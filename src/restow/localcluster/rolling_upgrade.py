"""A rolling upgrade: the order of servers, the check and the execution of each step.

    plan_upgrade / plan_rollback -> steps -> RollingUpgrade.take, one at a time

One server at a time, so that the others continue to serve and a failed step affects one server.
Each step is checked first (`step_check`), with fresh facts, because every step changes them. Not
here: the output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from restow.apimachinery.names import GroupResource
from restow.apimachinery.status_error import StatusError
from restow.client import ApiClient, ClientError
from restow.kinds.releases import Release
from restow.localcluster.cluster_facts import ClusterFacts, read_world
from restow.localcluster.control_client import ControlClient
from restow.localcluster.errors import ClusterFailed, ClusterRefused
from restow.localcluster.managed_process import ProcessState
from restow.localcluster.messages import ControlRequest, ProcessOverview, ProcessView
from restow.localcluster.step_check import CheckStep, PreflightFinding, PreflightReport, Situation
from restow.migration.preflight import Reason

READY_SECONDS_MAX: Final = 3.0
"""Timeout of the readiness check before a step."""
REPORT_SECONDS_MAX: Final = 60.0
REPORT_POLL_SECONDS: Final = 0.2
COLUMNS_MAX: Final = 6
NOT_RUNNING: Final = frozenset(
    each.value for each in (ProcessState.FAILED, ProcessState.PAUSED, ProcessState.STOPPED)
)
"""States of a server without a process: failed, stopped, or waiting for a restart."""

ReleaseOf = Callable[[str], Release]
OpenClient = Callable[[int], ApiClient]
"""Opens a client of one server, by number."""


@dataclass(frozen=True, slots=True)
class Step:
    """The change of one server from one release to another, or its restart with the same one."""

    server: int
    origin: str
    target: str
    file: str | None = None
    """The original file of a target that is kept as a copy."""

    @property
    def is_restart(self) -> bool:
        """Whether the server has the release already, and does not run. Such a step is not checked:
        it changes no release, and the supervisor restarts servers at any time."""
        return self.origin == self.target


def plan_upgrade(
    overview: ProcessOverview, target: str, *, server: int | None = None, file: str | None = None
) -> list[Step]:
    """The servers that do not run the target, or do not run at all, in order.

    Raises ClusterRefused.
    """
    return [
        Step(each.index or 0, each.release, target, file)
        for each in _chosen(overview, server)
        if each.release != target or each.state in NOT_RUNNING
    ]


def plan_rollback(overview: ProcessOverview, *, server: int | None = None) -> list[Step]:
    """The servers to roll back, including those that do not run, last one first.

    Raises ClusterRefused.
    """
    upgrade = overview.upgrade
    if upgrade is None:
        down = [
            f"; server {each.index} is not running: start it with restow upgrade --to"
            f" {each.release} --server {each.index}"
            for each in _chosen(overview, server)
            if each.state in NOT_RUNNING
        ]
        raise ClusterRefused(f"nothing to roll back: there was no upgrade{''.join(down)}")
    return [
        Step(index, each.release, upgrade.origins[index])
        for each in reversed(_chosen(overview, server))
        if (index := each.index or 0) < len(upgrade.origins)
        and (each.release != upgrade.origins[index] or each.state in NOT_RUNNING)
    ]


def _chosen(overview: ProcessOverview, server: int | None) -> Sequence[ProcessView]:
    if server is None:
        return overview.servers
    chosen = [each for each in overview.servers if each.index == server]
    if not chosen:
        raise ClusterRefused(
            f"there is no server {server}: servers are numbered 0 to {len(overview.servers) - 1}"
        )
    return chosen


def situation_of(overview: ProcessOverview, step: Step, release_of: ReleaseOf) -> Situation:
    """The facts about a step that the API does not have."""
    upgrade = overview.upgrade
    is_return = (
        upgrade is not None
        and step.server < len(upgrade.origins)
        and step.target == upgrade.origins[step.server]
    )
    runs_it = any(each.release == step.target for each in overview.servers)
    return Situation(
        is_begun=runs_it or is_return,
        absent=tuple(
            (f"server {each.index}", release_of(each.release)) for each in _absent(overview, step)
        ),
    )


def _absent(overview: ProcessOverview, step: Step) -> list[ProcessView]:
    """The other servers that are not ready."""
    return [
        each
        for each in overview.servers
        if each.index != step.server and each.state != ProcessState.READY.value
    ]


def not_ready(
    overview: ProcessOverview, step: Step, accepted: Collection[int]
) -> list[PreflightFinding]:
    """Reject a step while another server is not ready: it would leave fewer servers, and what that
    server reads and writes is known only from its release."""
    return [
        PreflightFinding(
            reason=Reason.NOT_READY,
            what=not_ready_text(overview, each),
            why="the step would leave one server fewer, and that server may be unable to start"
            " again",
            advice=f"check its log (logs/server-{each.index}.log), and {_remedy(each)}; or continue"
            f" without it: repeat the command with --ignore-not-ready {each.index}",
        )
        for each in _absent(overview, step)
        if each.index not in accepted
    ]


def _remedy(server: ProcessView) -> str:
    if server.state in NOT_RUNNING:
        return (
            "fix the error in it, then start the server again: restow upgrade --to"
            f" {server.release} --server {server.index}"
        )
    return (
        f"wait until it is ready; if the process was paused, continue it (kill -CONT {server.pid})"
    )


def not_ready_text(overview: ProcessOverview, server: ProcessView) -> str:
    """A message about a server that is not ready."""
    state = f"{server.state}: {server.note}" if server.note else server.state
    return f"server {server.index} is not ready ({state}, release {overview.label(server.release)})"


def _server_to_query(overview: ProcessOverview, target: str) -> int:
    """A server that is ready, preferably one that runs the target, which reads most versions."""
    ready = [each for each in overview.servers if each.state == ProcessState.READY.value]
    if not ready:
        raise ClusterFailed("no server is ready: check their logs and restow up")
    return max(ready, key=lambda each: each.release == target).index or 0


def changing_resources(releases: Iterable[Release]) -> list[GroupResource]:
    """Resources whose stored or readable versions differ between these releases."""
    forms: dict[GroupResource, list[object]] = {}
    count = 0
    for release in releases:
        count += 1
        for kind in release.kinds:
            form = (kind.storage_api_version, kind.decodable_versions)
            forms.setdefault(kind.definition.group_resource, []).append(form)
    changing = [name for name, found in forms.items() if len(found) < count or len(set(found)) > 1]
    return sorted(changing)[:COLUMNS_MAX]


class RollingUpgrade:
    """Checks and takes the steps."""

    def __init__(
        self,
        control: ControlClient,
        client: ApiClient,
        *,
        open_client: OpenClient,
        check: CheckStep,
        release_of: ReleaseOf,
    ) -> None:
        """`client` connects to the front port; `open_client` returns a client of one server."""
        self._control = control
        self._client = client
        self._open_client = open_client
        self._check = check
        self._release_of = release_of

    async def check(self, step: Step, *, accepted: Collection[int] = ()) -> PreflightReport:
        """Check whether the step is safe. Raises ClusterFailed if the cluster cannot be reached.

        `accepted` are servers that may be unavailable; their releases are checked anyway.

        Every server is probed directly, because the supervisor detects a paused server only after
        several probes. They are probed again at the end, since a scan takes some time.
        """
        overview, release = await self._probed(), self._release_of(step.target)
        situation = situation_of(overview, step, self._release_of)
        queried = _server_to_query(overview, step.target)
        try:
            async with self._open_client(queried) as client:
                report = await self._check(client, target=release, situation=situation)
        except (ClientError, StatusError) as error:
            if away := not_ready(await self._probed(), step, accepted):
                return PreflightReport(target=step.target, blockers=tuple(away))
            raise ClusterFailed(f"the cluster cannot be reached: {error}") from error
        away = not_ready(await self._probed(), step, accepted)
        return replace(report, blockers=(*away, *report.blockers))

    async def _probed(self) -> ProcessOverview:
        """The supervisor's overview, where servers that do not respond now count as not ready."""
        overview = await self._control.overview()
        found = await asyncio.gather(*(self._probe(each) for each in overview.processes))
        return msgspec.structs.replace(overview, processes=tuple(found))

    async def _probe(self, process: ProcessView) -> ProcessView:
        if process.index is None or process.state != ProcessState.READY.value:
            return process
        note = ""
        try:
            async with (
                self._client.runtime.clock.timeout(READY_SECONDS_MAX),
                self._open_client(process.index) as client,
            ):
                await client.text("/readyz")
        except TimeoutError:
            note = f"no response within {READY_SECONDS_MAX:g} s"
        except (ClientError, StatusError) as error:
            note = str(error).partition("\n")[0]
        if not note:
            return process
        return msgspec.structs.replace(process, state=ProcessState.UNREADY.value, note=note)

    async def overview(self) -> ProcessOverview:
        """The current overview of the supervisor."""
        return await self._control.overview()

    async def take(self, step: Step, *, is_rollback: bool) -> ProcessOverview:
        """Take a step; returns when the server is ready and has reported. Raises ClusterError."""
        request = ControlRequest(
            verb="roll",
            server=step.server,
            release=None if is_rollback else step.target,
            release_file=None if is_rollback else step.file,
            is_rollback=is_rollback,
        )
        if step.is_restart:
            request = ControlRequest(verb="restart", name=f"server-{step.server}")
        overview = await self._control.ask(request)
        port = next(each.port for each in overview.servers if each.index == step.server)
        await self._await_report(step, port)
        return overview

    async def look(self) -> ClusterFacts:
        """Read the current facts from the API. Raises ClusterFailed."""
        try:
            return await read_world(self._client)
        except (ClientError, StatusError) as error:
            raise ClusterFailed(f"the cluster cannot be reached: {error}") from error

    async def _await_report(self, step: Step, port: int | None) -> None:
        clock, release = self._client.runtime.clock, self._release_of(step.target)
        deadline = clock.monotonic() + REPORT_SECONDS_MAX
        while not (await self.look()).has_reported(port, release):
            if clock.monotonic() > deadline:
                raise ClusterFailed(
                    f"server {step.server} runs, but has not reported its storage versions as"
                    f" {step.target} within {REPORT_SECONDS_MAX:g} s: check its log and"
                    " kubectl get storageversions"
                )
            await clock.sleep(REPORT_POLL_SECONDS)
