"""An upgrade, step by step: which server is next, what is seen of it, when it has arrived.

    plan_upgrade / plan_rollback -> steps -> Roller.take, one at a time

One server at a time, so that the others serve meanwhile and a step that fails costs one server.
Before each step it is judged whether it is safe (`step_check`); the facts are read anew each time,
since each step changes them. Not here: what is printed.
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
"""Within which a server must say that it is ready, before a step."""
REPORT_SECONDS_MAX: Final = 60.0
REPORT_POLL_SECONDS: Final = 0.2
COLUMNS_MAX: Final = 6
NOT_RUNNING: Final = frozenset(
    each.value for each in (ProcessState.FAILED, ProcessState.PAUSED, ProcessState.STOPPED)
)
"""States of a server that has no process: given up, or between two attempts to start."""

ReleaseOf = Callable[[str], Release]
OpenClient = Callable[[int], ApiClient]
"""A client of one server, by its number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One server, from one release to another; or started again with the one that it has."""

    server: int
    origin: str
    target: str
    file: str | None = None
    """Where a target that is kept as a file was copied from."""

    @property
    def is_restart(self) -> bool:
        """Whether the server has the release already, and does not run. Such a step is not checked:
        it changes no release, and the supervisor starts servers again at any time."""
        return self.origin == self.target


def plan_upgrade(
    overview: ProcessOverview, target: str, *, server: int | None = None, file: str | None = None
) -> list[Step]:
    """The servers that do not run the target yet, or do not run at all, in order.

    Raises ClusterRefused.
    """
    return [
        Step(each.index or 0, each.release, target, file)
        for each in _chosen(overview, server)
        if each.release != target or each.state in NOT_RUNNING
    ]


def plan_rollback(overview: ProcessOverview, *, server: int | None = None) -> list[Step]:
    """The servers that run the last upgrade's target, or do not run at all, last one first.

    Raises ClusterRefused.
    """
    upgrade = overview.upgrade
    if upgrade is None:
        down = [
            f"; server {each.index} does not run: start it again with restow upgrade --to"
            f" {each.release} --server {each.index}"
            for each in _chosen(overview, server)
            if each.state in NOT_RUNNING
        ]
        raise ClusterRefused(
            f"there is nothing to roll back: no upgrade was made or begun{''.join(down)}"
        )
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
            f"there is no server {server}: they have the numbers 0 to {len(overview.servers) - 1}"
        )
    return chosen


def situation_of(overview: ProcessOverview, step: Step, release_of: ReleaseOf) -> Situation:
    """What is known of a step besides what the cluster says."""
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
    """A step is refused while another server is not ready: fewer would serve, and what that server
    reads and writes is known by its release alone."""
    return [
        PreflightFinding(
            reason=Reason.NOT_READY,
            what=not_ready_text(overview, each),
            why="a step while another server is away leaves one server less, and may leave that one"
            " unable to come back",
            advice=f"see its log (logs/server-{each.index}.log), and {_remedy(each)}; or accept it,"
            f" with the same command with --ignore-not-ready {each.index}",
        )
        for each in _absent(overview, step)
        if each.index not in accepted
    ]


def _remedy(server: ProcessView) -> str:
    if server.state in NOT_RUNNING:
        return (
            "correct what it says, then start the server again: restow upgrade --to"
            f" {server.release} --server {server.index}"
        )
    return (
        f"wait until it is ready; if the process was paused, continue it (kill -CONT {server.pid})"
    )


def not_ready_text(overview: ProcessOverview, server: ProcessView) -> str:
    """A server that is not ready, for people."""
    state = f"{server.state}: {server.note}" if server.note else server.state
    return f"server {server.index} is not ready ({state}, release {overview.label(server.release)})"


def _witness(overview: ProcessOverview, target: str) -> int:
    """A server that is ready; one that runs the target knows the most of it."""
    ready = [each for each in overview.servers if each.state == ProcessState.READY.value]
    if not ready:
        raise ClusterFailed("no server is ready: see the logs, and restow up")
    return max(ready, key=lambda each: each.release == target).index or 0


def changing_resources(releases: Iterable[Release]) -> list[GroupResource]:
    """Resources that are stored or read differently in these releases, or are not in all."""
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
    """Takes steps, and watches how the cluster changes by them."""

    def __init__(
        self,
        talk: ControlClient,
        client: ApiClient,
        *,
        open_client: OpenClient,
        check: CheckStep,
        release_of: ReleaseOf,
    ) -> None:
        """The client is for all servers, as many as there are; `open_client` is for one."""
        self._talk = talk
        self._client = client
        self._open_client = open_client
        self._check = check
        self._release_of = release_of

    async def check(self, step: Step, *, accepted: Collection[int] = ()) -> PreflightReport:
        """Whether the step is safe. Raises ClusterFailed when the cluster cannot be asked.

        `accepted` are servers that may be away: their releases count all the same.

        Every server is asked whether it is ready: the supervisor learns that a server was paused
        only after several probes. They are asked again at the end, since a scan takes its time.
        """
        overview, release = await self._probed(), self._release_of(step.target)
        situation = situation_of(overview, step, self._release_of)
        witness = _witness(overview, step.target)
        try:
            async with self._open_client(witness) as client:
                report = await self._check(client, target=release, situation=situation)
        except (ClientError, StatusError) as error:
            if away := not_ready(await self._probed(), step, accepted):
                return PreflightReport(target=step.target, blockers=tuple(away))
            raise ClusterFailed(f"the cluster cannot be asked: {error}") from error
        away = not_ready(await self._probed(), step, accepted)
        return replace(report, blockers=(*away, *report.blockers))

    async def _probed(self) -> ProcessOverview:
        """What the supervisor says, and a server that does not answer now is not ready."""
        overview = await self._talk.overview()
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
            note = f"no answer within {READY_SECONDS_MAX:g} s"
        except (ClientError, StatusError) as error:
            note = str(error).partition("\n")[0]
        if not note:
            return process
        return msgspec.structs.replace(process, state=ProcessState.UNREADY.value, note=note)

    async def overview(self) -> ProcessOverview:
        """What the supervisor says now."""
        return await self._talk.overview()

    async def take(self, step: Step, *, is_rollback: bool) -> ProcessOverview:
        """Roll one server; returns when it is ready and has reported. Raises ClusterError."""
        request = ControlRequest(
            verb="roll",
            server=step.server,
            release=None if is_rollback else step.target,
            release_file=None if is_rollback else step.file,
            is_rollback=is_rollback,
        )
        if step.is_restart:
            request = ControlRequest(verb="restart", name=f"server-{step.server}")
        overview = await self._talk.ask(request)
        port = next(each.port for each in overview.servers if each.index == step.server)
        await self._await_report(step, port)
        return overview

    async def look(self) -> ClusterFacts:
        """What the servers say now. Raises ClusterFailed."""
        try:
            return await read_world(self._client)
        except (ClientError, StatusError) as error:
            raise ClusterFailed(f"the cluster cannot be asked: {error}") from error

    async def _await_report(self, step: Step, port: int | None) -> None:
        clock, release = self._client.runtime.clock, self._release_of(step.target)
        deadline = clock.monotonic() + REPORT_SECONDS_MAX
        while not (await self.look()).has_reported(port, release):
            if clock.monotonic() > deadline:
                raise ClusterFailed(
                    f"server {step.server} runs, and does not report how it writes as"
                    f" {step.target} within {REPORT_SECONDS_MAX:g} s: see its log and"
                    " kubectl get storageversions"
                )
            await clock.sleep(REPORT_POLL_SECONDS)
