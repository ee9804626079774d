"""Discovery: which groups, versions and resources there are, plain and aggregated.

Documents are made from the catalogue when first asked for and kept as bytes. The plain ones carry
the hash of each resource's storage version, which the aggregated form has no place for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import orjson

from restow.kinds.definitions import Subresource
from restow.machinery.names import GroupVersion
from restow.resources.catalog import Catalog
from restow.resources.definition import Resource
from restow.serving.context import Context
from restow.serving.listener.response import Response, header_block

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

VersionHash = Callable[[Resource], str]
"""The hash of a resource's storage version; empty: say nothing about it."""


def no_version_hash(_resource: Resource) -> str:
    """For a server that shows no hashes."""
    return ""


class Discovery:
    """The documents of one catalogue."""

    def __init__(self, catalog: Catalog, version_hash: VersionHash, *, address: str) -> None:
        self._catalog = catalog
        self._version_hash = version_hash
        self._address = address
        self._documents: dict[str, bytes] = {}

    def forget(self) -> None:
        """A storage version has changed: make the documents anew."""
        self._documents.clear()

    def plain(self, path: str) -> bytes | None:
        """The document at `/api`, `/apis`, `/apis/G`, `/api/v1` or `/apis/G/V`; None: no such."""
        found = self._documents.get(path)
        if found is None:
            made = self._make(path)
            if made is None:
                return None
            found = self._documents[path] = orjson.dumps(made)
        return found

    def aggregated(self, path: str) -> bytes:
        """The aggregated document at `/api` or `/apis`."""
        key = f"aggregated {path}"
        found = self._documents.get(key)
        if found is None:
            found = self._documents[key] = orjson.dumps(self._aggregate(core=path == "/api"))
        return found

    def answer(self, context: Context, path: str) -> Response | None:
        """The answer to a request for one of these documents."""
        if path in ("/api", "/apis") and context.form.discovery:
            return _cacheable(context, self.aggregated(path), AGGREGATED_TYPE)
        body = self.plain(path)
        if body is None:
            return None
        return _cacheable(context, body, "application/json")

    def _make(self, path: str) -> dict[str, Any] | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["api"]:
                return self._core_versions()
            case ["apis"]:
                return {
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": [self._group(group) for group in self._catalog.groups if group],
                }
            case ["apis", group] if group in self._catalog.groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["api", version] if version in self._catalog.groups.get("", ()):
                return self._resources("", version)
            case ["apis", group, version] if version in self._catalog.groups.get(group, ()):
                return self._resources(group, version)
        return None

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
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._catalog.groups[group]
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> dict[str, Any]:
        entries: list[dict[str, Any]] = []
        for resource in self._catalog.in_version(group, version):
            entries.append(self._resource(resource))
            entries += [
                _subresource(resource, subresource) for subresource in resource.kind.subresources
            ]
        entries.sort(key=lambda entry: entry["name"])
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": str(GroupVersion(group, version)),
            "resources": entries,
        }

    def _resource(self, resource: Resource) -> dict[str, Any]:
        kind = resource.kind
        entry: dict[str, Any] = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        version_hash = self._version_hash(resource) if kind.persisted else ""
        if version_hash:
            entry["storageVersionHash"] = version_hash
        return entry

    def _aggregate(self, *, core: bool) -> dict[str, Any]:
        groups = [group for group in self._catalog.groups if bool(group) is not core]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [self._aggregated_group(group) for group in groups],
        }

    def _aggregated_group(self, group: str) -> dict[str, Any]:
        versions = [
            {
                "version": version,
                "resources": [
                    _aggregated_resource(resource, version)
                    for resource in self._catalog.in_version(group, version)
                ],
                "freshness": "Current",
            }
            for version in self._catalog.groups[group]
        ]
        metadata = {"name": group} if group else {}
        return {"metadata": metadata, "versions": versions}


def _subresource(resource: Resource, subresource: Subresource) -> dict[str, Any]:
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
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
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
            for each in kind.subresources
        ]
    return entry


def _cacheable(context: Context, body: bytes, content_type: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'
    headers = header_block(
        [
            ("Content-Type", content_type),
            ("ETag", tag),
            ("Vary", "Accept"),
            ("Cache-Control", "public"),
        ]
    )
    if context.request.headers.get("if-none-match") == tag:
        return Response(304, b"", headers)
    return Response(200, body, headers)
