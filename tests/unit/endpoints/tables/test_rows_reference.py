"""Columns and cells compared with a real kube-apiserver, kind by kind."""

from datetime import UTC, datetime
from typing import Any

import pytest

from restow.endpoints.tables import columns_for, kinds_with_columns

NOW = datetime(2026, 1, 10, tzinfo=UTC)
META = {"name": "a", "creationTimestamp": "2026-01-05T00:00:00Z"}
AGE = "5d"

# Columns of other types than string, by which clients sort and align.
TYPES = {
    "CSIDriver": "AttachRequired=boolean PodInfoOnMount=boolean StorageCapacity=boolean"
    " RequiresRepublish=boolean",
    "CSINode": "Drivers=integer",
    "CronJob": "Suspend=boolean Active=integer",
    "DaemonSet": "Desired=integer Current=integer Ready=integer Up-to-date=integer"
    " Available=integer",
    "MutatingAdmissionPolicy": "Mutations=integer",
    "MutatingWebhookConfiguration": "Webhooks=integer",
    "PodDisruptionBudget": "Allowed Disruptions=integer",
    "PriorityClass": "Value=integer Global-Default=boolean",
    "ReplicaSet": "Desired=integer Current=integer Ready=integer",
    "ReplicationController": "Desired=integer Current=integer Ready=integer",
    "Scale": "Desired=integer Available=integer",
    "ValidatingAdmissionPolicy": "Validations=integer",
    "ValidatingWebhookConfiguration": "Webhooks=integer",
    "VolumeAttachment": "Attached=boolean",
}
OWN_GROUPS = {
    "internal.apiserver.k8s.io",
    "kube-apiserver.internal.k8s.io",
    "migration.k8s.io",
    "storagemigration.k8s.io",
}


def test_column_types() -> None:
    """A column has the type of kube-apiserver, even if its cells are numbers."""
    found: dict[str, str] = {}
    for group, kind in kinds_with_columns():
        columns = columns_for(group, kind).definitions
        typed = [f"{each['name']}={each['type']}" for each in columns if each["type"] != "string"]
        if typed and group not in OWN_GROUPS:
            found[kind] = " ".join(typed)
    assert found == TYPES


def test_a_name_is_marked_as_one() -> None:
    """Clients find the name of a row by the format of its column, at any position."""
    for group, kind in kinds_with_columns():
        marked = [each["name"] for each in columns_for(group, kind).definitions if each["format"]]
        assert "Name" in marked, (group, kind)


def _container(name: str, **status: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, **status}


RUNNING = {"state": {"running": {}}, "ready": True}
PODS = {
    "0/3 Pending 0": {
        "spec": {
            "containers": [{"name": "c"}, {"name": "d"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
        },
        "status": {"phase": "Pending"},
    },
    "2/2 Running 3 (24h ago)": {
        "spec": {
            "containers": [{"name": "c"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [
                _container(
                    "s",
                    **RUNNING | {"restartCount": 2},
                    started=True,
                    lastState={"terminated": {"finishedAt": "2026-01-09T00:00:00Z"}},
                )
            ],
            "containerStatuses": [_container("c", **RUNNING | {"restartCount": 1})],
        },
    },
    "0/1 Init:ExitCode:3 2": {
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]},
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [
                _container("i", restartCount=2, state={"terminated": {"exitCode": 3}})
            ],
        },
    },
    "0/2 Error 0": {
        "spec": {"containers": [{"name": "c"}, {"name": "d"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                _container("c", state={"terminated": {"exitCode": 0, "reason": "Completed"}}),
                _container("d", state={"terminated": {"exitCode": 2, "reason": "Error"}}),
            ],
        },
    },
}


@pytest.mark.parametrize(("expected", "pod"), PODS.items())
def test_pods(expected: str, pod: dict[str, Any]) -> None:
    """Ready containers, status and restarts of a pod are computed as in kube-apiserver."""
    cells = columns_for("", "Pod").cells({"metadata": META, **pod}, NOW)
    assert " ".join(str(cell) for cell in cells[1:4]) == expected


GOING = {**META, "deletionTimestamp": "2026-01-09T00:00:00Z"}
CELLS: list[tuple[str, str, dict[str, Any], list[object]]] = [
    (
        "",
        "ComponentStatus",
        {"conditions": [{"type": "Healthy", "status": "False", "message": "m", "error": "e"}]},
        ["a", "Unhealthy", "m", "e"],
    ),
    ("", "ComponentStatus", {}, ["a", "Unknown", "", ""]),
    (
        "",
        "Endpoints",
        {"subsets": [{"addresses": [{"ip": "::1"}, {"ip": "1.2.3.4"}], "ports": [{"port": 1}]}]},
        ["a", "[::1]:1,1.2.3.4:1", AGE],
    ),
    (
        "",
        "Endpoints",
        {
            "subsets": [
                {
                    "addresses": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}],
                    "ports": [{"port": 1}, {"port": 2}],
                }
            ]
        },
        ["a", "1.1.1.1:1,1.1.1.2:1,1.1.1.1:2 + 1 more...", AGE],
    ),
    (
        "networking.k8s.io",
        "IPAddress",
        {"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}},
        ["a", "services/n/s"],
    ),
    ("networking.k8s.io", "IPAddress", {}, ["a", "<none>"]),
    (
        "networking.k8s.io",
        "ServiceCIDR",
        {"spec": {"cidrs": ["10.0.0.0/24", "fd00::/64"]}},
        ["a", "10.0.0.0/24,fd00::/64", AGE],
    ),
    ("resource.k8s.io", "ResourceClaim", {}, ["a", "pending", AGE]),
    ("resource.k8s.io", "ResourceClaim", {"metadata": GOING}, ["a", "deleted", AGE]),
    (
        "resource.k8s.io",
        "ResourceClaim",
        {"status": {"allocation": {}, "reservedFor": [{"name": "p"}]}},
        ["a", "allocated,reserved", AGE],
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        {"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}},
        ["a", "n", "d", "p", AGE],
    ),
    (
        "networking.k8s.io",
        "NetworkPolicy",
        {
            "spec": {
                "podSelector": {
                    "matchLabels": {"b": "c"},
                    "matchExpressions": [
                        {"key": "z", "operator": "DoesNotExist"},
                        {"key": "b", "operator": "Exists"},
                    ],
                }
            }
        },
        ["a", "b=c,b,!z", AGE],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        {"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}},
        ["a", "Exempt", "<none>", "<none>", "<none>", "<none>", AGE],
    ),
]


@pytest.mark.parametrize(("group", "kind", "fields", "expected"), CELLS)
def test_cells(group: str, kind: str, fields: dict[str, Any], expected: list[object]) -> None:
    """A row equals that of kube-apiserver."""
    assert columns_for(group, kind).cells({"metadata": META, **fields}, NOW) == expected
