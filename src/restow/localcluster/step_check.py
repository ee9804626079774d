"""Whether a server may be started with another release: asked before each step of an upgrade.

`CheckStep` is the seam: a cluster and a target in, blockers and warnings out, nothing changed.
`check_step` asks the rules of preflight, and adds what the supervisor knows: which servers there
are, ready or not, and that all of them keep their options.

Not here: the rules themselves (`restow.migration.preflight`), and what is printed.
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
    """A rule for steps; a report without blockers: it is safe."""

    async def __call__(
        self, client: ApiClient, *, target: Release, situation: Situation
    ) -> PreflightReport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the supervisor knows of a step, and the cluster does not say."""

    is_begun: bool
    """The upgrade or rollback is under way, so that servers differ, as they must."""
    absent: tuple[tuple[str, Release], ...] = ()
    """Servers that are not ready, with their releases: they may come back at any time."""


async def check_step(
    client: ApiClient, *, target: Release, situation: Situation
) -> PreflightReport:
    """What preflight says of the cluster as it is now. Raises ClientError, StatusError."""
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
    """The view, with what the supervisor knows."""
    absent = tuple(
        AbsentServer(name=name, release=target_of_release(release))
        for name, release in situation.absent
    )
    return replace(view, is_rolling=situation.is_begun, absent=absent)
