"""Stored RBAC roles and bindings, parsed for authorization.

An object that cannot be parsed is None, and grants nothing. Not here: validation of such objects
(`restow.kinds.validation`), and the meaning of their rules (`rbac`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field

from restow.apimachinery.rbac import PolicyRule

GROUP: Final = "rbac.authorization.k8s.io"
AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
ACCOUNT: Final = "ServiceAccount"
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"


class RoleRef(Struct, frozen=True):
    """The role that a binding grants."""

    kind: str = ""
    name: str = ""
    api_group: str = field(default="", name="apiGroup")


class Subject(Struct, frozen=True, omit_defaults=True):
    """A subject to which a binding grants the role."""

    kind: str = ""
    name: str = ""
    api_group: str = field(default="", name="apiGroup")
    namespace: str = ""

    def key(self, namespace: str) -> tuple[bool, str] | None:
        """Return whether the subject is a group, and its name; None if it matches no one.

        A service account is a user with a derived name. `namespace` is that of the binding.
        """
        match self.kind:
            case "User":
                return False, self.name
            case "Group":
                return True, self.name
            case "ServiceAccount":
                account_namespace = self.namespace or namespace
                return (
                    (False, f"{_ACCOUNT_PREFIX}{account_namespace}:{self.name}")
                    if account_namespace
                    else None
                )
        return None

    def described(self, namespace: str) -> str:
        """Format the subject for the reason of a decision."""
        name = self.name
        if self.kind == ACCOUNT:
            name = f"{name}/{self.namespace or namespace}"
        return f'{self.kind} "{name}"'


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class AggregationRule(Struct, frozen=True):
    """The ClusterRoles from which a ClusterRole aggregates its rules."""

    selectors: tuple[dict[str, Any], ...] = field(default=(), name="clusterRoleSelectors")


class Role(Struct, frozen=True):
    """A Role or a ClusterRole."""

    metadata: _Metadata = field(default_factory=_Metadata)
    rules: tuple[PolicyRule, ...] = ()
    aggregation: AggregationRule | None = field(default=None, name="aggregationRule")


class RbacBinding(Struct, frozen=True):
    """A RoleBinding or a ClusterRoleBinding."""

    metadata: _Metadata = field(default_factory=_Metadata)
    role: RoleRef = field(default_factory=RoleRef, name="roleRef")
    subjects: tuple[Subject, ...] = ()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Empty for a ClusterRoleBinding."""
        return self.metadata.namespace

    def described(self, subject: Subject) -> str:
        """Format the binding for the reason of a decision."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{name}/{self.namespace}"
        who = subject.described(self.namespace)
        return f'{kind} "{name}" of {self.role.kind} "{self.role.name}" to {who}'


T = TypeVar("T")


def read_role(obj: Any) -> Role | None:
    """Parse a stored role; None if it is invalid."""
    return _read(obj, Role)


def read_binding(obj: Any) -> RbacBinding | None:
    """Parse a stored binding; None if it is invalid."""
    return _read(obj, RbacBinding)


def rules_of(value: Any) -> tuple[PolicyRule, ...]:
    """Parse a list of rules of a valid role."""
    return msgspec.convert(_filled(value) or (), tuple[PolicyRule, ...])


def rules_object(rules: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """Encode rules for a role object."""
    return [
        {name: list(values) for name, values in msgspec.to_builtins(rule).items()} for rule in rules
    ]


def _read(obj: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(_filled(obj), kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def _filled(value: Any) -> Any:
    """Remove nulls: a list that is null is empty."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return value
