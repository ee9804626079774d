"""Discovery documents: groups, versions and resources, unaggregated and aggregated.

Documents are built from the catalog on first use and cached as bytes. They are assembled from
cached parts per resource and per group, so that a change in one group costs little regardless of
the number of others. Unaggregated documents carry the storage version hash of each resource, for
which the aggregated form has no field.

Groups of remote APIs are listed next to the local ones, as last seen. Their unaggregated documents
are not built here: requests for them are proxied to their server.

All of this happens in one step of the event loop, so no document can be older than the catalog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import orjson

from restow.aggregator.documents_index import (
    GroupMember,
    NoRemotes,
    Remotes,
    merged_groups,
)
from restow.apimachinery.names import GroupVersion
from restow.httpserver.response import NOSNIFF_LINE, HttpResponse, header_block
from restow.kinds.kind import Subresource
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.request.context import Context
from restow.request.responses import GZIP_BYTES_MIN, compress, takes_gzip

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_LISTS: Final = ("api", "apis")
# The bytes of group lists around their members.
_PLAIN_FRAME: Final = b'{"kind":"APIGroupList","apiVersion":"v1","groups":[%b]}'
_AGGREGATED_FRAME: Final = (
    b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},'
    b'"items":[%b]}'
)

_RESOURCES_FRAME: Final = (
    b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%b,"resources":[%b]}'
)
_VERSION_FRAME: Final = b'{"version":%b,"resources":[%b],"freshness":"%b"}'

VersionHash = Callable[[Resource], str]
"""The storage version hash of a resource; empty if it is to be omitted."""


def no_version_hash(_resource: Resource) -> str:
    """For a server that publishes no hashes."""
    return ""


class _Document:
    """The bytes of a document, and its compressed form, made on first use."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.tag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'

    @cached_property
    def compressed(self) -> bytes:
        return compress(self.body)


class _Entries:
    """The entries of one resource in documents. Immutable, so they are encoded once."""

    __slots__ = ("aggregated", "plain", "resource", "verbs")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.verbs = resource.verbs
        self.aggregated: dict[str, bytes] = {}
        """By version."""
        self.plain: dict[str, tuple[str, bytes]] = {}
        """By version, with the hash that they contain."""


class _Group:
    """Everything built for one group since its last change."""

    __slots__ = ("aggregated", "entries", "plain", "resources", "summary")

    def __init__(self, entries: dict[str, _Entries]) -> None:
        self.entries = entries
        """By plural, in the order of their names."""
        self.plain: _Document | None = None
        self.summary: bytes | None = None
        """Its part of the list of all groups."""
        self.aggregated: bytes | None = None
        """Its part of the aggregated document."""
        self.resources: dict[str, _Document] = {}
        """By version. These alone carry hashes."""


