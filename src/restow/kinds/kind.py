"""The properties of a built-in kind: one frozen value for each group and kind.

`Kind` describes the behaviour of a kind in discovery, in storage and under each verb. All generic
code reads it, so that a new kind is one line in a table.

Not here: the kinds themselves (`restow.kinds.builtin`), the fields of their types
(`restow.kinds.types`), the versions that a server hosts (`restow.kinds.releases`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from restow.apimachinery.name_formats import (
    NameRule,
    dns_label_problem,
    path_segment_problem,
    subdomain_problem,
)
from restow.apimachinery.names import GroupKind, GroupResource

NameRuleName = Literal["subdomain", "label", "path-segment"]

_NAME_RULES: Final[dict[NameRuleName, NameRule]] = {
    "subdomain": subdomain_problem,
    "label": dns_label_problem,
    "path-segment": path_segment_problem,
}

VERBS_ALL: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
# The server evaluates a review; nothing is stored.
VERBS_REVIEW: Final = ("create",)
VERBS_STATUS: Final = ("get", "patch", "update")

# The packages of types that are not named after the first part of the group.
_TYPE_PACKAGES: Final = {
    "": "io.k8s.api.core",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
    "internal.apiserver.k8s.io": "io.k8s.api.apiserverinternal",
    "kube-apiserver.internal.k8s.io": "io.k8s.internal.kube-apiserver",
    "migration.k8s.io": "io.k8s.migration",
    "storage.restow.dev": "dev.restow.storage",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A subresource."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    """The kind that is read and written there; empty if it is the object's own."""
    group: str = ""
    version: str = ""
    """Set, with the group, if that kind is in another group version."""
    body_kind: str = ""
    """The kind of the request body, if it is not that of the response."""
    takes_path: bool = False
    """Whether further path segments, for the backend, may follow: `/proxy/some/path`."""


STATUS: Final = Subresource(name="status", verbs=VERBS_STATUS)
SCALE: Final = Subresource(
    name="scale", verbs=VERBS_STATUS, kind="Scale", group="autoscaling", version="v1"
)


