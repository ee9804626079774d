"""Roles and bindings as they are stored, read for those who act on them.

What cannot be read is None, and gives nobody anything. Not here: whether such an object may be
stored (`restow.kinds.validation`), and what its rules mean (`rbac`).
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
    """The role that a binding gives."""

    kind: str = ""
    name: str = ""
    api_group: str = field(default="", name="apiGroup")


class Subject(Struct, frozen=True, omit_defaults=True):
    """Whom a binding gives it to."""

    kind: str = ""
    name: str = ""
    api_group: str = field(default="", name="apiGroup")
    namespace: str = ""

    def key(self, namespace: str) -> tuple[bool, str] | None:
        """Whether it is a group, and its name; an account is a user of a name that is made up of
        its own. None: it is nobody. `namespace` is that of the binding."""
        match self.kind:
            case "User":
                return False, self.name
            case "Group":
                return True, self.name
            case "ServiceAccount":
                place = self.namespace or namespace
                return (False, f"{_ACCOUNT_PREFIX}{place}:{self.name}") if place else None
        return None

    def described(self, namespace: str) -> str:
        """How a reason names it."""
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
    """Which cluster roles a cluster role gathers its rules from."""

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
        """Empty for one of the whole cluster."""
        return self.metadata.namespace

    def described(self, subject: Subject) -> str:
        """How a reason names it."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{name}/{self.namespace}"
        who = subject.described(self.namespace)
        return f'{kind} "{name}" of {self.role.kind} "{self.role.name}" to {who}'


T = TypeVar("T")


def read_role(obj: Any) -> Role | None:
    """A stored role; None for what is no such thing."""
    return _read(obj, Role)


def read_binding(obj: Any) -> RbacBinding | None:
    """A stored binding; None for what is no such thing."""
    return _read(obj, RbacBinding)


def rules_of(value: Any) -> tuple[PolicyRule, ...]:
    """A list of rules, as it is in a role that was found to be good."""
    return msgspec.convert(_filled(value) or (), tuple[PolicyRule, ...])


def rules_object(rules: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """Rules as they are written into a role."""
    return [
        {name: list(values) for name, values in msgspec.to_builtins(rule).items()} for rule in rules
    ]


def _read(obj: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(_filled(obj), kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def _filled(value: Any) -> Any:
    """A value without its nulls: a list that is null is empty."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return value
