"""Whether a server may be started with another release: asked before each step of an upgrade.

`CheckStep` is the seam: a cluster and a target in, what is in the way out, nothing changed.
`check_step` asks the rules of preflight, which `restow preflight` tells without an upgrade.

Not here: the rules themselves (`restow.controllers.preflight`), and what is told to the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from restow.client import ApiClient
from restow.controllers.preflight import (
    Blocker,
    ClusterView,
    blockers,
    read_cluster,
    target_of_release,
)
from restow.controllers.preflight.values import UNKNOWN
from restow.kinds.releases import Release

__all__ = ["Blocker", "CheckStep", "Situation", "check_step"]


class CheckStep(Protocol):
    """A rule for steps; nothing in the way: it is safe."""

    async def __call__(
        self, client: ApiClient, *, target: Release, situation: Situation
    ) -> Sequence[Blocker]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the supervisor knows of a step, and the cluster does not say."""

    is_begun: bool
    """The upgrade or rollback is under way, so that servers differ, as they must."""
    is_return: bool
    """The server ran the target here until the last upgrade."""


async def check_step(
    client: ApiClient, *, target: Release, situation: Situation
) -> Sequence[Blocker]:
    """What preflight says of the cluster as it is now. Raises ClientError, StatusError."""
    wanted = target_of_release(target)
    view = await read_cluster(client, wanted)
    return blockers(as_it_is(view, situation), wanted)


def as_it_is(view: ClusterView, situation: Situation) -> ClusterView:
    """The view, with what the situation adds.

    What "Unknown" stands for was stored before the upgrade, when the release that is returned to
    was running: it is no reason not to return. What was written since has its hash beside it.
    """
    resources = view.resources
    if situation.is_return:
        resources = tuple(
            replace(each, persisted=known)
            if (known := tuple(found for found in each.persisted or () if found != UNKNOWN))
            else each
            for each in resources
        )
    return replace(view, resources=resources, is_rolling=situation.is_begun)
