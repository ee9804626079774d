"""Valid objects, one of each kind that the bad values are inserted into."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.api.bad_values.matrix import Good, Object

NAMESPACE: Final = "bad"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
GROUP: Final = "bad.example.org"


def _apis(group: str, version: str, plural: str, *, is_namespaced: bool = True) -> str:
    inside = f"/namespaces/{NAMESPACE}" if is_namespaced else ""
    return f"/apis/{group}/{version}{inside}/{plural}"


def _typed(api_version: str, kind: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, **fields}


POD_SPEC: Final[Object] = {
    "containers": [{"name": "main", "image": "example/main:1", "ports": [{"containerPort": 80}]}]
}
_TEMPLATE: Final[Object] = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC}
_ONCE: Final[Object] = {"spec": {**POD_SPEC, "restartPolicy": "Never"}}

CONFIG_MAP = Good(
    "config map",
    f"{CORE}/configmaps",
    _typed("v1", "ConfigMap", data={"k": "v"}),
)
SECRET = Good(
    "secret", f"{CORE}/secrets", _typed("v1", "Secret", type="Opaque", data={"k": "dg=="})
)
NAMESPACES = Good(
    "namespace",
    "/api/v1/namespaces",
    _typed("v1", "Namespace"),
)
SERVICE = Good(
    "service",
    f"{CORE}/services",
    _typed("v1", "Service", spec={"ports": [{"name": "web", "port": 80}], "clusterIP": "None"}),
)
ACCOUNT = Good("account", f"{CORE}/serviceaccounts", _typed("v1", "ServiceAccount"))
QUOTA = Good(
    "quota",
    f"{CORE}/resourcequotas",
    _typed("v1", "ResourceQuota", spec={"hard": {"count/leases.coordination.k8s.io": "100"}}),
)
POD = Good("pod", f"{CORE}/pods", _typed("v1", "Pod", spec=POD_SPEC))
CLAIM = Good(
    "claim",
    f"{CORE}/persistentvolumeclaims",
    _typed(
        "v1",
        "PersistentVolumeClaim",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    ),
)
ENDPOINTS = Good(
    "endpoints",
    f"{CORE}/endpoints",
    _typed(
        "v1",
        "Endpoints",
        subsets=[{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80}]}],
    ),
    stored_name="stored-endpoints",  # a Service takes over the Endpoints of its name
)
EVENT = Good(
    "event",
    f"{CORE}/events",
    _typed(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "name": "x", "namespace": NAMESPACE},
        reason="Because",
        type="Normal",
    ),
)
DEPLOYMENT = Good(
    "deployment",
    _apis("apps", "v1", "deployments"),
    _typed(
        "apps/v1",
        "Deployment",
        spec={"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE},
    ),
)
STATEFUL_SET = Good(
    "stateful set",
    _apis("apps", "v1", "statefulsets"),
    _typed(
        "apps/v1",
        "StatefulSet",
        spec={
            "serviceName": "s",
            "selector": {"matchLabels": {"app": "a"}},
            "template": _TEMPLATE,
        },
    ),
)
JOB = Good("job", _apis("batch", "v1", "jobs"), _typed("batch/v1", "Job", spec={"template": _ONCE}))
CRON_JOB = Good(
    "cron job",
    _apis("batch", "v1", "cronjobs"),
    _typed(
        "batch/v1",
        "CronJob",
        spec={"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": _ONCE}}},
    ),
)
AUTOSCALER = Good(
    "autoscaler",
    _apis("autoscaling", "v2", "horizontalpodautoscalers"),
    _typed(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "maxReplicas": 3,
            "minReplicas": 2,
        },
    ),
)
BUDGET = Good(
    "budget",
    _apis("policy", "v1", "poddisruptionbudgets"),
    _typed(
        "policy/v1",
        "PodDisruptionBudget",
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    ),
)
LEASE = Good(
    "lease",
    _apis("coordination.k8s.io", "v1", "leases"),
    _typed(
        "coordination.k8s.io/v1",
        "Lease",
        spec={
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "renewTime": "2030-01-01T00:00:00.000000Z",
        },
    ),
)
ROLE = Good(
    "role",
    _apis(_RBAC, "v1", "roles"),
    _typed(
        f"{_RBAC}/v1",
        "Role",
        rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    ),
)
CLUSTER_ROLE = Good(
    "cluster role",
    _apis(_RBAC, "v1", "clusterroles", is_namespaced=False),
    _typed(f"{_RBAC}/v1", "ClusterRole", rules=[{"nonResourceURLs": ["/x"], "verbs": ["get"]}]),
)
ROLE_BINDING = Good(
    "role binding",
    _apis(_RBAC, "v1", "rolebindings"),
    _typed(
        f"{_RBAC}/v1",
        "RoleBinding",
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": "r"},
        subjects=[{"kind": "User", "apiGroup": _RBAC, "name": "jane"}],
    ),
)
CLUSTER_ROLE_BINDING = Good(
    "cluster role binding",
    _apis(_RBAC, "v1", "clusterrolebindings", is_namespaced=False),
    _typed(
        f"{_RBAC}/v1",
        "ClusterRoleBinding",
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": "r"},
        subjects=[{"kind": "ServiceAccount", "name": "x", "namespace": "z"}],
    ),
)

_HOOK: Final[Object] = {
    "name": "check.bad.example.org",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "timeoutSeconds": 5,
    "failurePolicy": "Ignore",
    "clientConfig": {"url": "https://hook.invalid/check"},
    "rules": [
        {
            "apiGroups": ["nowhere.invalid"],
            "apiVersions": ["v1"],
            "resources": ["things"],
            "operations": ["CREATE"],
        }
    ],
}
VALIDATING = Good(
    "validating webhook",
    _apis(_ADMISSION, "v1", "validatingwebhookconfigurations", is_namespaced=False),
    _typed(f"{_ADMISSION}/v1", "ValidatingWebhookConfiguration", webhooks=[_HOOK]),
)
MUTATING = Good(
    "mutating webhook",
    _apis(_ADMISSION, "v1", "mutatingwebhookconfigurations", is_namespaced=False),
    _typed(f"{_ADMISSION}/v1", "MutatingWebhookConfiguration", webhooks=[_HOOK]),
)
POLICY = Good(
    "policy",
    _apis(_ADMISSION, "v1", "validatingadmissionpolicies", is_namespaced=False),
    _typed(
        f"{_ADMISSION}/v1",
        "ValidatingAdmissionPolicy",
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["nowhere.invalid"],
                        "apiVersions": ["v1"],
                        "resources": ["things"],
                        "operations": ["CREATE"],
                    }
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'x'"}],
        },
    ),
)
POLICY_BINDING = Good(
    "policy binding",
    _apis(_ADMISSION, "v1", "validatingadmissionpolicybindings", is_namespaced=False),
    _typed(
        f"{_ADMISSION}/v1",
        "ValidatingAdmissionPolicyBinding",
        spec={"policyName": "nothing.example.org", "validationActions": ["Deny"]},
    ),
)


def _registered(version: str) -> Object:
    return _typed(
        "apiregistration.k8s.io/v1",
        "APIService",
        spec={
            "group": "remote.example.org",
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": NAMESPACE, "name": "missing", "port": 443},
        },
    )


API_SERVICE = Good(
    "API service",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    _registered("v2"),
    stored=_registered("v1"),
    fresh_name="v2.remote.example.org",
    stored_name="v1.remote.example.org",
)
MIGRATION = Good(
    "migration",
    _apis("storagemigration.k8s.io", "v1beta1", "storageversionmigrations", is_namespaced=False),
    _typed(
        "storagemigration.k8s.io/v1beta1",
        "StorageVersionMigration",
        spec={"resource": {"group": "", "resource": "configmaps"}},
    ),
)

_SCHEMA: Final[Object] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 100},
                "count": {"type": "integer", "format": "int32"},
                "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
                "colour": {"type": "string", "enum": ["red", "green"]},
                "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
                "when": {"type": "string", "format": "date-time"},
                "flag": {"type": "boolean"},
                "tags": {
                    "type": "array",
                    "maxItems": 3,
                    "items": {"type": "string", "minLength": 1, "maxLength": 16},
                    "x-kubernetes-list-type": "set",
                },
                "parts": {
                    "type": "array",
                    "maxItems": 5,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string", "maxLength": 16}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "options": {
                    "type": "object",
                    "maxProperties": 2,
                    "additionalProperties": {"type": "integer"},
                },
                "either": {"x-kubernetes-int-or-string": True},
                "low": {"type": "integer"},
                "high": {"type": "integer"},
                "fixed": {
                    "type": "string",
                    "maxLength": 16,
                    "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "fixed may not change"}
                    ],
                },
                "inner": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
                    "message": "low may not be above high",
                }
            ],
        }
    },
}


def definition(plural: str, kind: str, schema: Object) -> Object:
    """A CRD of a namespaced kind with one version."""
    return _typed(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        spec={
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    )


_SMALL: Final[Object] = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
WIDGETS: Final = {
    **definition("widgets", "Widget", _SCHEMA),
    "metadata": {"name": f"widgets.{GROUP}"},
}
DEFINITION = Good(
    "definition",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    definition("freshes", "Fresh", _SMALL),
    stored=definition("storeds", "Stored", _SMALL),
    fresh_name=f"freshes.{GROUP}",
    stored_name=f"storeds.{GROUP}",
)
WIDGET = Good(
    "widget",
    _apis(GROUP, "v1", "widgets"),
    _typed(f"{GROUP}/v1", "Widget", spec={"size": 5, "fixed": "f", "parts": [{"name": "a"}]}),
    is_custom=True,
)

GOODS: Final = (
    *(CONFIG_MAP, SECRET, NAMESPACES, SERVICE, ACCOUNT, QUOTA, POD, CLAIM, ENDPOINTS, EVENT),
    *(DEPLOYMENT, STATEFUL_SET, JOB, CRON_JOB, AUTOSCALER, BUDGET, LEASE),
    *(ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING),
    *(VALIDATING, MUTATING, POLICY, POLICY_BINDING, API_SERVICE, MIGRATION, DEFINITION, WIDGET),
)
