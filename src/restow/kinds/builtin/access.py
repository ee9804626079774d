"""Authentication and authorization: RBAC, certificates, reviews of tokens and of access.

The server evaluates reviews and never stores them.

Only rows. `restow.kinds.kind` documents the columns.
"""

from __future__ import annotations

from typing import Final

from restow.kinds.kind import (
    STATUS,
    VERBS_REVIEW,
    VERBS_STATUS,
    Kind,
    Subresource,
    declare,
    selectable,
)

_RBAC: Final = "rbac.authorization.k8s.io"
_APPROVAL: Final = Subresource(name="approval", verbs=VERBS_STATUS)


def _rbac(kind: str, *, namespaced: bool) -> Kind:
    return declare(
        _RBAC,
        kind,
        versions="v1 v1beta1",
        namespaced=namespaced,
        create_on_update=True,
        name_rule="path-segment",
        required=True,
    )


def _review(group: str, kind: str, *, namespaced: bool = False) -> Kind:
    return declare(
        group, kind, namespaced=namespaced, verbs=VERBS_REVIEW, persisted=False, required=True
    )


KINDS: Final = (
    declare(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        versions="v1 v1beta1",
        short="csr",
        namespaced=False,
        subresources=(_APPROVAL, STATUS),
        selectable=selectable("spec.signerName"),
    ),
    _rbac("ClusterRole", namespaced=False),
    _rbac("ClusterRoleBinding", namespaced=False),
    _rbac("Role", namespaced=True),
    _rbac("RoleBinding", namespaced=True),
    _review("authentication.k8s.io", "SelfSubjectReview"),
    _review("authentication.k8s.io", "TokenReview"),
    _review("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _review("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review("authorization.k8s.io", "SubjectAccessReview"),
)
