"""Preflight: whether a cluster can change to a release, up or down, and still read its objects.

Also whether an encryption key can be removed.

    values          state of a cluster, target release, findings
    targets         releases: the versions that they read and write
    rules           pure: the blockers and warnings of a release
    stored_rules    pure: whether the target reads every raw value
    intermediate    pure: the release to upgrade to before the target
    cluster_reader  reads a cluster through its API, and has its store scanned
    key_removal     pure: whether an encryption key can be removed

It changes nothing, and runs against real Kubernetes as well. Not here: the upgrade itself
(`restow upgrade`), and the output (the command line).
"""

from restow.migration.preflight.cluster_reader import read_cluster, read_keys
from restow.migration.preflight.key_removal import (
    KeyedResource,
    KeyedView,
    StoreCount,
    judge_key_removal,
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
    "judge_key_removal",
    "read_cluster",
    "read_keys",
    "shipped_targets",
    "target_of_release",
]
