"""Workloads, autoscaling and disruption budgets: apps, batch, autoscaling, policy.

They are only data: nothing schedules or runs them. Old versions can be decoded, and are served only
in a release that enables them.

Only rows. `restow.kinds.kind` documents the columns.
"""

from __future__ import annotations

from typing import Final

from restow.kinds.kind import SCALE, STATUS, SelectableField, declare

_REPLICAS: Final = (SelectableField("status.replicas", ("status", "replicas"), absent="0"),)
_SUCCEEDED: Final = (SelectableField("status.successful", ("status", "succeeded"), absent="0"),)

KINDS: Final = (
    declare("apps", "ControllerRevision", versions="v1 v1beta2 v1beta1"),
    declare(
        "apps",
        "DaemonSet",
        versions="v1 v1beta2",
        short="ds",
        categories="all",
        subresources=(STATUS,),
        tracks_generation=True,
    ),
    declare(
        "apps",
        "Deployment",
        versions="v1 v1beta2 v1beta1",
        short="deploy",
        categories="all",
        subresources=(STATUS, SCALE),
        tracks_generation=True,
        generation_metadata="annotations",
        status_keeps=("labels",),
    ),
    declare(
        "apps",
        "ReplicaSet",
        versions="v1 v1beta2",
        short="rs",
        categories="all",
        subresources=(STATUS, SCALE),
        selectable=_REPLICAS,
        tracks_generation=True,
    ),
    declare(
        "apps",
        "StatefulSet",
        versions="v1 v1beta2 v1beta1",
        short="sts",
        categories="all",
        subresources=(STATUS, SCALE),
        tracks_generation=True,
    ),
    declare(
        "autoscaling",
        "HorizontalPodAutoscaler",
        versions="v2 v1 v2beta2 v2beta1",
        short="hpa",
        categories="all",
        subresources=(STATUS,),
    ),
    declare(
        "batch",
        "CronJob",
        versions="v1 v1beta1 v2alpha1",
        short="cj",
        categories="all",
        subresources=(STATUS,),
        tracks_generation=True,
    ),
    declare(
        "batch",
        "Job",
        categories="all",
        subresources=(STATUS,),
        selectable=_SUCCEEDED,
        tracks_generation=True,
        orphans_by_default=True,
    ),
    declare(
        "policy",
        "PodDisruptionBudget",
        versions="v1 v1beta1",
        short="pdb",
        subresources=(STATUS,),
        tracks_generation=True,
        unconditional_update=False,
    ),
)
