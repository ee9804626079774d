"""Parses the method, path and query of a request into its attributes.

Pure: independent of the resources that the server hosts. An invalid path (empty segments, `..`,
invalid escapes) is rejected here, before anything is built from it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, field
from msgspec.structs import force_setattr

from restow.apimachinery import status

QUERY_PARAMETERS_MAX: Final = 100

_VERBS: Final = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_COLLECTION_VERBS: Final = {"get": "list", "delete": "deletecollection"}
# No escapes, and no dot segments.
_PLAIN_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]*")
_FALSE: Final = frozenset({"0", "false"})
_LONG_SUBRESOURCES: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


class RequestInfo(Struct, frozen=True):
    """The attributes of a request for authorization and routing."""

    method: str
    path: str
    """As received; a non-resource path without a trailing slash, since authorization and audit
    must use the path that is served."""
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """The path after a subresource, such as in `/proxy/some/path`."""
    query: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_long(self) -> bool:
        """Whether the request is long-running, like a watch."""
        return self.verb == "watch" or self.subresource in _LONG_SUBRESOURCES

    def parameter(self, name: str) -> str:
        """The first value of a query parameter, or an empty string."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """A boolean parameter: absent, 0 and false are false, all other values are true."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in _FALSE

    def number(self, name: str) -> int | None:
        """An integer parameter, or None if absent; 400 if it is invalid."""
        text = self.parameter(name)
        if not text:
            return None
        if not _is_integer(text):
            raise status.bad_request(f"{name}: {text[:64]!r} is not a whole number")
        return int(text)


def access_question(
    verb: str,
    *,
    group: str,
    resource: str,
    version: str = "*",
    namespace: str = "",
    name: str = "",
    subresource: str = "",
    query: dict[str, list[str]] | None = None,
) -> RequestInfo:
    """Build the attributes for an authorization check that has no request of its own."""
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        query=query or {},
    )


def has_siblings(info: RequestInfo, name: str) -> bool:
    """Whether paths that differ only in their last segment, `name`, are otherwise equivalent."""
    # A namespace's path is also the prefix of the objects in it.
    return info.name == name and not info.subresource and info.resource != "namespaces"


def sibling(info: RequestInfo, path: str, name: str) -> RequestInfo | None:
    """Return the attributes of a path that names another object of the same resource and namespace.

    None if the name contains special characters: then the path must be parsed.
    """
    if _PLAIN_NAME.fullmatch(name) is None:
        return None
    return RequestInfo(
        info.method,
        path,
        info.verb,
        info.is_resource,
        info.group,
        info.version,
        info.namespace,
        info.resource,
        name,
        query=info.query,
    )


def parse_request(method: str, target: str) -> RequestInfo:
    """Parse a request line. Raises a 400 or 405 StatusError."""
    raw_path, _, raw_query = target.partition("?")
    query = _parse_query(raw_query) if raw_query else {}
    verb = _VERBS.get(method, method.lower())
    parts = _segments(raw_path)
    if len(parts) < 3 or parts[0] not in ("api", "apis") or (parts[0] == "apis" and len(parts) < 4):
        path = raw_path.rstrip("/") or "/"
        return RequestInfo(method=method, path=path, verb=method.lower(), query=query)
    if parts[0] == "api":
        group, version, tail = "", parts[1], parts[2:]
    else:
        group, version, tail = parts[1], parts[2], parts[3:]
    is_old_watch = tail[0] == "watch" and len(tail) > 1
    namespace, resource, name, subresource, rest = _split(tail[1:] if is_old_watch else tail)
    if is_old_watch:
        query, name, verb = _old_watch(query, name, verb)
    if verb in _COLLECTION_VERBS and not name:
        verb = _COLLECTION_VERBS[verb]
    info = RequestInfo(
        method=method,
        path=raw_path,
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        rest=rest,
        query=query,
    )
    if verb == "list" and info.flag("watch"):
        force_setattr(info, "verb", "watch")
    return info


def _old_watch(
    query: dict[str, list[str]], name: str, verb: str
) -> tuple[dict[str, list[str]], str, str]:
    """Handle the deprecated `/watch/` prefix, which also exists for single objects."""
    query = {**query, "watch": ["true"]}
    if name:
        query["fieldSelector"] = [f"metadata.name={name}"]
    return query, "", verb if verb == "get" else f"{verb} of a watch"


def _split(tail: list[str]) -> tuple[str, str, str, str, str]:
    """Return namespace, resource, name, subresource and the rest of the path."""
    namespace = ""
    if tail[0] == "namespaces" and len(tail) > 1:
        # /namespaces/NAME is the namespace itself; /namespaces/NAME/status is its subresource.
        if len(tail) == 2 or (len(tail) == 3 and tail[2] in _NAMESPACE_SUBRESOURCES):
            return tail[1], "namespaces", tail[1], "".join(tail[2:3]), ""
        namespace, tail = tail[1], tail[2:]
    resource, name, subresource = (*tail[:3], "", "")[0:3] if len(tail) < 3 else tail[:3]
    return namespace, resource, name, subresource, "/".join(tail[3:])


def _segments(raw_path: str) -> list[str]:
    if not raw_path.startswith("/"):
        raise status.bad_request("the request path must begin with '/'")
    text = raw_path[1:].removesuffix("/")
    if not text:
        return []
    parts = text.split("/")
    if "%" in text:
        parts = [_unescape(part) for part in parts]
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part or "%" in part:
            raise status.bad_request(f"the request path has an invalid segment: {part[:64]!r}")
    return parts


def _unescape(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise status.bad_request("the request path is not UTF-8") from None


def _parse_query(raw: str) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(
            raw, keep_blank_values=True, errors="strict", max_num_fields=QUERY_PARAMETERS_MAX
        )
    except ValueError:
        raise status.bad_request(
            f"the query is not UTF-8 or has more than {QUERY_PARAMETERS_MAX} parameters"
        ) from None
    query: dict[str, list[str]] = {}
    for name, value in pairs:
        query.setdefault(name, []).append(value)
    return query


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[0] in "+-" else text
    return len(text) <= 20 and digits.isascii() and digits.isdigit()
