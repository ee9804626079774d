"""The paths and operations of a kind, in a form that both OpenAPI versions share.

Not here: encoding, which differs between v2 and v3.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from restow.openapi.served import (
    ApiInfo,
    ServedKind,
    ServedSubresource,
    api_prefix,
    definition_name,
    group_version,
    list_definition_name,
    patch_types,
)

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
DELETE_OPTIONS: Final = META + "DeleteOptions"
STATUS: Final = META + "Status"
RESOURCE_LIST: Final = META + "APIResourceList"
PATCH: Final = META + "Patch"
# A response that is not an object, in place of a definition.
TEXT: Final = "text"

ANSWER_TYPES: Final = ("application/json", "application/yaml")
WATCH_TYPES: Final = (*ANSWER_TYPES, "application/json;stream=watch")
BODY_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A path or query parameter."""

    name: str
    location: str  # "path" or "query"
    type: str
    about: str


def _query(name: str, kind: str, about: str) -> Parameter:
    return Parameter(name, "query", kind, about)


PARAMETERS: Final[dict[str, Parameter]] = {
    each.name: each
    for each in (
        Parameter("name", "path", "string", "Name of the object."),
        Parameter("namespace", "path", "string", "Namespace of the object."),
        Parameter("path", "path", "string", "Path of the request to the backend."),
        _query("pretty", "string", "If true, the response is indented."),
        _query("dryRun", "string", "All: process the request without storing the result."),
        _query("fieldManager", "string", "Name of the field manager."),
        _query("fieldValidation", "string", "Handling of unknown fields: Ignore, Warn or Strict."),
        _query("force", "boolean", "Take ownership of conflicting fields, in an apply patch."),
        _query("allowWatchBookmarks", "boolean", "Send bookmarks in a watch."),
        _query("continue", "string", "Continue token of the previous page."),
        _query("fieldSelector", "string", "Only objects with these field values."),
        _query("labelSelector", "string", "Only objects with these labels."),
        _query("limit", "integer", "Maximum number of objects in a page."),
        _query("resourceVersion", "string", "Constraint on the resource version of the response."),
        _query(
            "resourceVersionMatch",
            "string",
            "How resourceVersion is applied: Exact or NotOlderThan.",
        ),
        _query(
            "sendInitialEvents", "boolean", "Begin a watch with events for the existing objects."
        ),
        _query("timeoutSeconds", "integer", "Time-out of a list or watch."),
        _query("watch", "boolean", "Stream changes instead of a list."),
        _query("gracePeriodSeconds", "integer", "Seconds before the object is deleted."),
        _query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
        _query("propagationPolicy", "string", "Orphan, Background or Foreground."),
    )
}

_LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_DELETE: Final = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_DELETE_SOME: Final = (
    *_DELETE,
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
)


