"""Kinds that configure the server itself: admission, extension, flow control, leases.

Also those for storage versions: StorageVersions, votes, StorageStates, and migrations in both
groups.

Only rows. `restow.kinds.kind` documents the columns.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.kind import STATUS, VERBS_REVIEW, Kind, Subresource, declare

_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_OF_EXTENSION: Final[dict[str, Any]] = {
    "namespaced": False,
    "categories": "api-extensions",
    "unconditional_update": False,
    "behaviour_missing": True,
}
# One stored version in all releases: the servers agree on versions through these objects.
_OF_AGREEMENT: Final[dict[str, Any]] = {
    "namespaced": False,
    "unconditional_update": False,
    "pinned": True,
    "required": True,
}
_OF_STATE: Final[dict[str, Any]] = {
    **_OF_AGREEMENT,
    "subresources": (STATUS,),
    "status_keeps_metadata": True,
}
# Rewrites one page of the migration's resource on the server. Kubernetes does not have it: clients
# that do not find it in discovery send patches.
_REWRITE: Final = Subresource(
    name="rewrite", verbs=("create",), kind="RewriteResult", body_kind="RewriteRequest"
)
# Aggregated servers with their own store report their storage versions here; peers delete them.
_REPORT: Final = Subresource(name="report", verbs=("create", "delete"), kind="StorageVersionReport")
_OF_MIGRATION: Final[dict[str, Any]] = {**_OF_STATE, "subresources": (STATUS, _REWRITE)}


def _admission(
    kind: str,
    plural: str = "",
    *,
    versions: str,
    storage: str = "",
    subresources: tuple[Subresource, ...] = (),
    behaviour_missing: bool = False,
) -> Kind:
    return declare(
        "admissionregistration.k8s.io",
        kind,
        plural,
        versions=versions,
        storage=storage,
        subresources=subresources,
        tracks_generation=True,
        status_keeps_metadata=True,
        **{**_OF_EXTENSION, "behaviour_missing": behaviour_missing},
    )


def _flow_control(kind: str) -> Kind:
    return declare(
        _FLOW,
        kind,
        versions="v1 v1beta3 v1beta2 v1beta1",
        namespaced=False,
        subresources=(STATUS,),
        tracks_generation=True,
        status_keeps_metadata=True,
        behaviour_missing=True,
    )


KINDS: Final = (
    # The newest version of the mutating policies is served first and stored a release later.
    _admission(
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        versions="v1 v1beta1 v1alpha1",
        storage="v1beta1",
        behaviour_missing=True,
    ),
    _admission(
        "MutatingAdmissionPolicyBinding",
        versions="v1 v1beta1 v1alpha1",
        storage="v1beta1",
        behaviour_missing=True,
    ),
    _admission("MutatingWebhookConfiguration", versions="v1 v1beta1"),
    _admission(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        versions="v1 v1beta1 v1alpha1",
        subresources=(STATUS,),
    ),
    _admission("ValidatingAdmissionPolicyBinding", versions="v1 v1beta1 v1alpha1"),
    _admission("ValidatingWebhookConfiguration", versions="v1 v1beta1"),
    declare(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        short="crd crds",
        key_prefix="apiextensions.k8s.io/customresourcedefinitions",
        subresources=(STATUS,),
        tracks_generation=True,
        pinned=True,
        required=True,
        is_heavy=True,
        **{**_OF_EXTENSION, "behaviour_missing": False},
    ),
    declare(
        "apiregistration.k8s.io",
        "APIService",
        key_prefix="apiregistration.k8s.io/apiservices",
        subresources=(STATUS,),
        status_keeps_metadata=True,
        required=True,
        # The core group has no name, so its APIService is called `v1.`.
        name_rule="path-segment",
        **{**_OF_EXTENSION, "behaviour_missing": False},
    ),
    declare(
        "coordination.k8s.io",
        "Lease",
        versions="v1 v1beta1",
        unconditional_update=False,
        create_on_update=True,
        pinned=True,
        required=True,
    ),
    _flow_control("FlowSchema"),
    _flow_control("PriorityLevelConfiguration"),
    declare(
        # KEP-2339 3.4: every release serves StorageVersions
        "internal.apiserver.k8s.io",
        "StorageVersion",
        versions="v1alpha1",
        subresources=(STATUS, _REPORT),
        status_keeps_metadata=True,
        # The name has several parts, which validation checks, with its own messages.
        name_rule="path-segment",
        **_OF_AGREEMENT,
    ),
    # A group that stock Kubernetes does not build in keeps its name in the key.
    declare(
        # KEP-1201 0.1: every release serves the votes
        "kube-apiserver.internal.k8s.io",
        "StorageVersion",
        versions="v1alpha1",
        key_prefix="kube-apiserver.internal.k8s.io/storageversions",
        name_rule="path-segment",
        **_OF_AGREEMENT,
    ),
    declare(
        "migration.k8s.io",
        # KEP-2343 4.1: servers of restow have StorageStates built in
        "StorageState",
        versions="v1alpha1",
        key_prefix="migration.k8s.io/storagestates",
        **_OF_STATE,
    ),
    declare(
        "migration.k8s.io",
        "StorageVersionMigration",
        versions="v1alpha1",
        key_prefix="migration.k8s.io/storageversionmigrations",
        **_OF_MIGRATION,
    ),
    declare(
        "storage.restow.dev",
        "StorageScan",
        versions="v1alpha1",
        namespaced=False,
        verbs=VERBS_REVIEW,
        persisted=False,
        required=True,
    ),
    declare(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        versions="v1 v1beta1",
        served="v1 v1beta1",
        storage="v1beta1",
        **_OF_MIGRATION,
    ),
)
