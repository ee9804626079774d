"""Preflight: whether a cluster may go to a release, up or down, without losing what it stores.

Or do without an encryption key.

    values      what is known of a cluster, and of the release it is to go to
    targets     releases, as what they can read and what they write
    rules       pure: what is in the way
    reading     looks at a cluster through its API
    dropping    pure: whether an encryption key may be taken out

It changes nothing, and runs against real Kubernetes as well. Not here: doing it (`restow upgrade`),
and how it is told (the command line).
"""

from restow.controllers.preflight.dropping import (
    KeyedResource,
    KeyedView,
    StoreCount,
    judge_drop,
)
from restow.controllers.preflight.reading import read_cluster, read_keys
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
    "KeyedResource",
    "KeyedView",
    "Reason",
    "Report",
    "ResourceView",
    "ServerEntry",
    "StoreCount",
    "Target",
    "TargetResource",
    "blockers",
    "find_target",
    "judge",
    "judge_drop",
    "read_cluster",
    "read_keys",
    "target_of_release",
]
