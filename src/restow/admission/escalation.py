"""Privilege escalation check: runs for each write of a role or binding.

A user who writes a role must hold all of its rules, or have the verb `escalate` on it. A user who
writes a binding must hold all rules of the role that it references, or have the verb `bind` on that
role. A cluster role with an aggregation rule requires all rights, because any rule may be
aggregated into it.

Users in `system:masters` are exempt. Finalizers and owner references may be changed without the
check, or garbage collection could not work. As an admission plug-in it runs for every write,
including dry runs.

Not here: which rules cover which (`restow.apimachinery.rbac`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from restow.admission.review import Attributes, WriteOf
from restow.apimachinery import rbac, status
from restow.apimachinery.names import GroupResource
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import GROUP, RoleRef, rules_of
from restow.authorization.rbac import Rbac
from restow.authorization.role_index import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from restow.registry.resource import Object
from restow.request.request_info import access_question

MISSING_SHOWN_MAX: Final = 100
"""Maximum number of missing rules that an error message lists."""
_KINDS: Final = frozenset({ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS})
_NEEDS_ALL: Final = "must have cluster-admin privileges to use the aggregationRule"
# Metadata that may change without the check.
_EXEMPT_METADATA: Final = (
    "ownerReferences",
    "finalizers",
    "selfLink",
    "managedFields",
    "resourceVersion",
)


class EscalationCheck:
    """Refuse roles and bindings that grant rights which the user does not hold. Satisfies
    `Admission`."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def concerns(self, write: WriteOf) -> bool:
        kind = write.resource.kind
        return write.operation != "DELETE" and kind.group == GROUP and kind.plural in _KINDS

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.user.is_master or attributes.obj is None:
            return None
        if attributes.old is not None and changes_only_metadata(attributes.obj, attributes.old):
            return None
        return self._check(attributes, attributes.obj)

    async def _check(self, attributes: Attributes, obj: Object) -> None:
        # Wait for the latest roles and bindings, so that rights granted or removed just before
        # count.
        await self._rbac.freshen()
        if attributes.resource.plural in (ROLES, CLUSTER_ROLES):
            self._check_role(attributes, obj)
        else:
            self._check_binding(attributes, obj)

    def _check_role(self, attributes: Attributes, obj: Object) -> None:
        info = attributes.context.info
        if self._is_allowed(attributes, "escalate", info.resource, name=info.name):
            return
        self._check_held(attributes, rules_of(obj.get("rules")))
        aggregates = _has_aggregation_rule(obj) or (
            attributes.old is not None and _has_aggregation_rule(attributes.old)
        )
        if aggregates and self._missing(attributes, rbac.EVERYTHING)[0]:
            raise _forbidden(attributes, _NEEDS_ALL)

    def _check_binding(self, attributes: Attributes, obj: Object) -> None:
        role = msgspec.convert(obj.get("roleRef") or {}, RoleRef)
        plural = CLUSTER_ROLES if role.kind == "ClusterRole" else ROLES
        if self._is_allowed(attributes, "bind", plural, name=role.name):
            return
        rules = self._rbac.rules_of_role(role, attributes.namespace)
        if rules is None:
            raise status.not_found(GroupResource(GROUP, plural), role.name)
        self._check_held(attributes, rules)

    def _is_allowed(self, attributes: Attributes, verb: str, plural: str, *, name: str) -> bool:
        question = access_question(
            verb, group=GROUP, namespace=attributes.namespace, resource=plural, name=name
        )
        return self._rbac.allows(attributes.user, question)

    def _missing(
        self, attributes: Attributes, rules: tuple[PolicyRule, ...]
    ) -> tuple[list[PolicyRule], str]:
        held, resolution_errors = self._rbac.rules_of(attributes.user, attributes.namespace)
        return rbac.missing(held, rules), resolution_errors

    def _check_held(self, attributes: Attributes, rules: tuple[PolicyRule, ...]) -> None:
        missing, resolution_errors = self._missing(attributes, rules)
        if not missing:
            return
        lines = sorted({rbac.description(each) for each in rbac.compact(missing)})
        if len(lines) > MISSING_SHOWN_MAX:
            more = len(lines) - MISSING_SHOWN_MAX
            lines = [*lines[:MISSING_SHOWN_MAX], f"and {more} more"]
        user = attributes.user
        why = (
            f"user {rbac.quoted(user.name)} (groups={rbac.quoted_list(user.groups)}) is attempting"
            " to grant RBAC permissions not currently held:\n" + "\n".join(lines)
        )
        if resolution_errors:
            why += f"; resolution errors: [{resolution_errors}]"
        raise _forbidden(attributes, why)


def _forbidden(attributes: Attributes, why: str) -> status.StatusError:
    return status.forbidden(
        why, resource=attributes.resource.kind.group_resource, name=attributes.name
    )


def _has_aggregation_rule(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def changes_only_metadata(new: Object, old: Object) -> bool:
    """Return whether an update changes only owner references, finalizers and managed fields."""
    return bool(_without_exempt_metadata(new) == _without_exempt_metadata(old))


def _without_exempt_metadata(obj: Object) -> Any:
    metadata = {
        name: each for name, each in obj["metadata"].items() if name not in _EXEMPT_METADATA
    }
    return {**obj, "metadata": metadata}
