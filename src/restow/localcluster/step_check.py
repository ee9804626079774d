"""The check before each step of an upgrade: can a server be started with another release?

`CheckStep` is the interface: a cluster and a target in, blockers and warnings out, no changes.
`check_step` applies the rules of preflight, and adds the facts of the supervisor: which servers
exist, which are not ready, and that all of them keep their options.

Not here: the rules (`restow.migration.preflight`), and the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from restow.client import ApiClient
from restow.kinds.releases import Release
from restow.migration.preflight import (
    AbsentServer,
    ClusterView,
    PreflightFinding,
    PreflightReport,
    judge,
    read_cluster,
    shipped_targets,
    target_of_release,
)

__all__ = ["CheckStep", "PreflightFinding", "PreflightReport", "Situation", "check_step"]


class CheckStep(Protocol):
    """Checks a step; it is safe if the report has no blockers."""

    async def __call__(
        self, client: ApiClient, *, target: Release, situation: Situation
    ) -> PreflightReport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts about a step that the supervisor has and the API has not."""

    is_begun: bool
    """The upgrade or rollback has started, so that different releases are expected."""
    absent: tuple[tuple[str, Release], ...] = ()
    """Servers that are not ready, with their releases: they may become ready at any time."""


async def check_step(
    client: ApiClient, *, target: Release, situation: Situation
) -> PreflightReport:
    """Run preflight on the current cluster. Raises ClientError, StatusError."""
    # All servers are started with the same options, so the target has the keys of the others.
    wanted = replace(target_of_release(target), keeps_keys=True)
    view = await read_cluster(client, wanted)
    # KEP-2343 4.18: checked before each step of an upgrade
    return judge(
        with_situation(view, situation),
        wanted,
        releases=lambda: (replace(each, keeps_keys=True) for each in shipped_targets()),
    )


def with_situation(view: ClusterView, situation: Situation) -> ClusterView:
    """The view, with the facts of the supervisor added."""
    absent = tuple(
        AbsentServer(name=name, release=target_of_release(release))
        for name, release in situation.absent
    )
    return replace(view, is_rolling=situation.is_begun, absent=absent)
