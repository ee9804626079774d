"""What a server serves, as plain values: the input of every document.

Not here: where these facts come from. The caller makes them from its catalogue.
"""

from dataclasses import dataclass
from typing import Any, Protocol

Schema = dict[str, Any]


class SchemaSource(Protocol):
    """A schema that is kept small, and read when somebody looks at it."""

    def read(self) -> Schema: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSubresource:
    """A path below an object, and the kind that is read and written there."""

    name: str
    verbs: tuple[str, ...]
    group: str
    version: str
    kind: str
    type_name: str | None = None
    """The OpenAPI name of that kind's type; None means the type of the object itself."""
    body_kind: str = ""
    """The kind that is sent, if it is another than the one that is answered."""
    body_type_name: str = ""
    """The OpenAPI name of that one's type."""
    takes_path: bool = False
    """Whether any path may follow."""

    @property
    def connects(self) -> bool:
        """Whether a connection is made there. The kind then says what the query may hold."""
        return self.kind.endswith("Options")

    @property
    def is_text(self) -> bool:
        """Whether what is answered is no object."""
        return self.connects or self.name == "log"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedKind:
    """One kind in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[ServedSubresource, ...] = ()
    type_name: str | None = None
    """The OpenAPI name of a built-in type; None for a kind that was declared at run time."""
    schema: Schema | SchemaSource | None = None
    """The schema of a declared kind; None means that anything is accepted."""
    list_kind: str = ""
    """What its lists are called, if it is not the kind with `List` behind it."""
    returns_deleted: bool = False
    """Whether a deletion is answered with the object, rather than with a Status."""
    selectable: tuple[str, ...] = ()
    """The fields of a declared kind that field selectors may name."""

    def declared_schema(self) -> Schema | None:
        """The schema, read."""
        if self.schema is None or isinstance(self.schema, dict):
            return self.schema
        return self.schema.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiInfo:
    """What all documents of one server say about it."""

    title: str = "restow"
    version: str = "unversioned"
    """The Kubernetes version that the server emulates, as in /version."""
    server_side_apply: bool = True
    """Whether PATCH takes apply patches."""


PATCH_JSON = "application/json-patch+json"
PATCH_MERGE = "application/merge-patch+json"
PATCH_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_APPLY = "application/apply-patch+yaml"


def patch_types(kind: ServedKind, info: ApiInfo) -> tuple[str, ...]:
    """The patch types that a kind takes: strategic merge needs the merge keys of a built-in."""
    types = [PATCH_JSON, PATCH_MERGE]
    if kind.type_name is not None:
        types.append(PATCH_STRATEGIC)
    if info.server_side_apply:
        types.append(PATCH_APPLY)
    return tuple(types)


def group_version(group: str, version: str) -> str:
    """The text of a group version: `v1`, `apps/v1`."""
    return f"{group}/{version}" if group else version


def api_prefix(group: str, version: str) -> str:
    """The path under which a group version is served, without the leading slash."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def definition_name(kind: ServedKind) -> str:
    """The name of a kind's definition: the built-in one, or the group read backwards."""
    if kind.type_name is not None:
        return kind.type_name
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "core"
    return f"{group}.{kind.version}.{kind.kind}"


def list_kind_of(kind: ServedKind) -> str:
    """What a kind's lists are called."""
    return kind.list_kind or f"{kind.kind}List"


def list_definition_name(kind: ServedKind) -> str:
    """The name of the definition of a kind's list."""
    return definition_name(kind).removesuffix(kind.kind) + list_kind_of(kind)


def in_order(kinds: "tuple[ServedKind, ...] | list[ServedKind]") -> list[ServedKind]:
    """The kinds in the one order that all servers write them in."""
    return sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.kind, kind.plural))
