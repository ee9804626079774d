"""The permissions of the user of the kubectl tests: those that their commands need.

Not here: how the user is created and authenticated (`tests.e2e.clients.guests`).
"""

from __future__ import annotations

from typing import Any, Final

ALL: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
READ: Final = ["get", "list", "watch"]


def may(verbs: list[str], group: str, *resources: str) -> dict[str, Any]:
    """Returns one rule."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs}


RIGHTS: Final = (
    may(
        ALL,
        "",
        *("configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods"),
        *("replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services"),
    ),
    may(["get", "patch", "update"], "", "pods/ephemeralcontainers", "pods/status"),
    may(["create", "get"], "", "pods/attach", "pods/exec", "pods/log", "pods/portforward"),
    may(["create"], "", "pods/eviction", "serviceaccounts/token"),
    may(
        [*ALL, "deletecollection"],
        "apps",
        *("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"),
    ),
    may(["update"], "apps", "deployments/finalizers"),  # for blockOwnerDeletion
    may(["get", "patch", "update"], "apps", "deployments/scale", "deployments/status"),
    may(ALL, "autoscaling", "horizontalpodautoscalers"),
    may(ALL, "batch", "cronjobs", "jobs"),
    may(ALL, "discovery.k8s.io", "endpointslices"),
    may(READ, "events.k8s.io", "events"),
    may(ALL, "networking.k8s.io", "ingresses", "networkpolicies"),
    may(ALL, "policy", "poddisruptionbudgets"),
    may(ALL, "rbac.authorization.k8s.io", "rolebindings", "roles"),
    may(ALL, "kubectl.example.com", "*"),
)
CLUSTER_RIGHTS: Final = (
    may(ALL, "", "namespaces", "nodes"),
    may(["list"], "", "pods", "services", "events", "replicationcontrollers"),  # dump, drain
    may(["get", "list"], "apps", "daemonsets", "deployments", "replicasets"),
    may(["get", "list"], "coordination.k8s.io", "leases"),  # of a node
    may(ALL, "apiextensions.k8s.io", "customresourcedefinitions"),
    may(ALL, "certificates.k8s.io", "certificatesigningrequests"),
    may(["update"], "certificates.k8s.io", "certificatesigningrequests/approval"),
    may(["approve"], "certificates.k8s.io", "signers"),
    may(ALL, "rbac.authorization.k8s.io", "clusterrolebindings", "clusterroles"),
    may(ALL, "scheduling.k8s.io", "priorityclasses"),
)
