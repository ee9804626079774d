"""Preflight: whether a cluster may go to a release, up or down, without losing what it stores.

Or do without an encryption key.

    values      what is known of a cluster, and of the release it is to go to
    targets     releases, as what they can read and what they write
    rules       pure: what blocks a release
    stored_rules  pure: whether the target reads every raw value
    reading     looks at a cluster through its API, and has its store scanned
    dropping    pure: whether an encryption key may be taken out

It changes nothing, and runs against real Kubernetes as well. Not here: doing it (`restow upgrade`),
and how it is told (the command line).
"""

from restow.migration.preflight.cluster_reader import read_cluster, read_keys
from restow.migration.preflight.key_removal import (
    KeyedResource,
    KeyedView,
    StoreCount,
    judge_drop,
)
from restow.migration.preflight.rules import blockers, judge
from restow.migration.preflight.targets import (
    find_target,
    shipped_targets,
    target_of_release,
)
from restow.migration.preflight.values import (
    AbsentServer,
    ClusterView,
    Evidence,
    PreflightFinding,
    PreflightReport,
    Reason,
    ResourceView,
    ServerEntry,
    TargetRelease,
    TargetResource,
)

__all__ = [
    "AbsentServer",
    "ClusterView",
    "Evidence",
    "KeyedResource",
    "KeyedView",
    "PreflightFinding",
    "PreflightReport",
    "Reason",
    "ResourceView",
    "ServerEntry",
    "StoreCount",
    "TargetRelease",
    "TargetResource",
    "blockers",
    "find_target",
    "judge",
    "judge_drop",
    "read_cluster",
    "read_keys",
    "shipped_targets",
    "target_of_release",
]
