"""Measures the steps of requests on the event loop, by verb.

A step that takes long is described by its resource and representations, which are labels, and by
its route and user, which are logged. Names from CRDs are no labels, because their number is not
bounded. Not here: the measurement (`aio.loop_steps`).
"""

from __future__ import annotations

from typing import Final

from restow.aio import LoopSteps, StepKind, StepSubject
from restow.aio.loop_steps import OTHER
from restow.apimachinery.status_error import StatusError
from restow.request.context import Context

CUSTOM: Final = "custom"
AGGREGATED: Final = "aggregated"
PATH_LENGTH_MAX: Final = 200
"""Characters of a path in the log."""
USER_LENGTH_MAX: Final = 100

_VERBS: Final = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("head", "options", "post", "put"),
)
"""Of resources and of other paths; any other method counts as `OTHER`."""
_PATHS: Final = frozenset(
    {
        *("api", "apis", "dashboard", "healthz", "livez", "metrics", "openapi", "openid"),
        *("readyz", ".well-known", "version"),
    }
)
"""First segments of paths that name no resource."""
_BODY_FORMS: Final = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/vnd.kubernetes.protobuf": "protobuf",
    "application/json-patch+json": "json-patch",
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
    "application/apply-patch+yaml": "apply-patch",
}


class RequestSteps:
    """The steps of the requests of one server."""

    def __init__(self, steps: LoopSteps) -> None:
        self._by_verb = {verb: steps.kind(verb, describe) for verb in _VERBS}
        self._other = steps.kind(OTHER, describe)

    def of(self, verb: str) -> StepKind:
        """The kind of the steps of a request."""
        return self._by_verb.get(verb, self._other)


def describe(context: Context) -> StepSubject:
    """What a long step of a request worked on, at any time of the request."""
    request, info = context.request, context.info
    forms = _body_form(context), _answer_form(context)
    path = info.path if len(info.path) <= PATH_LENGTH_MAX else f"{info.path[:PATH_LENGTH_MAX]}…"
    text = (
        f"{path!r}, user {context.user.name[:USER_LENGTH_MAX]!r}, {len(request.body)} bytes"
        f" {forms[0] or 'without a body'}, answered in {forms[1]}"
    )
    return StepSubject(_resource(context), ">".join(filter(None, forms)), text)


def _resource(context: Context) -> str:
    info = context.info
    if context.remote is not None:
        return AGGREGATED
    if not info.is_resource:
        first = info.path[1:].partition("/")[0]
        return f"/{first}" if first in _PATHS else OTHER
    resource = context.resource
    if resource is None:
        return OTHER  # not found yet: its name is client input
    named = CUSTOM if resource.is_custom else str(resource.kind.group_resource)
    return f"{named}/{info.subresource}" if info.subresource else named


def _body_form(context: Context) -> str:
    if not context.request.body:
        return ""
    media = (context.request.headers.get("content-type") or "application/json").partition(";")[0]
    return _BODY_FORMS.get(media.strip().lower(), OTHER)


def _answer_form(context: Context) -> str:
    try:
        form = context.form
    except StatusError:
        return OTHER
    return form.as_kind or form.media
