"""Reviews: questions about users and rights, answered and forgotten.

SelfSubjectReview, SubjectAccessReview and its kin, TokenReview. They are answered by the same
authenticator and authorizer that decide about requests.
"""

from __future__ import annotations

from typing import Any, Protocol

from restow.machinery import field_errors, status
from restow.resources.definition import Object
from restow.serving.answers import respond_object
from restow.serving.context import Context, User
from restow.serving.handlers.bodies import read_object
from restow.serving.handlers.reading import resource_of
from restow.serving.handlers.server import Server
from restow.serving.listener.response import Promise
from restow.serving.request_info import RequestInfo


class Judge(Protocol):
    """Who knows about users and rights."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...

    def user_of(self, token: str) -> User | None: ...


def review(server: Server, context: Context) -> Promise:
    """POST of a review."""
    resource = resource_of(context)
    obj = read_object(context, resource)
    spec = obj.get("spec") or {}
    match resource.plural:
        case "selfsubjectreviews":
            obj["status"] = {"userInfo": _user_info(context.user)}
        case "selfsubjectaccessreviews":
            obj["status"] = _access(server, context, obj, spec, context.user)
        case "subjectaccessreviews" | "localsubjectaccessreviews":
            user = User(spec.get("user") or "", tuple(spec.get("groups") or ()))
            obj["status"] = _access(server, context, obj, spec, user)
        case "selfsubjectrulesreviews":
            obj["status"] = _rules(context.user)
        case "tokenreviews":
            obj["status"] = _token(server, spec)
        case _:
            raise status.method_not_allowed(resource.kind.group_resource, context.info.verb)
    obj["metadata"].setdefault("creationTimestamp", None)
    return respond_object(context, 201, obj)


def _access(
    server: Server, context: Context, obj: Object, spec: dict[str, Any], user: User
) -> dict[str, Any]:
    wanted, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if bool(wanted) is bool(path):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        cause = field_errors.invalid("spec.resourceAttributes", wanted, why)
        kind = resource_of(context).kind.group_kind
        raise status.invalid(kind, obj["metadata"].get("name") or "", [cause])
    if wanted:
        info = RequestInfo(
            method="",
            path="",
            verb=wanted.get("verb") or "",
            is_resource=True,
            group=wanted.get("group") or "",
            version=wanted.get("version") or "",
            namespace=wanted.get("namespace") or "",
            resource=wanted.get("resource") or "",
            subresource=wanted.get("subresource") or "",
            name=wanted.get("name") or "",
        )
    else:
        assert path is not None
        info = RequestInfo(method="", path=path.get("path") or "", verb=path.get("verb") or "")
    return {"allowed": server.judge.allows(user, info)}


def _rules(user: User) -> dict[str, Any]:
    if not user.is_master:
        return {"resourceRules": [], "nonResourceRules": [], "incomplete": False}
    everything = ["*"]
    return {
        "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
        "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
        "incomplete": False,
    }


def _token(server: Server, spec: dict[str, Any]) -> dict[str, Any]:
    user = server.judge.user_of(spec.get("token") or "")
    if user is None:
        return {"authenticated": False, "user": {}, "error": "the token is not known"}
    return {"authenticated": True, "user": _user_info(user)}


def _user_info(user: User) -> dict[str, Any]:
    info: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    return info
