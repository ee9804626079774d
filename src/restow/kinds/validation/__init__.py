"""Validation rules of built-in kinds beyond their types, with causes for the client.

`validate` runs on the hub version of an object, after its defaults. With an old object it also
checks immutable fields.

Not here: types (`restow.apimachinery.typed_json`) and metadata
(`restow.apimachinery.metadata_rules`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.status_error import StatusCause
from restow.kinds.derived_types import all_types
from restow.kinds.validation import (
    api_services,
    autoscalers,
    certificate_signing_requests,
    control,
    core,
    crds,
    events,
    kind_rules,
    limit_ranges,
    migrations,
    pod_parts,
    pod_rules,
    policies,
    quotas,
    roles,
    storage_versions,
    volume_rules,
    webhook_configurations,
    workloads,
)
from restow.kinds.validation.fields import Causes, Object
from restow.kinds.validation.immutable_fields import immutable_problems
from restow.kinds.validation.rules import Walk, walk_of

_ADMISSION: Final = "admissionregistration.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_POD: Final = ("", "Pod")
WALKS_KEPT_MAX: Final = 512
NO_CONTENT: Final = frozenset({"metadata", "status", "kind", "apiVersion"})
"""Fields that do not belong to the content of an object."""
_TABLES: Final = pod_rules.RULES | volume_rules.RULES | kind_rules.RULES
_SIGNING_REQUEST: Final = ("certificates.k8s.io", "CertificateSigningRequest")

# Other kinds have no rules beyond their types.
_BY_KIND: Final[dict[tuple[str, str], Callable[[Causes, Object, Object | None], None]]] = {
    ("", "ConfigMap"): core.validate_config_map,
    ("", "Endpoints"): core.validate_endpoints,
    ("", "Event"): events.validate_event,
    ("", "LimitRange"): limit_ranges.validate_limit_range,
    ("", "Namespace"): core.validate_namespace,
    ("", "Node"): core.validate_node,
    ("", "PersistentVolume"): core.validate_volume,
    ("", "PersistentVolumeClaim"): core.validate_volume_claim,
    ("", "Pod"): workloads.validate_pod,
    ("", "PodTemplate"): workloads.validate_pod_template,
    ("", "ReplicationController"): workloads.validate_replication_controller,
    ("", "ResourceQuota"): quotas.validate_quota,
    ("", "Secret"): core.validate_secret,
    ("", "Service"): core.validate_service,
    (_ADMISSION, "MutatingAdmissionPolicy"): policies.validate_mutating_policy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): policies.validate_mutating_binding,
    (_ADMISSION, "MutatingWebhookConfiguration"): webhook_configurations.validate_webhooks,
    (_ADMISSION, "ValidatingAdmissionPolicy"): policies.validate_policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): policies.validate_policy_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): webhook_configurations.validate_webhooks,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): crds.validate_definition,
    ("apiregistration.k8s.io", "APIService"): api_services.validate_api_service,
    ("apps", "DaemonSet"): workloads.validate_daemon_set,
    ("apps", "Deployment"): workloads.validate_deployment,
    ("apps", "ReplicaSet"): workloads.validate_replica_set,
    ("apps", "StatefulSet"): workloads.validate_stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscalers.validate_autoscaler,
    ("batch", "CronJob"): workloads.validate_cron_job,
    ("batch", "Job"): workloads.validate_job,
    _SIGNING_REQUEST: certificate_signing_requests.validate_signing_request,
    ("coordination.k8s.io", "Lease"): control.validate_lease,
    ("discovery.k8s.io", "EndpointSlice"): control.validate_endpoint_slice,
    ("events.k8s.io", "Event"): events.validate_new_event,
    ("internal.apiserver.k8s.io", "StorageVersion"): storage_versions.validate_storage_version,
    ("kube-apiserver.internal.k8s.io", "StorageVersion"): storage_versions.validate_vote,
    ("migration.k8s.io", "StorageState"): storage_versions.validate_storage_state,
    ("migration.k8s.io", "StorageVersionMigration"): migrations.validate_old_migration,
    ("networking.k8s.io", "Ingress"): control.validate_ingress,
    ("node.k8s.io", "RuntimeClass"): control.validate_runtime_class,
    ("policy", "PodDisruptionBudget"): workloads.validate_budget,
    (_RBAC, "ClusterRole"): roles.validate_cluster_role,
    (_RBAC, "ClusterRoleBinding"): roles.validate_role_binding,
    (_RBAC, "Role"): roles.validate_role,
    (_RBAC, "RoleBinding"): roles.validate_role_binding,
    ("scheduling.k8s.io", "PriorityClass"): control.validate_priority_class,
    ("storage.k8s.io", "StorageClass"): control.validate_storage_class,
    ("storagemigration.k8s.io", "StorageVersionMigration"): migrations.validate_migration,
}


def validate(
    group: str, kind: str, new: Object, old: Object | None = None, *, subresource: str = ""
) -> list[StatusCause]:
    """Validate an object, or its change from the old one through a subresource; the result is empty
    if it is valid."""
    check, causes = _BY_KIND.get((group, kind), _no_problems), Causes()
    try:
        if old is not None and subresource in pod_parts.PARTS and (group, kind) == _POD:
            # A subresource changes only some fields; the others are not validated again.
            check(causes, new, new)
            pod_parts.change_problems(causes, new, old, subresource=subresource)
            return causes + _table_problems(group, kind, new, old, known=causes)
        check(causes, new, old)
        if causes and old is not None:
            # Like the tables below: errors of the old object are accepted.
            accepted = Causes()
            check(accepted, old, old)
            causes = Causes(cause for cause in causes if cause not in accepted)
        causes += _table_problems(group, kind, new, old, known=causes)
        if old is not None:
            immutable_problems(causes, group, kind, new, old)
        if old is not None and (group, kind) == _SIGNING_REQUEST:
            certificate_signing_requests.signing_change_problems(
                causes, new, old, subresource=subresource
            )
        return causes
    except (AttributeError, TypeError, ValueError):
        # Types are checked before. If an error is missed there, the client is at fault.
        return [errors.type_invalid("", kind, "a value in the object is of a wrong type")]


def _table_problems(
    group: str, kind: str, new: Object, old: Object | None, *, known: Causes
) -> list[StatusCause]:
    """Apply the tables to an object. Errors that the old object has too are accepted: rules were
    added over time, and it must stay possible to update stored objects."""
    walk = _walk_of(group, new.get("apiVersion") or "", kind)
    if walk is None or (old is not None and not has_other_content(new, old)):
        return []
    causes = Causes()
    walk(causes, "", new)
    if not causes:
        return []
    accepted = Causes(known)
    if old is not None:
        walk(accepted, "", old)
    return [cause for cause in causes if cause not in accepted]


def has_other_content(new: Object, old: Object) -> bool:
    """Whether more than metadata and status has changed."""
    return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()) - NO_CONTENT)


def _no_problems(_causes: Causes, _new: Object, _old: Object | None) -> None:
    """Accept every object: for kinds without rules."""


@lru_cache(WALKS_KEPT_MAX)
def _walk_of(group: str, api_version: str, kind: str) -> Walk | None:
    version = api_version.rpartition("/")[2]
    struct = all_types().of_kind(group, version, kind)
    return None if struct is None else walk_of(struct, _TABLES)
