"""Everything that can be asked of a server, one cell for each: read from what it hosts.

A kind that is new in the catalogue has its cells without a line being written here. Each cell has a
request that is refused or finds nothing once it is allowed, so that all may be sent to one server.
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
# What makes no sense, and is found out only by whoever would do it.
_QUERIES: Final = {
    "list": "?limit=1",
    "watch": "?watch=true&resourceVersion=none",
    "deletecollection": "?labelSelector=%3D%3D",
}
# Of names of reports not every one makes sense.
_ANSWERS: Final = {("storageversions", "report", "delete"): 422}
# What is sent there is for somebody else, who is looked for first.
_CONNECTED: Final = frozenset({"attach", "exec", "portforward", "proxy"})
# Nothing is kept of them, but what they are sent for is written.
_WRITING: Final = frozenset({"bindings"})
_OF_ONE: Final = frozenset({"get", "update", "patch", "delete"})
_WITH_BODY: Final = frozenset({"create", "update", "patch"})
READS: Final = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Right:
    """What a rule of a role speaks of."""

    group: str
    resource: str
    """With its subresource."""
    verb: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One verb on one resource, or a part of it, in one version and one place."""

    resource: Resource
    version: str
    subresource: str
    verb: str
    namespace: str
    """Where it is asked; empty: in the whole cluster."""

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    @property
    def right(self) -> Right:
        part = f"/{self.subresource}" if self.subresource else ""
        return Right(self.resource.group, f"{self.resource.plural}{part}", self.verb)

    @property
    def place(self) -> str:
        """The namespace that roles look at: a namespace itself lies within itself."""
        return self.name if self.is_namespace else self.namespace

    @property
    def is_namespace(self) -> bool:
        """Whether it is about one namespace as an object."""
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
        """Of a type that nobody reads."""
        return b"-" if self.verb in _WITH_BODY else None

    @property
    def allowed(self) -> int:
        """What whoever may do it is answered."""
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
        """Whether whoever is allowed it writes something."""
        return self.resource.kind.persisted or self.resource.plural in _WRITING

    def refusal_of(self, user: str) -> str:
        """The words for whoever may not."""
        group, part, verb = self.right.group, self.right.resource, self.verb
        what = f"{self.resource.plural}.{group}" if group else self.resource.plural
        named = f'{what} "{self.name}"' if self.name else what
        where = f'in the namespace "{self.place}"' if self.place else "at the cluster scope"
        return (
            f'{named} is forbidden: User "{user}" cannot {verb} resource "{part}"'
            f' in API group "{group}" {where}'
        )


def cells(catalog: Catalog) -> Iterator[Cell]:
    """All cells: of what is in namespaces, in two of them, and over all where that can be asked."""
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
