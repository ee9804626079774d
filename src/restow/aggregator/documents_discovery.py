"""Converts a backend's discovery documents to aggregated discovery.

A field of the wrong type would make clients discard the list of all groups. So the documents of a
backend are decoded by type and encoded again; an invalid document is rejected as a whole. Names are
used in paths and commands: an entry with an invalid name is dropped, and so is an invalid short
name, category or verb.

Pure. Not here: fetching the documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from restow.apimachinery.names import GroupVersion

_VERSIONS: Final = ("v2", "v2beta1")
"""They differ in the name only. Old servers support only the second one."""

RESOURCES_MAX: Final = 5_000
"""Limit of resources per group version, and of subresources per resource; more are dropped."""
WORDS_MAX: Final = 64
"""Short names, categories or verbs of one resource."""

# Not only DNS labels: metrics servers use names of metrics as resource names.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:~-]{0,252}", flags=re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", flags=re.ASCII)
_SCOPES: Final = frozenset({"Namespaced", "Cluster"})

AGGREGATED_ACCEPT: Final = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in _VERSIONS
)


class DiscoveryBad(ValueError):
    """An invalid discovery document. The message contains the reason."""


class _Kind(Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(Struct, rename="camel", omit_defaults=True):
    subresource: str
    verbs: list[str] | None
    response_kind: _Kind | None = None
    accepted_types: list[_Kind] | None = None


class _Resource(Struct, rename="camel", omit_defaults=True):
    resource: str
    scope: str
    verbs: list[str] | None
    singular_resource: str = ""
    response_kind: _Kind | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None
    subresources: list[_Subresource] | None = None


class _Version(Struct):
    version: str
    resources: list[_Resource] | None = None


class _Metadata(Struct):
    name: str = ""


class _Group(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    versions: list[_Version] | None = None


class _GroupList(Struct):
    kind: str
    items: list[_Group] | None = None


class _PlainResource(Struct, rename="camel"):
    name: str
    namespaced: bool
    kind: str
    verbs: list[str] | None = None
    singular_name: str = ""
    group: str = ""
    version: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _PlainList(Struct, rename="camel"):
    kind: str
    resources: list[_PlainResource] | None = None


_decode_aggregated = msgspec.json.Decoder(_GroupList).decode
_decode_plain = msgspec.json.Decoder(_PlainList).decode
_encode = msgspec.json.Encoder().encode


def is_aggregated(content_type: str) -> bool:
    """Whether a response's content type is aggregated discovery."""
    media, *rest = (part.strip() for part in content_type.split(";"))
    said = dict(part.split("=", 1) for part in rest if "=" in part)
    return (
        media == "application/json"
        and said.get("g") == "apidiscovery.k8s.io"
        and said.get("v") in _VERSIONS
        and said.get("as") == "APIGroupDiscoveryList"
    )


def read_aggregated(body: bytes) -> dict[GroupVersion, bytes]:
    """Return the entries of each group version's resource list. Raises DiscoveryBad."""
    found = _decoded(_decode_aggregated, body, "APIGroupDiscoveryList")
    return {
        GroupVersion(group.metadata.name, version.version): _members(
            version.resources or [], GroupVersion(group.metadata.name, version.version)
        )
        for group in found.items or ()
        for version in group.versions or ()
    }


def read_plain(body: bytes, group_version: GroupVersion) -> bytes:
    """Return the entries of one group version from its plain document. Raises DiscoveryBad."""
    found = _decoded(_decode_plain, body, "APIResourceList")
    made: dict[str, _Resource] = {}
    for each in found.resources or ():
        name, _, below = each.name.partition("/")
        if below:
            parent = made.setdefault(name, _resource(each, name, is_parent=True))
            parent.subresources = [*(parent.subresources or ()), _subresource(each, below)]
            continue
        resource = _resource(each, name)
        if name in made:
            resource.subresources = made[name].subresources
        made[name] = resource
    return _members(list(made.values()), group_version)


def _decoded(decode: Any, body: bytes, kind: str) -> Any:
    try:
        found = decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DiscoveryBad(f"not a valid {kind}: {error}") from error
    if found.kind != kind:
        raise DiscoveryBad(f"its kind is {found.kind[:64]!r}, not {kind}")
    return found


def _resource(plain: _PlainResource, name: str, *, is_parent: bool = False) -> _Resource:
    """Build a resource; for a missing parent, only the fields that its subresource implies."""
    scope = "Namespaced" if plain.namespaced else "Cluster"
    if is_parent:
        return _Resource(resource=name, scope=scope, verbs=[])
    return _Resource(
        resource=name,
        scope=scope,
        verbs=plain.verbs,
        singular_resource=plain.singular_name,
        response_kind=_Kind(plain.group, plain.version, plain.kind),
        short_names=plain.short_names,
        categories=plain.categories,
    )


def _subresource(plain: _PlainResource, name: str) -> _Subresource:
    kind = _Kind(plain.group, plain.version, plain.kind)
    return _Subresource(subresource=name, verbs=plain.verbs, response_kind=kind)


def _members(resources: list[_Resource], group_version: GroupVersion) -> bytes:
    made: dict[str, bytes] = {}
    for resource in resources[:RESOURCES_MAX]:
        _complete(resource, group_version)
        if resource.resource in made or not _is_good(resource):
            continue
        resource.short_names = _words(resource.short_names)
        resource.categories = _words(resource.categories)
        if resource.subresources is not None:
            resource.subresources = list(_subresources(resource.subresources, group_version))
        made[resource.resource] = _encode(resource)
    return b",".join(made.values())


def _subresources(found: list[_Subresource], group_version: GroupVersion) -> Iterator[_Subresource]:
    for each in found[:RESOURCES_MAX]:
        _complete(each, group_version)
        if all(map(_SEGMENT.fullmatch, each.subresource.split("/"))) and _is_kind(
            each.response_kind
        ):
            accepted = each.accepted_types
            each.accepted_types = accepted and [kind for kind in accepted if _is_kind(kind)]
            yield each


def _is_good(resource: _Resource) -> bool:
    singular = resource.singular_resource
    return bool(
        _SEGMENT.fullmatch(resource.resource)
        and (not singular or _SEGMENT.fullmatch(singular))
        and resource.scope in _SCOPES
        and _is_kind(resource.response_kind)
    )


def _is_kind(kind: _Kind | None) -> bool:
    """Whether each part of it is one word or absent."""
    parts = () if kind is None else (*kind.group.split("."), kind.version, kind.kind)
    return all(not part or _WORD.fullmatch(part) for part in parts)


def _words(found: list[str] | None) -> list[str] | None:
    """The entries that are single words; None stays None."""
    return found and [each for each in found if _WORD.fullmatch(each)][:WORDS_MAX]


def _complete(entry: _Resource | _Subresource, group_version: GroupVersion) -> None:
    """Fill in fields: old clients crash on a missing kind and on a list that is null."""
    entry.verbs = _words(entry.verbs) or []
    kind = entry.response_kind = entry.response_kind or _Kind()
    if kind.kind and not kind.version:
        # Empty means the same as the parent's.
        kind.group, kind.version = kind.group or group_version.group, group_version.version
