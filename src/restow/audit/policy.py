"""Audit policy: rules that select the audit level of a request; the first matching rule applies.

    rules:
    - {level: None, nonResourceURLs: ["/healthz*"]}
    - {level: Request, resources: [{group: "", resources: ["configmaps"]}], verbs: ["update"]}
    - {level: Metadata}

It has no side effects. The rules that match a user are cached for all users with the same matching
rules (`RuleSet`), and the decision for each kind of request (`records.template_for`).

Not here: parsing of policy files (`policy_file`), and events (`auditor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from restow.request.context import User
from restow.request.request_info import RequestInfo

RULE_SETS_MAX: Final = 256
"""Maximum number of cached rule sets. Further ones are built for each call."""


Level: TypeAlias = int
"""The audit level. Each level includes the previous ones. Plain integers, because access to Enum
members costs more than all other work with them."""
NONE: Final = 0
METADATA: Final = 1
REQUEST: Final = 2
REQUEST_RESPONSE: Final = 3

LEVEL_NAMES: Final = ("None", "Metadata", "Request", "RequestResponse")
LEVELS: Final = {name: level for level, name in enumerate(LEVEL_NAMES)}

RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
PANIC: Final = "Panic"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, PANIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResources:
    """Resources of one API group: `pods`, `pods/log`, `pods/*`, `*/scale` or `*`."""

    group: str = ""
    resources: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def matches(self, info: RequestInfo) -> bool:
        if self.group not in (info.group, "*"):
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        return any(_resource_matches(each, info) for each in self.resources)


def _resource_matches(pattern: str, info: RequestInfo) -> bool:
    resource, subresource = info.resource, info.subresource
    if pattern in ("*", f"{resource}/{subresource}" if subresource else resource):
        return True
    if subresource and pattern == f"*/{subresource}":
        return True
    return pattern == f"{resource}/*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDecision:
    """The audit level and omitted stages of a request."""

    level: Level
    omitted: frozenset[str] = frozenset()
    """Stages that are not recorded."""
    omits_managed_fields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicyRule:
    """One rule. An empty field matches everything."""

    decision: AuditDecision
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def matches_user(self, user: User | None) -> bool:
        """Return whether the rule matches a user; None is an unauthenticated user."""
        if self.users and (user is None or user.name not in self.users):
            return False
        return not self.groups or (user is not None and not self.groups.isdisjoint(user.groups))

    def matches(self, info: RequestInfo) -> bool:
        """Return whether the rule matches a request, if it matches the user."""
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(each.matches(info) for each in self.resources)
        if self.paths:
            return not info.is_resource and any(
                _path_matches(each, info.path) for each in self.paths
            )
        return True

    @property
    def names_objects(self) -> bool:
        return any(each.names for each in self.resources)


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return pattern == path


class RuleSet:
    """The rules that match some users. `templates` caches their decisions by kind of request."""

    __slots__ = ("_default", "_rules", "names_objects", "templates")

    def __init__(self, rules: Sequence[AuditPolicyRule], default: AuditDecision) -> None:
        self._rules = tuple(rules)
        self._default = default
        self.names_objects = any(rule.names_objects for rule in rules)
        """Whether the decision can depend on the name of an object."""
        self.templates: dict[tuple[str, ...], Any] = {}

    def decide(self, info: RequestInfo) -> AuditDecision:
        return next((rule.decision for rule in self._rules if rule.matches(info)), self._default)


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """All rules, in order. A request that matches none is not recorded."""

    rules: tuple[AuditPolicyRule, ...]
    default: AuditDecision = AuditDecision(level=NONE)
    _sets: dict[tuple[int, ...], RuleSet] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_silent(self) -> bool:
        """Whether no rule records anything."""
        return all(rule.decision.level == NONE for rule in self.rules)

    def rules_for(self, user: User | None) -> RuleSet:
        """Return the rules that match a user: the same set for all users with the same rules."""
        matching = tuple(
            number for number, rule in enumerate(self.rules) if rule.matches_user(user)
        )
        found = self._sets.get(matching)
        if found is None:
            found = RuleSet([self.rules[number] for number in matching], self.default)
            if len(self._sets) < RULE_SETS_MAX:
                self._sets[matching] = found
        return found


_READS: Final = frozenset({"get", "list", "watch", "head", "options"})
_DEFAULT: Final = AuditDecision(level=METADATA, omitted=frozenset({RECEIVED}))


def default_policy() -> AuditPolicy:
    """Return the default policy: metadata of all writes and of reads of secrets, at stage
    ResponseComplete."""
    secrets = GroupResources(resources=("secrets", "secrets/*"))
    return AuditPolicy(
        (
            AuditPolicyRule(decision=_DEFAULT, verbs=_READS, resources=(secrets,)),
            AuditPolicyRule(decision=AuditDecision(level=NONE), verbs=_READS),
            AuditPolicyRule(decision=_DEFAULT),
        )
    )
