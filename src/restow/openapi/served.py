"""The served kinds as plain values: the input of every document.

Not here: where these facts come from. The caller derives them from its catalogue.
"""

from dataclasses import dataclass
from typing import Any, Protocol

Schema = dict[str, Any]


class SchemaSource(Protocol):
    """A schema that is stored compactly and parsed on demand."""

    def read(self) -> Schema: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSubresource:
    """A subresource, and the kind that is read and written there."""

    name: str
    verbs: tuple[str, ...]
    group: str
    version: str
    kind: str
    type_name: str | None = None
    """The OpenAPI name of that kind's type; None means the type of the object itself."""
    body_kind: str = ""
    """The kind of the request body, if it differs from the response."""
    body_type_name: str = ""
    """The OpenAPI name of that kind's type."""
    takes_path: bool = False
    """Whether a path may follow."""

    @property
    def connects(self) -> bool:
        """Whether the subresource is a connection. The kind then describes the query parameters."""
        return self.kind.endswith("Options")

    @property
    def is_text(self) -> bool:
        """Whether the response is not an object."""
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
    """The OpenAPI name of a built-in type; None for a kind that was declared at runtime."""
    schema: Schema | SchemaSource | None = None
    """The schema of a declared kind; None means that anything is accepted."""
    list_kind: str = ""
    """The kind of its lists, if it is not the kind with the suffix `List`."""
    returns_deleted: bool = False
    """Whether a delete returns the object rather than a Status."""
    selectable: tuple[str, ...] = ()
    """The fields of a declared kind that field selectors support."""

    def declared_schema(self) -> Schema | None:
        """Return the parsed schema."""
        if self.schema is None or isinstance(self.schema, dict):
            return self.schema
        return self.schema.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiInfo:
    """Data about the server that all documents contain."""

    title: str = "restow"
    version: str = "unversioned"
    """The Kubernetes version that the server emulates, as in /version."""
    server_side_apply: bool = True
    """Whether PATCH supports apply patches."""


PATCH_JSON = "application/json-patch+json"
PATCH_MERGE = "application/merge-patch+json"
PATCH_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_APPLY = "application/apply-patch+yaml"


def patch_types(kind: ServedKind, info: ApiInfo) -> tuple[str, ...]:
    """Return the patch types of a kind: strategic merge needs the merge keys of a built-in type."""
    types = [PATCH_JSON, PATCH_MERGE]
    if kind.type_name is not None:
        types.append(PATCH_STRATEGIC)
    if info.server_side_apply:
        types.append(PATCH_APPLY)
    return tuple(types)


def group_version(group: str, version: str) -> str:
    """Format a group version: `v1`, `apps/v1`."""
    return f"{group}/{version}" if group else version


def api_prefix(group: str, version: str) -> str:
    """Return the path of a group version, without the leading slash."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def definition_name(kind: ServedKind) -> str:
    """Return the name of a kind's definition: the built-in one, or derived from the reversed
    group.
    """
    if kind.type_name is not None:
        return kind.type_name
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "core"
    return f"{group}.{kind.version}.{kind.kind}"


def list_kind_of(kind: ServedKind) -> str:
    """Return the kind of a kind's lists."""
    return kind.list_kind or f"{kind.kind}List"


def list_definition_name(kind: ServedKind) -> str:
    """Return the name of the definition of a kind's list."""
    return definition_name(kind).removesuffix(kind.kind) + list_kind_of(kind)


def in_order(kinds: "tuple[ServedKind, ...] | list[ServedKind]") -> list[ServedKind]:
    """Return the kinds in the order that all servers use."""
    return sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.kind, kind.plural))
