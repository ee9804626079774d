"""The default RBAC roles and bindings of every cluster, as a table, and the objects made from it.

Names and rules are those of kube-apiserver, for the resources that are hosted here. Roles of
components that no restow cluster has (nodes, schedulers, a controller manager) are omitted; create
them together with such a component.

Data only. Not here: how they are written to the store (`roles`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from restow.apimachinery.rbac import EVERYTHING, PolicyRule, union
from restow.apimachinery.rbac_objects import AUTO_UPDATE, GROUP, rules_object
from restow.registry.resource import Object

LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
ANNOTATIONS: Final = {AUTO_UPDATE: "true"}
SYSTEM: Final = "kube-system"
AGGREGATION_ROUNDS_MAX: Final = 8
"""Limit of the depth of aggregation in the table, with a margin."""

_READ: Final = "get list watch"
_WRITE: Final = "create delete deletecollection patch update"
_READ_WRITE: Final = f"{_READ} {_WRITE}"
_PUBLIC: Final = "/healthz /livez /readyz /version /version/"


def _on(verbs: str, groups: str, resources: str, names: str = "") -> PolicyRule:
    """Return a rule for verbs on resources. A dash stands for the core group."""
    listed = tuple("" if each == "-" else each for each in groups.split())
    return PolicyRule(_sorted(verbs), listed, _sorted(resources), _sorted(names))


def _at(verbs: str, paths: str) -> PolicyRule:
    """Return a rule for verbs on non-resource URLs."""
    return PolicyRule(_sorted(verbs), paths=_sorted(paths))


def _sorted(words: str) -> tuple[str, ...]:
    return tuple(sorted(words.split()))


class DefaultRole(NamedTuple):
    """A role in the table."""

    name: str
    rules: tuple[PolicyRule, ...] = ()
    part_of: str = ""
    """The aggregated role that selects this role."""
    aggregates: str = ""
    """If set, the role is aggregated: it selects all roles whose `part_of` is this name."""
    namespace: str = ""


class DefaultBinding(NamedTuple):
    """A binding in the table: of groups to the cluster role with the same name."""

    name: str
    groups: tuple[str, ...]


_VIEW: Final = (
    _on(
        _READ,
        "-",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods"
        " replicationcontrollers replicationcontrollers/scale serviceaccounts services"
        " services/status",
    ),
    _on(
        _READ,
        "-",
        "bindings limitranges namespaces/status pods/log pods/status"
        " replicationcontrollers/status resourcequotas resourcequotas/status",
    ),
    # In a namespace, this is the permission to read that namespace.
    _on(_READ, "-", "namespaces"),
    _on(_READ, "- events.k8s.io", "events"),
    _on(_READ, "discovery.k8s.io", "endpointslices"),
    _on(
        _READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale"
        " deployments/status replicasets replicasets/scale replicasets/status statefulsets"
        " statefulsets/scale statefulsets/status",
    ),
    _on(_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    _on(_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    _on(_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    _on(_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    _on(
        _READ,
        "resource.k8s.io",
        "resourceclaims resourceclaims/status resourceclaimtemplates",
    ),
)
# Secrets are not in `view`, since a token in a Secret allows acting as another user.
_EDIT: Final = (
    _on(
        _READ,
        "-",
        "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
    ),
    _on("impersonate", "-", "serviceaccounts"),
    _on(_WRITE, "-", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    _on("create", "-", "pods/eviction"),
    _on(
        _WRITE,
        "-",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale"
        " secrets serviceaccounts services services/proxy",
    ),
    _on("create", "-", "serviceaccounts/token"),
    _on(_WRITE, "- events.k8s.io", "events"),
    _on(
        _WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets"
        " replicasets/scale statefulsets statefulsets/scale",
    ),
    _on(_WRITE, "autoscaling", "horizontalpodautoscalers"),
    _on(_WRITE, "batch", "cronjobs jobs"),
    _on(_WRITE, "policy", "poddisruptionbudgets"),
    _on(_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    _on(_READ_WRITE, "coordination.k8s.io", "leases"),
    _on(_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
)
_ADMIN: Final = (
    _on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    _on(_READ_WRITE, GROUP, "rolebindings roles"),
)

ROLES: Final = (
    DefaultRole("cluster-admin", EVERYTHING),
    # Read, write, and manage permissions: each role includes the previous one.
    DefaultRole("view", part_of="edit", aggregates="view"),
    DefaultRole("edit", part_of="admin", aggregates="edit"),
    DefaultRole("admin", aggregates="admin"),
    DefaultRole("system:aggregate-to-view", _VIEW, part_of="view"),
    DefaultRole("system:aggregate-to-edit", _EDIT, part_of="edit"),
    DefaultRole("system:aggregate-to-admin", _ADMIN, part_of="admin"),
    # Permissions of all clients, and of all authenticated clients.
    DefaultRole("system:public-info-viewer", (_at("get", _PUBLIC),)),
    DefaultRole(
        "system:discovery",
        (_at("get", f"{_PUBLIC} /api /api/* /apis /apis/* /openapi /openapi/*"),),
    ),
    DefaultRole(
        "system:basic-user",
        (
            _on(
                "create",
                "authorization.k8s.io",
                "selfsubjectaccessreviews selfsubjectrulesreviews",
            ),
            _on("create", "authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    DefaultRole(
        "system:monitoring",
        (
            _at(
                "get",
                "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*",
            ),
            _on("get", "-", "nodes/metrics"),
        ),
    ),
    # Discovery of the keys that sign service account tokens.
    DefaultRole(
        "system:service-account-issuer-discovery",
        (
            _at(
                "get",
                "/.well-known/openid-configuration /.well-known/openid-configuration/"
                " /openid/v1/jwks /openid/v1/jwks/",
            ),
        ),
    ),
    # For aggregated servers, which delegate authentication and authorization.
    DefaultRole(
        "system:auth-delegator",
        (
            _on("create", "authentication.k8s.io", "tokenreviews"),
            _on("create", "authorization.k8s.io", "subjectaccessreviews"),
        ),
    ),
    DefaultRole("system:kube-aggregator", (_on(_READ, "-", "endpoints services"),)),
    DefaultRole(
        "extension-apiserver-authentication-reader",
        (_on(_READ, "-", "configmaps", "extension-apiserver-authentication"),),
        namespace=SYSTEM,
    ),
)

BINDINGS: Final = (
    DefaultBinding("cluster-admin", ("system:masters",)),
    DefaultBinding("system:monitoring", ("system:monitoring",)),
    DefaultBinding("system:discovery", ("system:authenticated",)),
    DefaultBinding("system:basic-user", ("system:authenticated",)),
    DefaultBinding("system:public-info-viewer", ("system:authenticated", "system:unauthenticated")),
    DefaultBinding("system:service-account-issuer-discovery", ("system:serviceaccounts",)),
)


class Default(NamedTuple):
    """An object made from the table."""

    plural: str
    path: str
    obj: Object


def default_objects() -> list[Default]:
    """Return all objects of the table, the roles first, with their aggregated rules."""
    rules_of_roles = _aggregated_rules()
    found = [_role(each, rules_of_roles[each.name]) for each in ROLES]
    return [*found, *(_binding(each) for each in BINDINGS)]


def _aggregated_rules() -> dict[str, tuple[PolicyRule, ...]]:
    """Return the rules of each role, including aggregated ones."""
    rules = {each.name: each.rules for each in ROLES}
    for _ in range(AGGREGATION_ROUNDS_MAX):
        for role in ROLES:
            if role.aggregates:
                parts = sorted(each.name for each in ROLES if each.part_of == role.aggregates)
                rules[role.name] = union(rule for part in parts for rule in rules[part])
    return rules


def _role(role: DefaultRole, rules: tuple[PolicyRule, ...]) -> Default:
    metadata: dict[str, Any] = {
        "name": role.name,
        "labels": dict(LABELS),
        "annotations": dict(ANNOTATIONS),
    }
    if role.part_of:
        metadata["labels"][_label(role.part_of)] = "true"
    obj: Object = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Role" if role.namespace else "ClusterRole",
        "metadata": metadata,
        "rules": rules_object(rules),
    }
    if role.aggregates:
        selector = {"matchLabels": {_label(role.aggregates): "true"}}
        obj["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    if not role.namespace:
        return Default("clusterroles", role.name, obj)
    metadata["namespace"] = role.namespace
    return Default("roles", f"{role.namespace}/{role.name}", obj)


def _binding(binding: DefaultBinding) -> Default:
    obj: Object = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": binding.name,
            "labels": dict(LABELS),
            "annotations": dict(ANNOTATIONS),
        },
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": binding.name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": each} for each in binding.groups],
    }
    return Default("clusterrolebindings", binding.name, obj)


def _label(role: str) -> str:
    """Return the label by which an aggregated role selects a role."""
    return f"{GROUP}/aggregate-to-{role}"
