"""Preflight: whether a cluster may go to a release, up or down, without losing what it stores.

    values      what is known of a cluster, and of the release it is to go to
    targets     releases, as what they can read and what they write
    rules       pure: what is in the way
    reading     looks at a cluster through its API

It changes nothing, and runs against real Kubernetes as well. Not here: doing it (`restow upgrade`),
and how it is told (the command line).
"""

from restow.controllers.preflight.reading import read_cluster
from restow.controllers.preflight.rules import blockers, judge
from restow.controllers.preflight.targets import find_target, target_of_release
from restow.controllers.preflight.values import (
    Blocker,
    ClusterView,
    Reason,
    Report,
    ResourceView,
    ServerEntry,
    Target,
    TargetResource,
)

__all__ = [
    "Blocker",
    "ClusterView",
    "Reason",
    "Report",
    "ResourceView",
    "ServerEntry",
    "Target",
    "TargetResource",
    "blockers",
    "find_target",
    "judge",
    "read_cluster",
    "target_of_release",
]
