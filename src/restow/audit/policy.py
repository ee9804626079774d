"""Which requests are written down, and how much of them: rules; the first that fits counts.

    rules:
    - {level: None, nonResourceURLs: ["/healthz*"]}
    - {level: Request, resources: [{group: "", resources: ["configmaps"]}], verbs: ["update"]}
    - {level: Metadata}

Pure. Users are few and rules are fewer, so that what the rules say is found once for all users whom
the same rules fit (`RuleSet`), and for each kind of request (`records.kind_of`).

Not here: how a file becomes rules (`policy_file`), and what is written (`auditor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from restow.request.context import User
from restow.request.request_info import RequestInfo

RULE_SETS_MAX: Final = 256
"""Sets of rules that fit some user. More are worked out anew each time."""


Level: TypeAlias = int
"""How much of a request is written down. Each has what those before it have. Plain numbers: members
of an Enum cost more to read than all else that is done with them."""
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

    def fit(self, info: RequestInfo) -> bool:
        if self.group not in (info.group, "*"):
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        return any(_resource_fits(each, info) for each in self.resources)


def _resource_fits(pattern: str, info: RequestInfo) -> bool:
    resource, subresource = info.resource, info.subresource
    if pattern in ("*", f"{resource}/{subresource}" if subresource else resource):
        return True
    if subresource and pattern == f"*/{subresource}":
        return True
    return pattern == f"{resource}/*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDecision:
    """What is written down of a request."""

    level: Level
    omitted: frozenset[str] = frozenset()
    """Stages of which nothing is written."""
    omits_managed_fields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicyRule:
    """Which requests, and what of them. What is empty fits everything."""

    decision: AuditDecision
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def fits_user(self, user: User | None) -> bool:
        """Whether it is about this user; None is somebody who could not show who it is."""
        if self.users and (user is None or user.name not in self.users):
            return False
        return not self.groups or (user is not None and not self.groups.isdisjoint(user.groups))

    def fits(self, info: RequestInfo) -> bool:
        """Whether it is about such a request, of a user whom it fits."""
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(each.fit(info) for each in self.resources)
        if self.paths:
            return not info.is_resource and any(_path_fits(each, info.path) for each in self.paths)
        return True

    @property
    def names_objects(self) -> bool:
        return any(each.names for each in self.resources)


def _path_fits(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return pattern == path


class RuleSet:
    """The rules that fit some users. `kinds` is for what they say of the requests seen so far."""

    __slots__ = ("_otherwise", "_rules", "kinds", "names_objects")

    def __init__(self, rules: Sequence[AuditPolicyRule], otherwise: AuditDecision) -> None:
        self._rules = tuple(rules)
        self._otherwise = otherwise
        self.names_objects = any(rule.names_objects for rule in rules)
        """Whether requests that differ in the name of an object alone can differ in the rule."""
        self.kinds: dict[tuple[str, ...], Any] = {}

    def decide(self, info: RequestInfo) -> AuditDecision:
        return next((rule.decision for rule in self._rules if rule.fits(info)), self._otherwise)


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """All rules, in order. What none of them fits is not written down."""

    rules: tuple[AuditPolicyRule, ...]
    otherwise: AuditDecision = AuditDecision(level=NONE)
    _sets: dict[tuple[int, ...], RuleSet] = field(default_factory=dict, compare=False, repr=False)

    def rules_for(self, user: User | None) -> RuleSet:
        """The rules that fit a user: one set for all whom the same ones fit."""
        fitting = tuple(number for number, rule in enumerate(self.rules) if rule.fits_user(user))
        found = self._sets.get(fitting)
        if found is None:
            found = RuleSet([self.rules[number] for number in fitting], self.otherwise)
            if len(self._sets) < RULE_SETS_MAX:
                self._sets[fitting] = found
        return found


_READS: Final = frozenset({"get", "list", "watch", "head", "options"})
_DEFAULT: Final = AuditDecision(level=METADATA, omitted=frozenset({RECEIVED}))


def default_policy() -> AuditPolicy:
    """Every write, and every look at a secret; no bodies. Once, when it has been answered."""
    secrets = GroupResources(resources=("secrets", "secrets/*"))
    return AuditPolicy(
        (
            AuditPolicyRule(decision=_DEFAULT, verbs=_READS, resources=(secrets,)),
            AuditPolicyRule(decision=AuditDecision(level=NONE), verbs=_READS),
            AuditPolicyRule(decision=_DEFAULT),
        )
    )
