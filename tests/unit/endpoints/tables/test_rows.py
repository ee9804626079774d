"""The columns of the built-in kinds, and their cells for valid and malformed data."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.endpoints.tables import columns_for, kinds_with_columns

NOW = datetime(2026, 1, 10, tzinfo=UTC)
META = {"name": "a", "creationTimestamp": "2026-01-05T00:00:00Z"}
AGE = "5d"

# The columns of kube-apiserver; * marks those of wide output only.
COLUMNS = {
    ("", "Namespace"): "Name,Status,Age",
    ("", "ConfigMap"): "Name,Data,Age",
    ("", "Secret"): "Name,Type,Data,Age",
    ("", "ServiceAccount"): "Name,Age",
    ("", "Event"): "Last Seen,Type,Reason,Object,*Subobject,*Source,Message,"
    "*First Seen,*Count,*Name",
    ("", "ResourceQuota"): "Name,Request,Limit,Age",
    ("coordination.k8s.io", "Lease"): "Name,Holder,Age",
    ("rbac.authorization.k8s.io", "RoleBinding"): "Name,Role,Age,*Users,*Groups,*ServiceAccounts",
    ("rbac.authorization.k8s.io", "Role"): "Name,Created At",
    ("rbac.authorization.k8s.io", "ClusterRole"): "Name,Created At",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "Name,Created At",
    ("", "LimitRange"): "Name,Created At",
    ("apiregistration.k8s.io", "APIService"): "Name,Service,Available,Age",
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): "Name,Webhooks,Age",
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): "Name,Validations,ParamKind,Age",
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
    ): "Name,PolicyName,ParamRef,Age",
    (
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
    ): "Name,PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL",
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
    ): "Name,Age,SignerName,Requestor,RequestedDuration,Condition",
    ("", "Service"): "Name,Type,Cluster-IP,External-IP,Port(s),Age,*Selector",
    (
        "apps",
        "Deployment",
    ): "Name,Ready,Up-to-date,Available,Age,*Containers,*Images,*Selector",
    ("", "Pod"): "Name,Ready,Status,Restarts,Age,*IP,*Node,*Nominated Node,*Readiness Gates",
    ("internal.apiserver.k8s.io", "StorageVersion"): "Name,CommonEncodingVersion,"
    "StorageVersions,Age",
    ("kube-apiserver.internal.k8s.io", "StorageVersion"): "Name,SelectedVersion,Candidates,Age",
    ("migration.k8s.io", "StorageState"): "Name,Current,Persisted,Heartbeat,Age,*Reporters,"
    "*Current-Hash,*Persisted-Hashes",
    ("storagemigration.k8s.io", "StorageVersionMigration"): "Name,Resource,Status,Progress,Age",
    ("", "ComponentStatus"): "Name,Status,Message,Error",
    ("networking.k8s.io", "IPAddress"): "Name,ParentRef",
    ("networking.k8s.io", "ServiceCIDR"): "Name,CIDRs,Age",
    ("storage.k8s.io", "VolumeAttributesClass"): "Name,DriverName,Age",
    ("resource.k8s.io", "DeviceClass"): "Name,Age",
    ("resource.k8s.io", "ResourceClaim"): "Name,State,Age",
    ("resource.k8s.io", "ResourceClaimTemplate"): "Name,Age",
    ("resource.k8s.io", "ResourceSlice"): "Name,Node,Driver,Pool,Age",
    ("example.com", "Unheard"): "Name,Created At",
}


@pytest.mark.parametrize(("kind", "expected"), COLUMNS.items())
def test_columns(kind: tuple[str, str], expected: str) -> None:
    """A kind has the columns of kube-apiserver, with the same ones in wide output only."""
    shown = [
        ("*" if definition["priority"] else "") + str(definition["name"])
        for definition in columns_for(*kind).definitions
    ]
    assert ",".join(shown) == expected


CELLS: list[tuple[str, str, dict[str, Any], list[object]]] = [
    ("", "Namespace", {"status": {"phase": "Active"}}, ["a", "Active", AGE]),
    ("", "ConfigMap", {"data": {"x": "1"}, "binaryData": {"y": ""}}, ["a", 2, AGE]),
    ("", "Secret", {"type": "Opaque", "data": {"x": ""}}, ["a", "Opaque", 1, AGE]),
    ("", "LimitRange", {}, ["a", "2026-01-05T00:00:00Z"]),
    (
        "",
        "ResourceQuota",
        {
            "status": {
                "hard": {"pods": "10", "limits.cpu": 2, "cpu": "1"},
                "used": {"pods": "3", "limits.cpu": "1"},
            }
        },
        ["a", "cpu: 0/1, pods: 3/10", "limits.cpu: 1/2", AGE],
    ),
    ("coordination.k8s.io", "Lease", {"spec": {"holderIdentity": "me"}}, ["a", "me", AGE]),
    (
        "",
        "Event",
        {
            "type": "Normal",
            "reason": "Done",
            "message": " it is done \n",
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-01-08T00:00:00Z",
            "lastTimestamp": "2026-01-09T23:50:00Z",
            "count": 4,
        },
        ["10m", "Normal", "Done", "pod/p", "spec", "kubelet, n1", "it is done", "2d", 4, "a"],
    ),
    (
        "events.k8s.io",
        "Event",
        {
            "note": "hello",
            "regarding": {"kind": "Lease", "name": "l"},
            "reportingController": "c",
            "eventTime": "2026-01-09T00:00:00.000000Z",
            "series": {"count": 9, "lastObservedTime": "2026-01-09T23:59:00.000000Z"},
        },
        ["60s", "", "", "lease/l", "", "c", "hello", "24h", 9, "a"],
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        {
            "roleRef": {"kind": "ClusterRole", "name": "admin"},
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"kind": "Odd", "name": "o"},
            ],
        },
        ["a", "ClusterRole/admin", AGE, "u", "g", "n/s"],
    ),
    ("apiregistration.k8s.io", "APIService", {"spec": {}}, ["a", "Local", "Unknown", AGE]),
    (
        "apiregistration.k8s.io",
        "APIService",
        {
            "spec": {"service": {"namespace": "n", "name": "s"}},
            "status": {
                "conditions": [{"type": "Available", "status": "False", "reason": "Missing"}]
            },
        },
        ["a", "n/s", "False (Missing)", AGE],
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        {"spec": {"policyName": "p", "paramRef": {"name": "x"}}},
        ["a", "p", "*/x", AGE],
    ),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        {
            "spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "eA=="},
        },
        ["a", AGE, "s", "u", "60m", "Approved,Issued"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        {
            "spec": {
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": 5,
                    "limitResponse": {"queuing": {"queues": 2, "handSize": 1}},
                },
            }
        },
        ["a", "Limited", 5, 2, 1, "<none>", AGE],
    ),
    (
        "",
        "Service",
        {
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": "10.0.0.1",
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53}],
                "selector": {"x": "y"},
            }
        },
        ["a", "LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/TCP", AGE, "x=y"],
    ),
    (
        "",
        "Endpoints",
        {
            "subsets": [
                {"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 443}]},
                {"addresses": [{"ip": "2.2.2.2"}]},
            ]
        },
        ["a", "1.1.1.1:443,[::1]:443,2.2.2.2", AGE],
    ),
    (
        "discovery.k8s.io",
        "EndpointSlice",
        {
            "addressType": "IPv4",
            "ports": [{"port": 443}],
            "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4"]}],
        },
        ["a", "IPv4", "443", "1,2,3 + 1 more...", AGE],
    ),
    (
        "apps",
        "Deployment",
        {
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"x": "y"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d"}]}},
            },
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
        },
        ["a", "1/3", 2, 1, AGE, "c,d", "i,", "x=y"],
    ),
    (
        "batch",
        "CronJob",
        {
            "spec": {"schedule": "* * * * *", "suspend": False, "jobTemplate": {}},
            "status": {"active": [{}], "lastScheduleTime": "2026-01-09T23:59:30Z"},
        },
        ["a", "* * * * *", "<none>", "False", 1, "30s", AGE, "", "", "<none>"],
    ),
    (
        "batch",
        "Job",
        {
            "spec": {"completions": 2},
            "status": {
                "succeeded": 2,
                "startTime": "2026-01-05T00:00:00Z",
                "completionTime": "2026-01-05T00:00:40Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        },
        ["a", "Complete", "2/2", "40s", AGE, "", "", "<none>"],
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        {
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "maxReplicas": 5,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"averageUtilization": 80}},
                    }
                ],
            },
            "status": {
                "currentReplicas": 2,
                "currentMetrics": [
                    {"type": "Resource", "resource": {"current": {"averageUtilization": 7}}}
                ],
            },
        },
        ["a", "Deployment/d", "cpu: 7%/80%", "<unset>", 5, 2, AGE],
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        {"spec": {"minReplicas": 1, "targetCPUUtilizationPercentage": 50}},
        ["a", "/", "cpu: <unknown>/50%", "1", 0, 0, AGE],
    ),
    (
        "policy",
        "PodDisruptionBudget",
        {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}},
        ["a", "50%", "N/A", 1, AGE],
    ),
    (
        "",
        "Pod",
        {
            "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
            "status": {
                "phase": "Running",
                "podIP": "1.2.3.4",
                "containerStatuses": [
                    {
                        "ready": False,
                        "restartCount": 3,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"finishedAt": "2026-01-09T23:59:00Z"}},
                    }
                ],
            },
        },
        [
            "a",
            "0/1",
            "CrashLoopBackOff",
            "3 (60s ago)",
            AGE,
            "1.2.3.4",
            "n",
            "<none>",
            "<none>",
        ],
    ),
    (
        "",
        "Pod",
        {
            "spec": {"containers": [{}], "initContainers": [{}, {}]},
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0}}},
                    {"state": {"running": {}}},
                ],
            },
        },
        ["a", "0/1", "Init:1/2", "0", AGE, "<none>", "<none>", "<none>", "<none>"],
    ),
    (
        "",
        "Node",
        {
            "metadata": {**META, "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1"},
                "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
            },
        },
        [
            "a",
            "Ready,SchedulingDisabled",
            "control-plane",
            AGE,
            "v1",
            "1.1.1.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>",
        ],
    ),
    (
        "",
        "PersistentVolumeClaim",
        {
            "spec": {"volumeName": "v", "storageClassName": "fast"},
            "status": {
                "phase": "Bound",
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            },
        },
        ["a", "Bound", "v", "1Gi", "RWO,ROX", "fast", "<unset>", AGE, "<unset>"],
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        {
            "metadata": {
                **META,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "p",
        },
        ["a (default)", "p", "Delete", "Immediate", False, AGE],
    ),
    (
        "internal.apiserver.k8s.io",
        "StorageVersion",
        {
            "status": {
                "storageVersions": [
                    {"apiServerID": f"s{number}", "encodingVersion": "v1"} for number in range(4)
                ]
            }
        },
        ["a", "<unset>", "s0=v1,s1=v1,s2=v1 + 1 more...", AGE],
    ),
    (
        "internal.apiserver.k8s.io",
        "StorageVersion",
        {
            "status": {
                "commonEncodingVersion": "v1",
                "storageVersions": [
                    {"apiServerID": f"s{number}", "encodingVersion": "v1"} for number in range(3)
                ],
            }
        },
        ["a", "v1", "s0=v1,s1=v1,s2=v1", AGE],
    ),
    ("internal.apiserver.k8s.io", "StorageVersion", {}, ["a", "<unset>", "<unset>", AGE]),
    (
        "kube-apiserver.internal.k8s.io",
        "StorageVersion",
        {
            "selectedVersion": "v1",
            "candidateVersions": [
                {"apiServerID": f"s{number}", "preferredVersion": "v2"} for number in range(5)
            ],
        },
        ["a", "v1", "s0=v2,s1=v2,s2=v2 + 2 more...", AGE],
    ),
    ("kube-apiserver.internal.k8s.io", "StorageVersion", {}, ["a", "<unset>", "<unset>", AGE]),
]


@pytest.mark.parametrize(("group", "kind", "fields", "expected"), CELLS)
def test_cells(group: str, kind: str, fields: dict[str, Any], expected: list[object]) -> None:
    """A row of a usual object equals that of kube-apiserver."""
    assert columns_for(group, kind).cells({"metadata": META, **fields}, NOW) == expected


def test_a_deleted_pod_is_terminating() -> None:
    """A pod with a deletion timestamp is Terminating, whatever the state of its containers."""
    pod = {
        "metadata": {**META, "deletionTimestamp": "2026-01-09T00:00:00Z"},
        "status": {"phase": "Running"},
    }
    assert columns_for("", "Pod").cells(pod, NOW)[2] == "Terminating"


# Names of fields that cells read, so that malformed values occur where they are read.
_NAMES = [
    "metadata",
    "name",
    "spec",
    "status",
    "conditions",
    "type",
    "state",
    "terminated",
    "waiting",
    "containers",
    "subsets",
    "addresses",
    "ports",
    "port",
    "limited",
    "metrics",
    "target",
    "resource",
    "template",
    "selector",
    "matchLabels",
    "creationTimestamp",
    "subjects",
    "data",
    "series",
    "containerStatuses",
    "initContainerStatuses",
    "lastState",
    "finishedAt",
    "storageVersions",
    "candidateVersions",
    "capacity",
    "hard",
    "used",
    "loadBalancer",
    "ingress",
    "labels",
    "annotations",
    "rules",
]
_ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "True", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", "Pod"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(_NAMES), _ODD, max_size=6))
def test_no_data_breaks_a_row(obj: dict[str, Any]) -> None:
    """For any object, each kind yields one plain cell per column."""
    for kind in kinds_with_columns():
        columns = columns_for(*kind)
        cells = columns.cells(obj, NOW)
        assert len(cells) == len(columns.definitions), kind
        assert all(cell is None or isinstance(cell, str | int | bool) for cell in cells), kind
        if columns.conditions is not None:
            orjson.dumps(columns.conditions(obj))
