"""RBAC: roles and bindings decide what users may do.

What is asked again and again is answered from memory: for a user and a kind of request it is known
whether all, none or some names are allowed, until a role or binding changes. Roles are followed in
the watch cache, so a change counts as soon as this server has heard of it.

Masters may do everything, whatever roles say: so that nobody can lock everybody out. Not here: the
rules themselves (`restow.apimachinery.rbac`), and who may write roles (`escalation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from restow.aio import Runtime
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
from restow.registry.store_informer import StoreInformer
from restow.request.context import User
from restow.request.request_info import RequestInfo

DECISIONS_MAX: Final = 10_000
"""How many are remembered. What is asked for is the client's text: more are worked out anew."""
ASKED_LENGTH_MAX: Final = 1_024
"""Of the words of a question that is remembered: in a review they are as long as anybody likes."""
LACKS_SHOWN_MAX: Final = 5

_ALL_NAMES: Final = None
_Names = frozenset[str] | None
"""The names that are allowed, or all."""
_Asked = tuple[str, tuple[str, ...], str, str, str, str, str]


class _Decision(NamedTuple):
    """What is known of all requests that differ in nothing but the object."""

    names: _Names
    grounds: tuple[tuple[_Names, str], ...]
    """Which names are allowed by what, up to what allows all."""
    lack: str
    """What is wrong with the roles of those who are refused."""


class Rbac:
    """The authorizer of a cluster. `start` it, `close` it. Satisfies `Authorizer`, `Lasting`."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        defaults: Iterable[tuple[str, str, Object]] = (),
    ) -> None:
        self._book = RoleIndex(defaults)
        self.listeners: Final[list[Callable[[], None]]] = []
        """Called when a role or binding has changed."""
        self._decisions: dict[_Asked, _Decision] = {}
        self._followings = [
            StoreInformer(
                store,
                resource,
                runtime,
                on_object=partial(self._book.put, plural),
                on_changed=self._forget,
            )
            for plural in PLURALS
            if (resource := catalog.named(GROUP, plural)) is not None
        ]

    def _forget(self) -> None:
        """A role or binding has changed."""
        self._decisions.clear()
        for tell in self.listeners:
            tell()

    async def start(self) -> None:
        """Know all roles and bindings. Raises a StatusError when they cannot be read."""
        for each in self._followings:
            await each.start()

    async def close(self) -> None:
        for each in self._followings:
            await each.close()

    async def freshen(self) -> None:
        """Wait until all is known that was acknowledged before. Raises a StatusError."""
        for each in self._followings:
            await each.freshen()

    # What is asked for each request.

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
        asked = (
            user.name,
            user.groups,
            info.namespace,
            info.verb,
            info.group,
            info.resource,
            info.subresource,
        )
        found = self._decisions.get(asked)
        if found is None:
            found = self._decide(user, info)
            if sum(map(len, asked[2:])) <= ASKED_LENGTH_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[asked] = found
        return found

    def _decide(self, user: User, info: RequestInfo) -> _Decision:
        found: set[str] = set()
        grounds: list[tuple[_Names, str]] = []
        lacks: list[str] = []
        for grant in self._book.grants(user, info.namespace):
            if grant.lack and grant.lack not in lacks:
                lacks.append(grant.lack)
            names = _names_in(grant.rules, info)
            if names is _ALL_NAMES or names:
                grounds.append((names, f"RBAC: allowed by {grant.source}"))
            if names is _ALL_NAMES:
                return _Decision(_ALL_NAMES, tuple(grounds), "")
            found |= names
        lack = f"RBAC: {_together(lacks)}" if lacks else ""
        return _Decision(frozenset(found), tuple(grounds), lack)

    def _allows_path(self, user: User, info: RequestInfo) -> bool:
        return any(
            rule.allows_path(info.verb, info.path)
            for grant in self._book.grants(user, "")
            for rule in grant.rules
        )

    # What people and reviews ask.

    def reason(self, user: User, info: RequestInfo) -> str:
        """Why a request is allowed, or what stands in the way of it; often there is nothing to
        say."""
        if user.is_master or (not info.is_resource and always_allowed(user, info)):
            return ""
        if not info.is_resource:
            return self._reason_of_path(user, info)
        # The audit log asks for each request.
        decision = self._decision(user, info)
        for names, ground in decision.grounds:
            if names is _ALL_NAMES or name_of(info) in names:
                return ground
        return decision.lack

    def _reason_of_path(self, user: User, info: RequestInfo) -> str:
        lacks: list[str] = []
        for grant in self._book.grants(user, ""):
            if any(rule.allows_path(info.verb, info.path) for rule in grant.rules):
                return f"RBAC: allowed by {grant.source}"
            if grant.lack and grant.lack not in lacks:
                lacks.append(grant.lack)
        return f"RBAC: {_together(lacks)}" if lacks else ""

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        """All rules that a user has in a namespace, and what else there should be."""
        rules: list[PolicyRule] = []
        lacks: list[str] = []
        for grant in self._book.grants(user, namespace):
            rules += grant.rules
            if grant.lack and grant.lack not in lacks:
                lacks.append(grant.lack)
        return rules, _together(lacks) if lacks else ""

    def rules_of_role(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding names; None: there is no such role."""
        return self._book.rules_of(role, namespace)


def _names_in(rules: tuple[PolicyRule, ...], info: RequestInfo) -> _Names:
    """The names of which rules allow what a request is about."""
    found: set[str] = set()
    for rule in rules:
        if rule.matches(info.verb, info.group, info.resource, info.subresource):
            if not rule.resource_names:
                return _ALL_NAMES
            found.update(rule.resource_names)
    return frozenset(found)


def name_of(info: RequestInfo) -> str:
    """The one object that a request is about: a list or watch may ask for one by its name."""
    if info.name or info.verb not in ("list", "watch") or "fieldSelector" not in info.query:
        return info.name
    try:
        name = parse_field_selector(info.parameter("fieldSelector")).requires("metadata.name")
    except StatusError:
        return ""  # it will be told what is wrong with it, once it is allowed
    return "" if name is None or path_segment_problem(name) else name


def _together(texts: list[str]) -> str:
    """Several errors, as the reference writes them in one line."""
    shown = texts[:LACKS_SHOWN_MAX]
    return shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"
