"""CEL functions of the authorizer, for admission expressions.

    authorizer.group('apps').resource('deployments').namespace('a').check('create').allowed()
    authorizer.path('/healthz').check('get').allowed()

Each step returns a more specific check; `check` performs it. The cost of a check limits an
expression to two of them.

Not here: the authorizer itself (`AuthorizerValue` holds a callback), and which expressions have
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from restow.apimachinery.name_formats import dns_label_problem, subdomain_problem
from restow.apimachinery.structural.cel.functions import TRAVERSAL, Overload, member
from restow.apimachinery.structural.cel.types import BOOL, STRING, Type
from restow.apimachinery.structural.cel.values import CelError, size_of

CHECK_COST: Final = 350_000
# The costs of a selector: to create it, and per requirement that it may have.
_SELECTOR_COST: Final = 10
_REQUIREMENT_COST: Final = 50
_REQUIREMENTS_OF_CHARACTER: Final = 1 / 2

AUTHORIZER: Final = Type("kubernetes.authorization.Authorizer")
PATH_CHECK: Final = Type("kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = Type("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = Type("kubernetes.authorization.ResourceCheck")
DECISION: Final = Type("kubernetes.authorization.Decision")


@dataclass(slots=True, frozen=True)
class Account:
    """A service account."""

    namespace: str
    name: str


@dataclass(slots=True, frozen=True, kw_only=True)
class AccessQuestion:
    """The attributes of an authorization check: about a path, or else about a resource."""

    verb: str
    account: Account | None = None
    """None means the user of the request."""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


Ask = Callable[[AccessQuestion], bool]


@dataclass(slots=True, frozen=True)
class AuthorizerValue:
    """An authorizer, optionally for a service account."""

    CEL_NAME: ClassVar = AUTHORIZER.name
    ask: Ask = field(repr=False)
    account: Account | None = None


@dataclass(slots=True, frozen=True)
class PathCheck:
    """A check of a non-resource path."""

    CEL_NAME: ClassVar = PATH_CHECK.name
    authorizer: AuthorizerValue
    path: str


@dataclass(slots=True, frozen=True)
class GroupCheck:
    """A check of the resources of a group."""

    CEL_NAME: ClassVar = GROUP_CHECK.name
    authorizer: AuthorizerValue
    group: str


@dataclass(slots=True, frozen=True, kw_only=True)
class ResourceCheck:
    """A check of a resource, or of one object of it."""

    CEL_NAME: ClassVar = RESOURCE_CHECK.name
    authorizer: AuthorizerValue
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


@dataclass(slots=True, frozen=True)
class AuthorizerDecision:
    """The decision of a check."""

    CEL_NAME: ClassVar = DECISION.name
    is_allowed: bool


def _path(authorizer: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(authorizer, path)


def _account(authorizer: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if subdomain_problem(name):
        raise CelError("Invalid service account name")
    if dns_label_problem(namespace):
        raise CelError("Invalid service account namespace")
    return AuthorizerValue(authorizer.ask, Account(namespace, name))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(authorizer=check.authorizer, group=check.group, resource=resource)


def _check_path(check: PathCheck, verb: str) -> AuthorizerDecision:
    authorizer = check.authorizer
    question = AccessQuestion(verb=verb, account=authorizer.account, path=check.path)
    return AuthorizerDecision(authorizer.ask(question))


def _check_resource(check: ResourceCheck, verb: str) -> AuthorizerDecision:
    authorizer = check.authorizer
    question = AccessQuestion(
        verb=verb,
        account=authorizer.account,
        group=check.group,
        resource=check.resource,
        subresource=check.subresource,
        namespace=check.namespace,
        name=check.name,
        field_selector=check.field_selector,
        label_selector=check.label_selector,
    )
    return AuthorizerDecision(authorizer.ask(question))


def _more(function: str, part: str) -> Overload:
    """Return the step that sets one more attribute of a resource check."""

    def add(check: ResourceCheck, value: str) -> ResourceCheck:
        more: dict[str, Any] = {part: value}
        return replace(check, **more)

    params = (RESOURCE_CHECK, STRING)
    return member(function, f"resourcecheck_{function.lower()}", params, RESOURCE_CHECK, add)


def _selector(function: str, part: str) -> Overload:
    found = _more(function, part)
    return replace(found, id=f"authorizer_{function.lower()}", cost=_selector_cost)


def _selector_cost(args: tuple[Any, ...], _: Any) -> int:
    length = size_of(args[1])
    requirements = math.ceil(length * _REQUIREMENTS_OF_CHARACTER)
    return _SELECTOR_COST + math.ceil(length * TRAVERSAL) + requirements * _REQUIREMENT_COST


def _fixed(args: tuple[Any, ...], _: Any) -> int:
    del args
    return CHECK_COST


def _check(id_: str, of: Type, run: Callable[..., AuthorizerDecision]) -> Overload:
    made = member("check", id_, (of, STRING), DECISION, run, _fixed)
    return replace(made, has_nominal_cost=True)


AUTHORIZATION: Final[list[Overload]] = [
    member("path", "authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path),
    member("group", "authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck),
    member(
        "serviceAccount",
        "authorizer_serviceaccount",
        (AUTHORIZER, STRING, STRING),
        AUTHORIZER,
        _account,
    ),
    member("resource", "groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource),
    _more("subresource", "subresource"),
    _more("namespace", "namespace"),
    _more("name", "name"),
    _selector("fieldSelector", "field_selector"),
    _selector("labelSelector", "label_selector"),
    _check("pathcheck_check", PATH_CHECK, _check_path),
    _check("resourcecheck_check", RESOURCE_CHECK, _check_resource),
    member("allowed", "decision_allowed", (DECISION,), BOOL, lambda decision: decision.is_allowed),
    # Checks return only allow or deny, without a reason or an error.
    member("reason", "decision_reason", (DECISION,), STRING, lambda _: ""),
    member("errored", "decision_errored", (DECISION,), BOOL, lambda _: False),
    member("error", "decision_error", (DECISION,), STRING, lambda _: ""),
]
