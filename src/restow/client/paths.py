"""Paths and queries of requests, built from untrusted names.

Pure. Not here: which resources exist (`discovery`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from restow.apimachinery.names import GroupVersion, GroupVersionResource

JSON: Final = "application/json"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NAME_LENGTH_MAX: Final = 1024
QUERIES_KEPT_MAX: Final = 64
# Characters that need no escaping in a path, sufficient for nearly all names.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]+", flags=re.ASCII)


class PatchType(StrEnum):
    """The content type of a patch."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Selectors, page size and resource version of a list. Selectors also apply to watches."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 500
    """Objects per page; 0: all in one response."""
    resource_version: str = ""
    """Empty: the newest state; "0": any state that the server has cached."""
    resource_version_match: str = ""

    def selectors(self) -> dict[str, str]:
        return {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}

    def query(self, continue_token: str = "") -> dict[str, str]:
        """The query of a page; pages with a continue token must not have the version."""
        found = self.selectors() | {"limit": str(self.limit or "")}
        if continue_token:
            return found | {"continue": continue_token}
        return found | {
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": self.resource_version_match,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write."""

    dry_run: bool = False
    field_manager: str = ""
    """The field manager; by default the start of the user agent."""
    field_validation: str = ""
    """Ignore, Warn or Strict; empty is the server's default."""
    force: bool = False
    """Only for apply: take over fields of other managers."""

    def query(self) -> dict[str, str]:
        return {
            "dryRun": "All" if self.dry_run else "",
            "fieldManager": self.field_manager,
            "fieldValidation": self.field_validation,
            "force": "true" if self.force else "",
        }


def group_version_path(group_version: GroupVersion) -> str:
    """The path of a group version."""
    if not group_version.group:
        return f"/api/{_segment(group_version.version)}"
    return f"/apis/{_segment(group_version.group)}/{_segment(group_version.version)}"


def resource_path(
    resource: GroupVersionResource, *, namespace: str = "", name: str = "", subresource: str = ""
) -> str:
    """The path of a collection, object or subresource."""
    parts = [group_version_path(resource.group_version)]
    if namespace:
        parts += ["namespaces", _segment(namespace)]
    parts.append(_segment(resource.resource))
    if name:
        parts.append(_segment(name))
    if subresource:
        if not name:
            raise ValueError(f"a subresource without an object name: {subresource!r}")
        parts += [_segment(part) for part in subresource.split("/")]
    return "/".join(parts)


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with all parameters that are not empty."""
    given = tuple((name, value) for name, value in query.items() if value)
    return f"{path}?{_encoded(given)}" if given else path


@lru_cache(maxsize=QUERIES_KEPT_MAX)
def _encoded(given: tuple[tuple[str, str], ...]) -> str:
    """Encode a query. Cached, because many requests have the same one."""
    return urlencode(given, quote_via=quote)


def delete_options(
    *,
    uid: str = "",
    resource_version: str = "",
    propagation: Propagation | None = None,
    grace_period_seconds: int | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The body of a delete request."""
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {name: value for name, value in conditions.items() if value}:
        body["preconditions"] = preconditions
    if propagation is not None:
        body["propagationPolicy"] = str(propagation)
    if grace_period_seconds is not None:
        body["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        body["dryRun"] = ["All"]
    return body


def _segment(text: str) -> str:
    """Escape one path segment, which must not add or remove segments."""
    if not text or len(text) > NAME_LENGTH_MAX or text in {".", ".."} or "/" in text:
        raise ValueError(f"invalid name: {text[:256]!r}")
    if _PLAIN.fullmatch(text):
        return text
    return quote(text, safe=":@!$&'()*+,;=~")
