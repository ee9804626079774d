"""Nobody gives more than they have: asked about each write of a role or binding.

Who writes a role must hold all of its rules, or have the right to `escalate`; who writes a binding
must hold all rules of the role that it names, or have the right to `bind` that role. A cluster role
that gathers others is for those who hold everything, because it may come to have anything.

Only masters are not asked. What finalizers and owners say may be changed without it, or nobody
could clean up. A plug-in of admission, so that it is asked on every way on which an object is
written, of a dry run too. Not here: what covers what (`restow.apimachinery.rbac`).
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
"""How many lines of what is missing a refusal shows."""
_KINDS: Final = frozenset({ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS})
_NEEDS_ALL: Final = "must have cluster-admin privileges to use the aggregationRule"
# What a write may change of what somebody else has given, besides the version that is compared.
_UPKEEP: Final = ("ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion")


class EscalationCheck:
    """Refuses to give what is not held. Satisfies `Admission`."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def concerns(self, write: WriteOf) -> bool:
        kind = write.resource.kind
        return write.operation != "DELETE" and kind.group == GROUP and kind.plural in _KINDS

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.user.is_master or attributes.obj is None:
            return None
        if attributes.old is not None and is_upkeep(attributes.obj, attributes.old):
            return None
        return self._check(attributes, attributes.obj)

    async def _check(self, attributes: Attributes, obj: Object) -> None:
        # Who has just been given something, or lost it, must not be judged by what they had.
        await self._rbac.freshen()
        if attributes.resource.plural in (ROLES, CLUSTER_ROLES):
            self._check_role(attributes, obj)
        else:
            self._check_binding(attributes, obj)

    def _check_role(self, attributes: Attributes, obj: Object) -> None:
        info = attributes.context.info
        if self._may(attributes, "escalate", info.resource, name=info.name):
            return
        self._check_held(attributes, rules_of(obj.get("rules")))
        gathers = _gathers(obj) or (attributes.old is not None and _gathers(attributes.old))
        if gathers and self._missing(attributes, rbac.EVERYTHING)[0]:
            raise _forbidden(attributes, _NEEDS_ALL)

    def _check_binding(self, attributes: Attributes, obj: Object) -> None:
        role = msgspec.convert(obj.get("roleRef") or {}, RoleRef)
        plural = CLUSTER_ROLES if role.kind == "ClusterRole" else ROLES
        if self._may(attributes, "bind", plural, name=role.name):
            return
        rules = self._rbac.rules_of_role(role, attributes.namespace)
        if rules is None:
            raise status.not_found(GroupResource(GROUP, plural), role.name)
        self._check_held(attributes, rules)

    def _may(self, attributes: Attributes, verb: str, plural: str, *, name: str) -> bool:
        question = access_question(
            verb, group=GROUP, namespace=attributes.namespace, resource=plural, name=name
        )
        return self._rbac.allows(attributes.user, question)

    def _missing(
        self, attributes: Attributes, rules: tuple[PolicyRule, ...]
    ) -> tuple[list[PolicyRule], str]:
        held, lack = self._rbac.rules_of(attributes.user, attributes.namespace)
        return rbac.missing(held, rules), lack

    def _check_held(self, attributes: Attributes, rules: tuple[PolicyRule, ...]) -> None:
        missing, lack = self._missing(attributes, rules)
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
        if lack:
            why += f"; resolution errors: [{lack}]"
        raise _forbidden(attributes, why)


def _forbidden(attributes: Attributes, why: str) -> status.StatusError:
    return status.forbidden(
        why, resource=attributes.resource.kind.group_resource, name=attributes.name
    )


def _gathers(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def is_upkeep(new: Object, old: Object) -> bool:
    """Whether a write changes nothing but who owns an object and what holds it."""
    return bool(_without_upkeep(new) == _without_upkeep(old))


def _without_upkeep(obj: Object) -> Any:
    metadata = {name: each for name, each in obj["metadata"].items() if name not in _UPKEEP}
    return {**obj, "metadata": metadata}
