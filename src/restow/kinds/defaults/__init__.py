"""Defaults of absent fields, the same as those of Kubernetes.

`apply_defaults` runs on every decoded object, in the version of the request, before the conversion.
`prepare_create` runs once per object, at its creation, when its name is known.

Not here: metadata of all objects, allocated addresses, and admission.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from restow.apimachinery.names import GroupVersion
from restow.apimachinery.type_values import fresh, zero_of_struct
from restow.kinds.defaults import control, core, crds, devices, pods, services, workloads
from restow.kinds.defaults.fields import Object, child, own, put
from restow.kinds.types import load_types

_ADMISSION: Final = "admissionregistration.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_RESOURCE: Final = "resource.k8s.io"
_STORAGE: Final = "storage.k8s.io"
STATUSES_KEPT_MAX: Final = 512


def _default_pod_template(obj: Object, _version: str) -> None:
    pods.default_template(obj)


# Other kinds have no defaults.
_BY_KIND: Final[dict[tuple[str, str], Callable[[Object, str], None]]] = {
    ("", "Endpoints"): core.default_endpoints,
    ("", "LimitRange"): core.default_limit_range,
    ("", "Namespace"): core.default_namespace,
    ("", "Node"): core.default_node,
    ("", "PersistentVolume"): core.default_volume,
    ("", "PersistentVolumeClaim"): core.default_volume_claim,
    ("", "Pod"): pods.default_pod,
    ("", "PodTemplate"): _default_pod_template,
    ("", "ReplicationController"): workloads.default_replication_controller,
    ("", "Secret"): core.default_secret,
    ("", "Service"): services.default_service,
    (_ADMISSION, "MutatingAdmissionPolicy"): control.default_policy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): control.default_policy_binding,
    (_ADMISSION, "MutatingWebhookConfiguration"): control.default_mutating_webhooks,
    (_ADMISSION, "ValidatingAdmissionPolicy"): control.default_policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): control.default_policy_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): control.default_validating_webhooks,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): crds.default_definition,
    ("apiregistration.k8s.io", "APIService"): control.default_api_service,
    ("apps", "DaemonSet"): workloads.default_daemon_set,
    ("apps", "Deployment"): workloads.default_deployment,
    ("apps", "ReplicaSet"): workloads.default_replica_set,
    ("apps", "StatefulSet"): workloads.default_stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): workloads.default_autoscaler,
    ("batch", "CronJob"): workloads.default_cron_job,
    ("batch", "Job"): workloads.default_job,
    ("discovery.k8s.io", "EndpointSlice"): core.default_endpoint_slice,
    (_FLOW, "FlowSchema"): control.default_flow_schema,
    (_FLOW, "PriorityLevelConfiguration"): control.default_priority_level,
    (_NETWORKING, "Ingress"): core.default_ingress,
    (_NETWORKING, "IngressClass"): core.default_ingress_class,
    (_NETWORKING, "NetworkPolicy"): core.default_network_policy,
    (_RBAC, "ClusterRoleBinding"): control.default_role_binding,
    (_RBAC, "RoleBinding"): control.default_role_binding,
    (_RESOURCE, "ResourceClaim"): devices.default_claim,
    (_RESOURCE, "ResourceClaimTemplate"): devices.default_claim_template,
    ("scheduling.k8s.io", "PriorityClass"): core.default_priority_class,
    (_STORAGE, "CSIDriver"): core.default_csi_driver,
    (_STORAGE, "StorageClass"): core.default_storage_class,
}


def has_defaults(group: str, kind: str) -> bool:
    """Whether a kind has defaults."""
    return (group, kind) in _BY_KIND


def apply_defaults(group: str, version: str, kind: str, obj: Object) -> None:
    """Set the defaults of an object in place; no other code may hold it."""
    found = _BY_KIND.get((group, kind))
    if found is not None:
        found(obj, version)


def prepare_create(group: str, kind: str, obj: Object) -> None:
    """Set the fields that an object gets at its creation."""
    _begin(group, kind, obj)
    if "status" not in obj:
        status = _empty_status(obj.get("apiVersion") or "", kind)
        if status is not None:
            obj["status"] = fresh(status)


@lru_cache(STATUSES_KEPT_MAX)
def _empty_status(api_version: str, kind: str) -> Object | None:
    """The status of an object that was created without one; None for kinds without status."""
    group, version = GroupVersion.parse(api_version)
    struct = load_types().of_kind(group, version, kind)
    zero = None if struct is None else zero_of_struct(struct).get("status")
    return zero if isinstance(zero, dict) else None


def _begin(group: str, kind: str, obj: Object) -> None:
    match group, kind:
        case "", "Namespace":
            core.default_namespace(obj, "v1")
            spec = own(obj, "spec")
            finalizers = spec.get("finalizers") or []
            if "kubernetes" not in finalizers:
                spec["finalizers"] = [*finalizers, "kubernetes"]
            obj["status"] = {"phase": "Active"}
        case "", "Pod":
            pods.begin_pod(obj)
        case "", "PersistentVolume":
            core.begin_volume(obj)
        case "", "PersistentVolumeClaim":
            put(child(obj, "status"), "phase", "Pending")
            core.join_data_sources(obj)
        case "", "Service":
            services.begin_service(obj)
        case "apiextensions.k8s.io", "CustomResourceDefinition":
            crds.begin(obj)
        case "apiregistration.k8s.io", "APIService":
            control.begin_api_service(obj)
        case "apps", "DaemonSet":
            workloads.begin_daemon_set(obj)
        case "batch", "Job":
            workloads.begin_job(obj)
        case "internal.apiserver.k8s.io", "StorageVersion":
            # Both fields are always written, even if they are empty.
            child(obj, "spec")
            child(obj, "status")
        case "resource.k8s.io", "ResourceSlice":
            devices.begin_slice(obj)


def prepare_update(group: str, kind: str, new: Object, old: Object) -> None:
    """Set the fields that an update keeps or derives from the old object."""
    match group, kind:
        case "", "PersistentVolumeClaim":
            core.join_data_sources(new)
        case "", "Pod":
            pods.keep_from_old(new, old)
        case "", "Service":
            services.keep_from_old(new, old)
        case "apiextensions.k8s.io", "CustomResourceDefinition":
            crds.keep_from_old(new, old)
        case "apps", "DaemonSet":
            workloads.count_templates(new, old)
        case "certificates.k8s.io", "CertificateSigningRequest":
            # The spec is immutable: it may have been approved already.
            new["spec"] = old.get("spec") or {}
