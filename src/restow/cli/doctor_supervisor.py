"""Checks of `restow doctor` on a cluster of `restow up`: its processes and release files.

Imported only where there is such a cluster: it needs the extra `server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from restow.aio import Runtime
from restow.cli.doctor_findings import Finding, error, ok, unseen, warning
from restow.localcluster.control_client import ControlClient
from restow.localcluster.errors import ClusterError, ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.lock import supervisor_of
from restow.localcluster.messages import ProcessOverview
from restow.localcluster.release_files import (
    at_layout,
    copy_problem,
    has_copies,
    releases_in_use,
    rollback_notices,
)
from restow.localcluster.rolling_upgrade import NOT_RUNNING
from restow.localcluster.state import ClusterState, read_state

SUPERVISOR_SECONDS_MAX: Final = 3.0


def examine_releases(data_dir: Path) -> list[Finding]:
    """Check the release files that a cluster of `restow up` keeps."""
    layout = Layout(data_dir)
    try:
        state = read_state(layout.state)
    except ClusterRefused:
        return []  # reported already
    if state is None or not has_copies(state):
        return []
    return list(judge_releases(layout, state, is_running=supervisor_of(layout) is not None))


def judge_releases(layout: Layout, state: ClusterState, *, is_running: bool) -> Iterator[Finding]:
    """Check that servers can start from the copies of release files that a cluster keeps."""
    check, state = "release files", at_layout(state, layout)
    found = False
    for release in releases_in_use(state):
        if problem := copy_problem(release, state.release_files):
            text, _, advice = problem.rpartition(": ")
            found = True
            if is_running:
                yield warning(
                    check, text, "no action needed: the running `restow up` writes the copy again"
                )
            else:
                yield error(check, f"no server can start from {text}", advice)
    for notice in rollback_notices(state):
        text, _, advice = notice.rpartition(": ")
        found = True
        yield warning(
            check, text, f"{advice}; or upgrade to another release: restow upgrade --to NAME"
        )
    if not found:
        yield ok(check, "servers can start from every release file that the cluster keeps")


async def examine_processes(data_dir: Path, runtime: Runtime) -> list[Finding]:
    """Check that the processes of `restow up` run. A server that is no longer restarted has no
    lease, so the other servers do not show it."""
    layout = Layout(data_dir)
    if supervisor_of(layout) is None:
        return []
    try:
        async with runtime.clock.timeout(SUPERVISOR_SECONDS_MAX):
            overview = await ControlClient(data_dir).overview()
    except (ClusterError, TimeoutError) as problem:
        return [unseen("processes", f"`restow up` does not respond: {str(problem) or 'timeout'}")]
    return judge_processes(layout, overview)


def judge_processes(layout: Layout, overview: ProcessOverview) -> list[Finding]:
    """Report the processes that do not run and are not restarted."""
    found = []
    for each in overview.processes:
        if each.state not in NOT_RUNNING:
            continue
        advice = f"fix the error in its log ({layout.log(each.name)}), then "
        if each.index is None:
            advice += "restart the cluster: stop `restow up`, and run it again"
        else:
            release = overview.label(each.release)
            advice += f"start it: restow upgrade --to {release} --server {each.index}"
        found.append(error("processes", f"{each.name} is not running: {each.note}", advice))
    return found or [ok("processes", f"all {len(overview.processes)} are running")]
