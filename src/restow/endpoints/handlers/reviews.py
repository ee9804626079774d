"""Reviews: SelfSubjectReview, access reviews, rules reviews and TokenReview; none is stored.

They are evaluated by the authenticators and the authorizer that also decide about requests. Not
here: validation of access reviews (`review_checks`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from restow.apimachinery import status
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import rules_object
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.review_checks import check_access, selector_errors
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.token_review import review_token
from restow.httpserver.response import HttpResponse
from restow.registry.long_work import WorkRunner
from restow.registry.resource import Object
from restow.registry.strategy import place
from restow.request.bodies import needs_thread, read_body
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo
from restow.request.responses import LongResponse, respond_object


async def review(server: Server, context: Context) -> HttpResponse:
    """POST of a review."""
    resource = resource_of(context)
    obj = await read_body(server.store, server.offload, context, resource)
    spec = obj.get("spec") or {}
    match resource.plural:
        case "selfsubjectreviews":
            obj["status"] = {"userInfo": user_info(context.user)}
        case "selfsubjectaccessreviews":
            obj["status"] = await _access(server, context, obj, context.user)
        case "subjectaccessreviews" | "localsubjectaccessreviews":
            obj["status"] = await _access(server, context, obj, _user_of(spec))
        case "selfsubjectrulesreviews":
            obj["status"] = _rules(server, context.user, spec.get("namespace") or "")
            obj["spec"] = {}
        case "tokenreviews":
            obj["status"] = review_token(server.access_reviewer, spec)
        case _:
            raise status.method_not_allowed(resource.kind.group_resource, context.info.verb)
    obj["metadata"].setdefault("creationTimestamp", None)
    if needs_thread(context):
        return LongResponse(201, partial(respond_object, context, 201, obj))
    return respond_object(context, 201, obj)


async def _access(server: Server, context: Context, obj: Object, user: User) -> dict[str, Any]:
    kind = resource_of(context).kind
    place(kind, obj["metadata"], context.info.namespace)
    runner = WorkRunner(server.offload.of(context), needs_thread(context))
    await runner.run(check_access, kind.group_kind, obj)
    spec = obj["spec"]
    wanted, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if wanted is not None:
        info = RequestInfo(
            method="",
            path="",
            verb=wanted.get("verb") or "",
            is_resource=True,
            group=wanted.get("group") or "",
            version=wanted.get("version") or "*",
            namespace=wanted.get("namespace") or "",
            resource=wanted.get("resource") or "",
            subresource=wanted.get("subresource") or "",
            name=wanted.get("name") or "",
        )
    else:
        info = RequestInfo(method="", path=path.get("path") or "", verb=path.get("verb") or "")
    found: dict[str, Any] = {"allowed": server.access_reviewer.allows(user, info)}
    if reason := server.access_reviewer.reason(user, info):
        found["reason"] = reason
    if wanted is not None and (errors := await runner.run(selector_errors, wanted)):
        found["evaluationError"] = errors
    return found


def _user_of(spec: dict[str, Any]) -> User:
    extra = spec.get("extra") or {}
    return User(
        spec.get("user") or "",
        tuple(spec.get("groups") or ()),
        spec.get("uid") or "",
        tuple((name, tuple(values or ())) for name, values in extra.items()),
    )


def _rules(server: Server, user: User, namespace: str) -> dict[str, Any]:
    if not namespace:
        raise status.bad_request("no namespace on request")
    rules, lack = server.access_reviewer.rules_of(user, namespace)
    # A rule for resources contains no paths, and a rule for paths no resources.
    found: dict[str, Any] = {
        "resourceRules": rules_object(
            PolicyRule(each.verbs, each.api_groups, each.resources, each.resource_names)
            for each in rules
            if each.resources
        ),
        "nonResourceRules": rules_object(
            PolicyRule(each.verbs, paths=each.paths) for each in rules if each.paths
        ),
        "incomplete": False,
    }
    if lack:
        found["evaluationError"] = lack
    return found


def user_info(user: User) -> dict[str, Any]:
    """A user as UserInfo in reviews."""
    info: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info
