"""All authorization cells of a server (verb, resource, subresource, namespace), from its catalog.

A kind that is added to the catalog gets its cells automatically. The request of each cell is
invalid or finds nothing once it is authorized, so that all cells can be sent to one server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from restow.registry.catalog import Catalog
from restow.registry.resource import Resource

MINE: Final = "mine"
OTHER: Final = "other"
CLUSTER: Final = ""
NAME: Final = "nothing-of-this-name"

_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
# Invalid values that are only detected after authorization.
_QUERIES: Final = {
    "list": "?limit=1",
    "watch": "?watch=true&resourceVersion=none",
    "deletecollection": "?labelSelector=%3D%3D",
}
# Report names are validated before the body.
_ANSWERS: Final = {("storageversions", "report", "delete"): 422}
# These subresources connect to a pod, node or service, which is looked up first.
_CONNECTED: Final = frozenset({"attach", "exec", "portforward", "proxy"})
# These kinds are not stored, but they write to another object.
_WRITING: Final = frozenset({"bindings"})
_OF_ONE: Final = frozenset({"get", "update", "patch", "delete"})
_WITH_BODY: Final = frozenset({"create", "update", "patch"})
READS: Final = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Right:
    """The permission in a rule of a role."""

    group: str
    resource: str
    """With its subresource."""
    verb: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One verb on one resource or subresource, in one version and one namespace."""

    resource: Resource
    version: str
    subresource: str
    verb: str
    namespace: str
    """The namespace; empty: cluster scope."""

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    @property
    def right(self) -> Right:
        part = f"/{self.subresource}" if self.subresource else ""
        return Right(self.resource.group, f"{self.resource.plural}{part}", self.verb)

    @property
    def place(self) -> str:
        """The namespace for role bindings: a Namespace object is in the namespace that it names."""
        return self.name if self.is_namespace else self.namespace

    @property
    def is_namespace(self) -> bool:
        """Whether the object is a Namespace."""
        return self.right.group == "" and self.resource.plural == "namespaces" and bool(self.name)

    @property
    def name(self) -> str:
        return NAME if self.subresource or self.verb in _OF_ONE else ""

    @property
    def path(self) -> str:
        root = f"/apis/{self.resource.group}" if self.resource.group else "/api"
        where = f"/namespaces/{self.namespace}" if self.namespace else ""
        parts = [f"{root}/{self.version}{where}/{self.resource.plural}", self.name]
        return "/".join([each for each in [*parts, self.subresource] if each])

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def target(self) -> str:
        return self.path + ("" if self.subresource else _QUERIES.get(self.verb, ""))

    @property
    def body(self) -> bytes | None:
        """With a content type that no handler supports."""
        return b"-" if self.verb in _WITH_BODY else None

    @property
    def allowed(self) -> int:
        """The status code for an authorized user."""
        found = _ANSWERS.get((self.resource.plural, self.subresource, self.verb))
        if found is not None:
            return found
        if self.subresource in _CONNECTED:
            return 404
        if self.verb in _WITH_BODY:
            return 415
        if self.verb == "list":
            return 200
        return 400 if self.verb in _QUERIES else 404

    @property
    def is_written(self) -> bool:
        """Whether an authorized request writes something."""
        return self.resource.kind.persisted or self.resource.plural in _WRITING

    def refusal_of(self, user: str) -> str:
        """The message of a 403."""
        group, part, verb = self.right.group, self.right.resource, self.verb
        what = f"{self.resource.plural}.{group}" if group else self.resource.plural
        named = f'{what} "{self.name}"' if self.name else what
        where = f'in the namespace "{self.place}"' if self.place else "at the cluster scope"
        return (
            f'{named} is forbidden: User "{user}" cannot {verb} resource "{part}"'
            f' in API group "{group}" {where}'
        )


def cells(catalog: Catalog) -> Iterator[Cell]:
    """All cells: for namespaced resources in two namespaces, and across all where that is
    possible."""
    for resource in catalog:
        for version in resource.served:
            verbs = [("", verb) for verb in resource.verbs]
            for part in resource.subresources(version):
                verbs += [(part.name, verb) for verb in part.verbs]
            for subresource, verb in verbs:
                for place in _places(resource, subresource, verb):
                    yield Cell(resource, version, subresource, verb, place)


def _places(resource: Resource, subresource: str, verb: str) -> tuple[str, ...]:
    if not resource.kind.namespaced:
        return (CLUSTER,)
    over_all = not subresource and verb in ("list", "watch")
    return (MINE, OTHER, CLUSTER) if over_all else (MINE, OTHER)