RESPONSE_DESCRIPTIONS: Final = {
    "200": "OK",
    "201": "Created",
    "202": "Accepted",
    "401": "Unauthorized",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation:
    """One method on one path."""

    method: str
    action: str
    """The value of `x-kubernetes-action`; empty for discovery."""
    id: str
    tag: str
    about: str
    kind: tuple[str, str, str] | None
    """Group, version and kind, for `x-kubernetes-group-version-kind`."""
    query: tuple[str, ...]
    body: str
    """Definition of the request body; empty if there is none."""
    body_types: tuple[str, ...]
    answers: dict[str, str]
    """Definition of the response body by status code; empty for 401."""
    answer_types: tuple[str, ...]

    def extensions(self) -> dict[str, Any]:
        """The fields of Kubernetes' own, the last ones in a document."""
        found: dict[str, Any] = {}
        if self.action:
            found["x-kubernetes-action"] = self.action
        if self.kind is not None:
            names = ("group", "version", "kind")
            found["x-kubernetes-group-version-kind"] = dict(zip(names, self.kind, strict=True))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEntry:
    """One path, the parameters of all its operations, and the operations."""

    path: str
    parameters: tuple[str, ...]
    operations: tuple[ApiOperation, ...]


@dataclass(frozen=True, slots=True)
class _Verb:
    """The operation of a verb."""

    method: str
    action: str
    word: str
    about: str
    query: tuple[str, ...]
    codes: tuple[str, ...]


_ON_COLLECTION: Final[dict[str, _Verb]] = {
    "list": _Verb("get", "list", "list", "List or watch objects of kind {}.", _LIST, ("200",)),
    "create": _Verb(
        "post", "post", "create", "Create an object of kind {}.", _WRITE, ("200", "201", "202")
    ),
    "deletecollection": _Verb(
        "delete",
        "deletecollection",
        "deleteCollection",
        "Delete objects of kind {}.",
        _DELETE_SOME,
        ("200",),
    ),
}
_ON_OBJECT: Final[dict[str, _Verb]] = {
    "get": _Verb("get", "get", "read", "Read an object of kind {}.", (), ("200",)),
    "update": _Verb(
        "put", "put", "replace", "Replace an object of kind {}.", _WRITE, ("200", "201")
    ),
    "patch": _Verb(
        "patch",
        "patch",
        "patch",
        "Change parts of an object of kind {}.",
        (*_WRITE, "force"),
        ("200", "201"),
    ),
    "delete": _Verb(
        "delete", "delete", "delete", "Delete an object of kind {}.", _DELETE, ("200", "202")
    ),
}


def discovery_path(group: str, version: str) -> PathEntry:
    """Return the path that lists the resources of a group version."""
    return PathEntry(
        path=f"/{api_prefix(group, version)}/",
        parameters=(),
        operations=(
            ApiOperation(
                method="get",
                action="",
                id=f"get{_title(group, version)}APIResources",
                tag=_tag(group, version),
                about=f"List the resources of {group_version(group, version)}.",
                kind=None,
                query=(),
                body="",
                body_types=(),
                answers={"200": RESOURCE_LIST, "401": ""},
                answer_types=ANSWER_TYPES,
            ),
        ),
    )


def paths_of(kind: ServedKind, info: ApiInfo) -> Iterator[PathEntry]:
    """Iterate over all paths of a kind that have operations."""
    root = f"/{api_prefix(kind.group, kind.version)}"
    inside = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    scope: tuple[str, ...] = ("namespace",) if kind.namespaced else ()
    entries = [_collection(kind, f"{inside}/{kind.plural}", scope)]
    if kind.namespaced and "list" in kind.verbs:
        everywhere = _operation(kind, _ON_COLLECTION["list"], suffix="ForAllNamespaces")
        entries.append(
            PathEntry(
                path=f"{root}/{kind.plural}", parameters=("pretty",), operations=(everywhere,)
            )
        )
    named = f"{inside}/{kind.plural}/{{name}}"
    parameters = ("name", *scope, "pretty")
    own = [_on_object(kind, verb, info) for verb in _ON_OBJECT if verb in kind.verbs]
    entries.append(PathEntry(path=named, parameters=parameters, operations=tuple(own)))
    for sub in kind.subresources:
        below = [_on_object(kind, v, info, sub) for v in (*_ON_OBJECT, "create") if v in sub.verbs]
        path = f"{named}/{sub.name}"
        entries.append(PathEntry(path=path, parameters=parameters, operations=tuple(below)))
        if sub.takes_path:
            longer = [replace(each, id=f"{each.id}WithPath") for each in below]
            entries.append(
                PathEntry(
                    path=f"{path}/{{path}}",
                    parameters=("name", *scope, "path", "pretty"),
                    operations=tuple(longer),
                )
            )
    return (entry for entry in entries if entry.operations)


def _collection(kind: ServedKind, path: str, scope: tuple[str, ...]) -> PathEntry:
    found = [_operation(kind, verb) for name, verb in _ON_COLLECTION.items() if name in kind.verbs]
    return PathEntry(path=path, parameters=(*scope, "pretty"), operations=tuple(found))


def _on_object(
    kind: ServedKind, verb: str, info: ApiInfo, sub: ServedSubresource | None = None
) -> ApiOperation:
    known = _ON_OBJECT.get(verb) or _ON_COLLECTION[verb]
    return _operation(kind, known, sub=sub, patches=patch_types(kind, info))


def _operation(
    kind: ServedKind,
    verb: _Verb,
    *,
    sub: ServedSubresource | None = None,
    suffix: str = "",
    patches: tuple[str, ...] = (),
) -> ApiOperation:
    about = (kind.group, kind.version, kind.kind)
    subject = sent = definition_name(kind)
    body_types = patches if verb.method == "patch" else BODY_TYPES
    if sub is not None and sub.connects:
        return _connection(kind, verb, sub)
    if sub is not None:
        about = (sub.group, sub.version, sub.kind)
        subject = sent = sub.type_name or subject
        if sub.body_type_name:
            sent, body_types = sub.body_type_name, ANSWER_TYPES
    scope = "Namespaced" if kind.namespaced and not suffix else ""
    part = "".join(word.capitalize() for word in sub.name.split("/")) if sub is not None else ""
    word, collection = verb.word, ""
    if verb.action == "deletecollection":
        word, collection = "delete", "Collection"
    where = _title(kind.group, kind.version)
    if sub is not None and sub.is_text:
        subject = TEXT
    return ApiOperation(
        method=verb.method,
        action=verb.action,
        id=f"{word}{where}{collection}{scope}{kind.kind}{part}{suffix}",
        tag=_tag(kind.group, kind.version),
        about=_about(verb, kind, sub),
        kind=about,
        query=verb.query,
        body=_body(verb, sent),
        body_types=body_types,
        answers={**dict.fromkeys(verb.codes, _answer(verb, kind, subject)), "401": ""},
        answer_types=WATCH_TYPES if verb.action == "list" else ANSWER_TYPES,
    )


def _connection(kind: ServedKind, verb: _Verb, sub: ServedSubresource) -> ApiOperation:
    """Return the operation of a connection, which has no request or response object."""
    where = _title(kind.group, kind.version) + verb.method.capitalize()
    scope = "Namespaced" if kind.namespaced else ""
    return ApiOperation(
        method=verb.method,
        action="connect",
        id=f"connect{where}{scope}{kind.kind}{sub.name.capitalize()}",
        tag=_tag(kind.group, kind.version),
        about=f"Connect to the {sub.name} of an object of kind {kind.kind}.",
        kind=(sub.group, sub.version, sub.kind),
        query=(),
        body="",
        body_types=(),
        answers={"200": TEXT, "401": ""},
        answer_types=("*/*",),
    )


def _about(verb: _Verb, kind: ServedKind, sub: ServedSubresource | None) -> str:
    if sub is None:
        return verb.about.format(kind.kind)
    if verb.action == "post":  # creates no object
        return f"Ask for the {sub.name} of an object of kind {kind.kind}."
    return verb.about.format(sub.kind)


def _body(verb: _Verb, subject: str) -> str:
    match verb.method:
        case "get":
            return ""
        case "delete":
            return DELETE_OPTIONS
        case "patch":
            return PATCH
        case _:
            return subject


def _answer(verb: _Verb, kind: ServedKind, subject: str) -> str:
    if verb.action == "list":
        return list_definition_name(kind)
    if verb.action == "delete" and kind.returns_deleted:
        return subject
    return STATUS if verb.method == "delete" else subject


def _title(group: str, version: str) -> str:
    """Return `CoreV1`, `RbacAuthorizationV1`: the prefix of operation IDs in a group version."""
    words = group.removesuffix(".k8s.io").replace("-", ".").split(".") if group else ["core"]
    return "".join(word[:1].upper() + word[1:] for word in (*words, version))


def _tag(group: str, version: str) -> str:
    title = _title(group, "")
    return f"{title[:1].lower()}{title[1:]}_{version}"
