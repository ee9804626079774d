"""RBAC: authorization by roles and bindings.

Decisions are cached by user and kind of request: all, none or some object names are allowed, until
a role or binding changes. Roles and bindings come from the watch cache, so a change takes effect
when this server receives its event.

Users in `system:masters` may do everything regardless of roles, so that administrators cannot lock
themselves out.

Not here: the rules (`restow.apimachinery.rbac`), and who may write roles
(`restow.admission.escalation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from restow.aio import Runtime
from restow.aio.events import EventChannel
from restow.apimachinery.name_formats import path_segment_problem
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import GROUP, RoleRef
from restow.apimachinery.selectors import parse_field_selector
from restow.apimachinery.status_error import StatusError
from restow.authorization.authorizer import always_allowed
from restow.authorization.role_index import PLURALS, RoleIndex
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import ResourceStore
from restow.registry.store_informer import InformedCache, StoreInformer
from restow.request.context import User
from restow.request.request_info import RequestInfo

DECISIONS_MAX: Final = 10_000
"""Maximum number of cached decisions. Clients choose the key, so the cache must be limited."""
KEY_LENGTH_MAX: Final = 1_024
"""Maximum length of a cached key; in an access review the values may have any length."""
ERRORS_SHOWN_MAX: Final = 5

_ALL_NAMES: Final = None
_Names = frozenset[str] | None
"""The allowed object names; None: all."""
_DecisionKey = tuple[str, tuple[str, ...], str, str, str, str, str]


class _Decision(NamedTuple):
    """The decision for all requests that differ only in the object name."""

    names: _Names
    reasons: tuple[tuple[_Names, str], ...]
    """Allowed names with the reason, up to the first rule that allows all names."""
    error: str
    """The missing roles, for the message of a denied request."""


class Rbac(InformedCache):
    """The authorizer of a cluster. Call `start` before use and `close` at the end. Satisfies
    `Authorizer` and `CacheableAuthorizer`."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        defaults: Iterable[tuple[str, str, Object]] = (),
    ) -> None:
        self._index = RoleIndex(defaults)
        self.changed: EventChannel[[]] = EventChannel()
        """Called when a role or binding has changed."""
        self._decisions: dict[_DecisionKey, _Decision] = {}
        self._informers = [
            StoreInformer(
                store,
                resource,
                runtime,
                on_object=partial(self._index.put, plural),
                on_changed=self._invalidate,
            )
            for plural in PLURALS
            if (resource := catalog.named(GROUP, plural)) is not None
        ]

    def _invalidate(self) -> None:
        """Clear the cache after a change of a role or binding."""
        self._decisions.clear()
        self.changed.emit()

    # Decisions.

    def allows(self, user: User, info: RequestInfo) -> bool:
        if user.is_master:
            return True
        if not info.is_resource:
            return always_allowed(user, info) or self._allows_path(user, info)
        names = self._decision(user, info).names
        if names is _ALL_NAMES:
            return True
        return bool(names) and name_of(info) in names

    def _decision(self, user: User, info: RequestInfo) -> _Decision:
        key = (
            user.name,
            user.groups,
            info.namespace,
            info.verb,
            info.group,
            info.resource,
            info.subresource,
        )
        found = self._decisions.get(key)
        if found is None:
            found = self._decide(user, info)
            if sum(map(len, key[2:])) <= KEY_LENGTH_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = found
        return found

    def _decide(self, user: User, info: RequestInfo) -> _Decision:
        found: set[str] = set()
        reasons: list[tuple[_Names, str]] = []
        errors: list[str] = []
        for grant in self._index.grants(user, info.namespace):
            if grant.error and grant.error not in errors:
                errors.append(grant.error)
            names = _names_in(grant.rules, info)
            if names is _ALL_NAMES or names:
                reasons.append((names, f"RBAC: allowed by {grant.source}"))
            if names is _ALL_NAMES:
                return _Decision(_ALL_NAMES, tuple(reasons), "")
            found |= names
        error = f"RBAC: {_joined(errors)}" if errors else ""
        return _Decision(frozenset(found), tuple(reasons), error)

    def _allows_path(self, user: User, info: RequestInfo) -> bool:
        return any(
            rule.allows_path(info.verb, info.path)
            for grant in self._index.grants(user, "")
            for rule in grant.rules
        )

    # Reasons and rules.

    def reason(self, user: User, info: RequestInfo) -> str:
        """Return why a request is allowed, or which roles are missing if it is denied; often
        empty."""
        if user.is_master or (not info.is_resource and always_allowed(user, info)):
            return ""
        if not info.is_resource:
            return self._reason_of_path(user, info)
        # The audit log calls this for each request, so use the cached decision.
        decision = self._decision(user, info)
        for names, reason in decision.reasons:
            if names is _ALL_NAMES or name_of(info) in names:
                return reason
        return decision.error

    def _reason_of_path(self, user: User, info: RequestInfo) -> str:
        errors: list[str] = []
        for grant in self._index.grants(user, ""):
            if any(rule.allows_path(info.verb, info.path) for rule in grant.rules):
                return f"RBAC: allowed by {grant.source}"
            if grant.error and grant.error not in errors:
                errors.append(grant.error)
        return f"RBAC: {_joined(errors)}" if errors else ""

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        """Return all rules of a user in a namespace, and which roles are missing."""
        rules: list[PolicyRule] = []
        errors: list[str] = []
        for grant in self._index.grants(user, namespace):
            rules += grant.rules
            if grant.error and grant.error not in errors:
                errors.append(grant.error)
        return rules, _joined(errors) if errors else ""

    def rules_of_role(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules of the role that a binding references, or None if it does not exist."""
        return self._index.rules_of(role, namespace)


def _names_in(rules: tuple[PolicyRule, ...], info: RequestInfo) -> _Names:
    """Return the object names for which the rules allow a request."""
    found: set[str] = set()
    for rule in rules:
        if rule.matches(info.verb, info.group, info.resource, info.subresource):
            if not rule.resource_names:
                return _ALL_NAMES
            found.update(rule.resource_names)
    return frozenset(found)


def name_of(info: RequestInfo) -> str:
    """Return the object name of a request: a list or watch may select one by `metadata.name`."""
    if info.name or info.verb not in ("list", "watch") or "fieldSelector" not in info.query:
        return info.name
    try:
        name = parse_field_selector(info.parameter("fieldSelector")).requires("metadata.name")
    except StatusError:
        return ""  # an allowed request gets the error from the handler
    return "" if name is None or path_segment_problem(name) else name


def _joined(texts: list[str]) -> str:
    """Join several errors like kube-apiserver."""
    shown = texts[:ERRORS_SHOWN_MAX]
    return shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"