class Discovery:
    """The documents of one catalog, and of remote APIs."""

    def __init__(
        self,
        catalog: Catalog,
        version_hash: VersionHash,
        *,
        address: str,
        remotes: Remotes | None = None,
    ) -> None:
        self._catalog = catalog
        self._remotes = remotes or NoRemotes()
        self._merged: dict[str, tuple[GroupMember, ...]] | None = None
        """All groups in their order, since the last change."""
        self._version_hash = version_hash
        self._address = address
        self._groups: dict[str, _Group] = {}
        self._before: dict[str, _Group] = {}
        """Groups before their last change: unchanged parts are reused."""
        self._lists: dict[str, _Document] = {}
        catalog.changed.subscribe(self._changed)
        self._remotes.discovery_changed.subscribe(self._changed)

    def forget(self) -> None:
        """Drop cached entries, which contain storage version hashes, after one has changed."""
        for group in self._groups.values():
            group.resources.clear()

    def plain(self, path: str) -> bytes | None:
        """The document at `/api`, `/apis`, `/apis/G`, `/api/v1` or `/apis/G/V`; None if there is
        none."""
        found = self._plain(path)
        return None if found is None else found.body

    def aggregated(self, path: str) -> bytes:
        """The aggregated document at `/api` or `/apis`."""
        return self._aggregated(path).body

    def answer(self, context: Context, path: str) -> HttpResponse | None:
        """The response to a request for one of these documents."""
        if path in ("/api", "/apis") and context.form.discovery:
            return _cacheable(context, self._aggregated(path), AGGREGATED_TYPE)
        found = self._plain(path)
        if found is None:
            return None
        return _cacheable(context, found, "application/json")

    def _changed(self, group: str) -> None:
        known = self._groups.pop(group, None)
        if group not in self._catalog.groups:
            self._before.pop(group, None)
        elif known is not None:
            self._before[group] = known
        self._merged = None
        self._lists.clear()

    def _all(self) -> dict[str, tuple[GroupMember, ...]]:
        """All groups in their order, each with its versions, the preferred first."""
        if self._merged is None:
            self._merged = merged_groups(self._catalog.groups, self._remotes.versions())
        return self._merged

    def _plain(self, path: str) -> _Document | None:
        parts = path.strip("/").split("/")
        match parts:
            case [name] if name in _LISTS:
                return self._list(name)
            case ["apis", group] if group and group in self._all():
                known = self._of(group)
                if known.plain is None:
                    whole = {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
                    known.plain = _Document(orjson.dumps(whole))
                return known.plain
            case ["api", version]:
                return self._versioned("", version)
            case ["apis", group, version] if group:
                return self._versioned(group, version)
        return None

    def _versioned(self, group: str, version: str) -> _Document | None:
        if version not in self._catalog.groups.get(group, ()):
            return None
        known = self._of(group).resources
        if version not in known:
            known[version] = _Document(self._resources(group, version))
        return known[version]

    def _list(self, name: str) -> _Document:
        if name not in self._lists:
            if name == "api":
                body = orjson.dumps(self._core_versions())
            else:
                groups = [self._summary(group) for group in self._all() if group]
                body = _PLAIN_FRAME % b",".join(groups)
            self._lists[name] = _Document(body)
        return self._lists[name]

    def _aggregated(self, path: str) -> _Document:
        key = f"aggregated {path}"
        if key not in self._lists:
            is_core = path == "/api"
            groups = [group for group in self._all() if bool(group) is not is_core]
            members = b",".join([self._aggregated_part(group) for group in groups])
            self._lists[key] = _Document(_AGGREGATED_FRAME % members)
        return self._lists[key]

    def _summary(self, group: str) -> bytes:
        known = self._of(group)
        if known.summary is None:
            known.summary = orjson.dumps(self._group(group))
        return known.summary

    def _aggregated_part(self, group: str) -> bytes:
        known = self._of(group)
        if known.aggregated is None:
            known.aggregated = self._aggregated_group(group)
        return known.aggregated

    def _of(self, group: str) -> _Group:
        known = self._groups.get(group)
        if known is None:
            before = self._before.pop(group, None)
            hosted = sorted(self._catalog.in_group(group), key=lambda each: each.plural)
            entries = {} if before is None else before.entries
            known = self._groups[group] = _Group(
                {each.plural: _entries(each, entries.get(each.plural)) for each in hosted}
            )
        return known

    def _members(self, group: str, version: str) -> Iterator[_Entries]:
        for entries in self._of(group).entries.values():
            if version in entries.resource.served:
                yield entries

    def _core_versions(self) -> dict[str, Any]:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}]
        versions = list(self._catalog.groups.get("", ()))
        return {
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": addresses,
        }

    def _group(self, group: str) -> dict[str, Any]:
        versions = [
            {"groupVersion": f"{group}/{member.version}", "version": member.version}
            for member in self._all()[group]
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> bytes:
        members = [self._plain_entries(each, version) for each in self._members(group, version)]
        return _RESOURCES_FRAME % (
            orjson.dumps(str(GroupVersion(group, version))),
            b",".join(members),
        )

    def _plain_entries(self, entries: _Entries, version: str) -> bytes:
        """The entries of a resource and its subresources, cached until its hash changes."""
        resource = entries.resource
        # KEP-35 1.9: resources that are not persisted have no hash
        version_hash = self._version_hash(resource) if resource.kind.persisted else ""
        known = entries.plain.get(version)
        if known is None or known[0] != version_hash:
            written = [_plain_resource(resource, version_hash)]
            written += [_subresource(resource, each) for each in _subresources(resource, version)]
            # Several members of a list, without its brackets.
            known = entries.plain[version] = (version_hash, orjson.dumps(written)[1:-1])
        return known[1]

    def _aggregated_group(self, group: str) -> bytes:
        versions = [self._aggregated_version(group, member) for member in self._all()[group]]
        metadata = orjson.dumps({"name": group} if group else {})
        return b'{"metadata":%b,"versions":[%b]}' % (metadata, b",".join(versions))

    def _aggregated_version(self, group: str, member: GroupMember) -> bytes:
        version, remote = member
        if remote is not None:
            resources, freshness = remote.resources, b"Current" if remote.is_fresh else b"Stale"
        else:
            own = [_aggregated_entry(each, version) for each in self._members(group, version)]
            resources, freshness = b",".join(own), b"Current"
        return _VERSION_FRAME % (orjson.dumps(version), resources, freshness)


def _entries(resource: Resource, before: _Entries | None) -> _Entries:
    if before is None or before.resource is not resource or before.verbs != resource.verbs:
        return _Entries(resource)
    return before


def _aggregated_entry(entries: _Entries, version: str) -> bytes:
    known = entries.aggregated.get(version)
    if known is None:
        made = _aggregated_resource(entries.resource, version)
        known = entries.aggregated[version] = orjson.dumps(made)
    return known


def _subresources(resource: Resource, version: str) -> list[Subresource]:
    """Subresources sorted by name; those of a custom kind in the order of its CRD."""
    found = list(resource.subresources(version))
    return found if resource.traits else sorted(found, key=lambda each: each.name)


def _plain_resource(resource: Resource, version_hash: str) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(resource.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    # KEP-35 1.5: leave the field out when there is no hash
    if version_hash:
        # KEP-35 1.1: discovery has the hash of each resource
        entry["storageVersionHash"] = version_hash
    return entry


def _subresource(resource: Resource, subresource: Subresource) -> dict[str, Any]:
    # KEP-35 1.9: a subresource has no hash
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.kind.namespaced,
    }
    if subresource.version:
        entry |= {"group": subresource.group, "version": subresource.version}
    return entry | {
        "kind": subresource.kind or resource.kind.kind,
        "verbs": list(subresource.verbs),
    }


def _aggregated_resource(resource: Resource, version: str) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(resource.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    subresources = _subresources(resource, version)
    if subresources:
        entry["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": {
                    "group": each.group if each.version else kind.group,
                    "version": each.version or version,
                    "kind": each.kind or kind.kind,
                },
                "verbs": list(each.verbs),
            }
            for each in subresources
        ]
    return entry


def _cacheable(context: Context, document: _Document, content_type: str) -> HttpResponse:
    lines = [
        ("Content-Type", content_type),
        ("ETag", document.tag),
        ("Vary", "Accept"),
        ("Cache-Control", "public"),
        NOSNIFF_LINE,
    ]
    if context.request.headers.get("if-none-match") == document.tag:
        return HttpResponse(304, b"", header_block(lines))
    if len(document.body) > GZIP_BYTES_MIN and takes_gzip(context):
        lines += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return HttpResponse(200, document.compressed, header_block(lines))
    return HttpResponse(200, document.body, header_block(lines))