@dataclass(frozen=True, slots=True)
class SelectableField:
    """A field that a field selector may name, and its path in the kind's hub version.

    Selectors are matched on the hub version: `regarding.kind` of `events.k8s.io` is found at
    `involvedObject.kind`.
    """

    label: str
    path: tuple[str, ...]
    fallback: tuple[str, ...] = ()
    """The path to use if there is no value at the first one."""
    absent: str = ""
    """The value of an object without the field."""

    def value_of(self, obj: dict[str, Any]) -> str:
        """Return the value as text, as a selector compares it."""
        found = _text_at(obj, self.path)
        if not found and self.fallback:
            found = _text_at(obj, self.fallback)
        return found or self.absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of one group, in all its versions."""

    group: str
    kind: str
    plural: str
    singular: str
    list_kind: str = ""
    """The kind of a list, if not `<kind>List`."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True

    versions: tuple[str, ...]
    """Every version that can be decoded, the preferred one first."""
    served_versions: tuple[str, ...]
    """The versions that a server serves unless a release specifies others."""
    storage_version: str
    """The version that is written unless a release specifies another."""

    verbs: tuple[str, ...] = VERBS_ALL
    subresources: tuple[Subresource, ...] = ()
    key_prefix: str
    """Keys are `/registry/<prefix>/[<namespace>/]<name>`."""
    persisted: bool = True
    """False for reviews, which the server evaluates and does not store."""
    cohabits_with: GroupKind | None = None
    """The kind with which this one shares its key prefix and stored versions."""

    tracks_generation: bool = False
    generation_first: int = 1
    """The first generation. With 0 an object has none until its spec changes."""
    generation_is_fixed: bool = False
    """Whether the generation never changes."""
    generation_metadata: str = ""
    """A field of the metadata whose change increments the generation, as one of the spec does."""
    unconditional_update: bool = True
    """Whether an update without a resource version is unconditional."""
    create_on_update: bool = False
    """Whether an update creates an object that does not exist."""
    create_keeps_status: bool = False
    """Whether a create keeps the status of the request."""
    status_keeps_metadata: bool = False
    """Whether an update of the status keeps labels, annotations and the like unchanged."""
    status_keeps: tuple[str, ...] = ()
    """The fields of the metadata that an update of the status keeps, if not all."""
    is_graceful: bool = False
    """Whether a delete has a grace period, in which the object has a deletionTimestamp."""
    orphans_by_default: bool = False
    """Whether dependents are orphaned by a delete without propagationPolicy."""
    follows_owners: bool = True
    """Whether the garbage collector deletes it with its owners; if not, it ignores them."""
    returns_deleted: bool = False
    """Whether a delete returns the object instead of a Status."""
    name_rule: NameRuleName = "subdomain"
    selectable_fields: tuple[SelectableField, ...] = ()
    """In addition to `metadata.name` and `metadata.namespace`, which every kind has."""

    pinned: bool = False
    """Stored in one version in every release, because servers agree on versions through it."""
    required: bool = False
    """Hosted in every release, because the server or its clients depend on it."""
    is_heavy: bool = False
    """Validation takes some milliseconds, so only one runs at a time."""
    behaviour_missing: bool = False
    """It can be stored, but has no effect yet: creating it returns a warning."""
    deprecation: str = ""
    """The warning to clients that use it, if it is deprecated."""

    has_status: bool = field(init=False, repr=False, compare=False)
    """Whether it has the subresource `status`, through which alone the status is written."""

    def __post_init__(self) -> None:
        has_status = any(each.name == "status" for each in self.subresources)
        object.__setattr__(self, "has_status", has_status)
        object.__setattr__(self, "list_kind", self.list_kind or f"{self.kind}List")

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def name_problem(self) -> NameRule:
        """The function that validates a name."""
        return _NAME_RULES[self.name_rule]

    @property
    def store(self) -> GroupKind:
        """The kind whose keys and stored versions these objects have: usually itself."""
        return self.cohabits_with or self.group_kind

    @property
    def storage_api_version(self) -> str:
        """The `apiVersion` in stored bytes unless a release specifies another."""
        return api_version(self.store.group, self.storage_version)

    def api_version(self, version: str) -> str:
        """Return the `apiVersion` of objects in one of the versions."""
        return api_version(self.group, version)

    def type_name(self, version: str) -> str:
        """Return the OpenAPI definition name of the type in one version."""
        return type_name(self.group, version, self.kind)


def declare(
    group: str,
    kind: str,
    plural: str = "",
    *,
    versions: str = "v1",
    served: str = "",
    storage: str = "",
    short: str = "",
    categories: str = "",
    namespaced: bool = True,
    key_prefix: str = "",
    subresources: tuple[Subresource, ...] = (),
    selectable: tuple[SelectableField, ...] = (),
    **rest: Any,
) -> Kind:
    """Return a row of the tables. Lists are space-separated. Defaults: the plural adds an s, and
    the stable versions are served, or all if there are none."""
    names = tuple(versions.split())
    stable = tuple(name for name in names if "alpha" not in name and "beta" not in name)
    plural = plural or f"{kind.lower()}s"
    return Kind(
        group=group,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        namespaced=namespaced,
        versions=names,
        served_versions=tuple(served.split()) or stable or names,
        storage_version=storage or names[0],
        key_prefix=key_prefix or plural,
        subresources=subresources,
        selectable_fields=selectable,
        **rest,
    )


def selectable(*labels: str) -> tuple[SelectableField, ...]:
    """Return fields whose label is their path."""
    return tuple(SelectableField(label, tuple(label.split("."))) for label in labels)


def api_version(group: str, version: str) -> str:
    """Return the `apiVersion` of a group and version."""
    return f"{group}/{version}" if group else version


def type_name(group: str, version: str, kind: str) -> str:
    """Return the OpenAPI definition name of a built-in type."""
    package = _TYPE_PACKAGES.get(group) or f"io.k8s.api.{group.partition('.')[0]}"
    return f"{package}.{version}.{kind}"


def _text_at(obj: dict[str, Any], path: tuple[str, ...]) -> str:
    value: Any = obj
    for name in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(name)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else ""
