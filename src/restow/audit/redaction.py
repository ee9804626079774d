"""Redaction: credentials and the content of secrets, which are never recorded.

An audit log is read by more people and kept in more places than the objects themselves, so this
cannot be configured.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote_plus

from restow.request.request_info import RequestInfo

REDACTED: Final = "REDACTED"
URI_LENGTH_MAX: Final = 4_096
TRUNCATED: Final = "...TRUNCATED"

# By name only, whatever the API group.
_SECRET_RESOURCES: Final = frozenset({"secrets", "tokenreviews", "tokenrequests"})
_SECRET_SUBRESOURCES: Final = frozenset({("serviceaccounts", "token")})
_NAMES: Final = (
    "access_token|apikey|api_key|assertion|auth|authorization|bearer|bearer_token|client_secret|code"
    "|cookie|credential|credentials|id_token|jwt|key|passwd|password|refresh_token|secret|session"
    "|signature|ticket|token"
)
_CREDENTIAL: Final = re.compile(_NAMES)
# Within a value, such as a path with its own query.
_CREDENTIAL_WITHIN: Final = re.compile(rf"[?&;#](?:{_NAMES})=", re.IGNORECASE)
_UNESCAPES_MAX: Final = 3
_SEPARATORS: Final = re.compile(r"([&;])")


def holds_secrets(info: RequestInfo) -> bool:
    """Return whether the bodies of such requests and their responses may contain secrets."""
    return (
        info.resource in _SECRET_RESOURCES
        or (info.resource, info.subresource) in _SECRET_SUBRESOURCES
    )


def redacted_uri(path: str, query: str) -> str:
    """Return a path and a query without credentials."""
    text = f"{path}?{_redacted_query(query)}" if query else path
    return text if len(text) <= URI_LENGTH_MAX else text[:URI_LENGTH_MAX] + TRUNCATED


def _redacted_query(query: str) -> str:
    return "".join(
        part if part in ("&", ";") else _redacted_pair(part) for part in _SEPARATORS.split(query)
    )


def _redacted_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    plain = _unescaped(name).strip().lower().replace("-", "_")
    if _CREDENTIAL.fullmatch(plain) or _CREDENTIAL_WITHIN.search(_unescaped(value)):
        return f"{name}{equals}{REDACTED}" if equals else REDACTED
    return pair


def _unescaped(text: str) -> str:
    """Unquote repeatedly, because escapes may be escaped themselves."""
    for _ in range(_UNESCAPES_MAX):
        if "%" not in text and "+" not in text:
            break
        text = unquote_plus(text)
    return text


def without_managed_fields(value: Any) -> Any:
    """Return an object, or a list of objects, without managedFields."""
    if not isinstance(value, dict):
        return value
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        kept = {name: each for name, each in metadata.items() if name != "managedFields"}
        value = {**value, "metadata": kept}
    for name, inner in (("items", None), ("rows", "object")):
        items = value.get(name)
        if isinstance(items, list):
            value = {**value, name: [_item(each, inner) for each in items]}
    return value


def _item(item: Any, inner: str | None) -> Any:
    if inner is None:
        return without_managed_fields(item)
    if isinstance(item, dict) and inner in item:
        return {**item, inner: without_managed_fields(item[inner])}
    return item
