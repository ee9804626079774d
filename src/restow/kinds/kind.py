"""What there is to say about a built-in kind: one frozen value for each group and kind.

`Kind` says how a kind behaves in discovery, in storage and under each verb. All who treat kinds
alike read it, so that a new kind is one line in a table.

Not here: the kinds themselves (`restow.kinds.builtin`), the fields of their types
(`restow.kinds.types`), which versions a server hosts (`restow.kinds.releases`).
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
# A review is asked and answered; there is nothing to read later.
VERBS_REVIEW: Final = ("create",)
VERBS_STATUS: Final = ("get", "patch", "update")

# Where the package of a group's types is not called like the first part of the group.
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
    """A part of an object with a path of its own."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    """The kind that is read and written there; empty if it is the object's own."""
    group: str = ""
    version: str = ""
    """Set, with the group, if that kind lives in another group version."""
    body_kind: str = ""
    """The kind that is sent there, if it is another than the one that is answered."""
    takes_path: bool = False
    """Whether a path of somebody else's may follow its own, as in `/proxy/some/path`."""


STATUS: Final = Subresource(name="status", verbs=VERBS_STATUS)
SCALE: Final = Subresource(
    name="scale", verbs=VERBS_STATUS, kind="Scale", group="autoscaling", version="v1"
)


@dataclass(frozen=True, slots=True)
class SelectableField:
    """A field that a field selector may name, and where it is in the kind's hub version.

    The hub, because it is what selectors are matched on: `events.k8s.io` calls the field
    `regarding.kind`, and it is found at `involvedObject.kind`.
    """

    label: str
    path: tuple[str, ...]
    fallback: tuple[str, ...] = ()
    """Where to look if there is nothing at the path."""
    absent: str = ""
    """What an object without the field counts as."""

    def value_of(self, obj: dict[str, Any]) -> str:
        """The value as the selector compares it, which is always text."""
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
    """What a list of them is called, if not `<kind>List`."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True

    versions: tuple[str, ...]
    """Every version that can be decoded, the one to prefer first."""
    served_versions: tuple[str, ...]
    """Those that a server offers when no release says otherwise."""
    storage_version: str
    """The one that is written when no release says otherwise."""

    verbs: tuple[str, ...] = VERBS_ALL
    subresources: tuple[Subresource, ...] = ()
    key_prefix: str
    """Keys are `/registry/<prefix>/[<namespace>/]<name>`."""
    persisted: bool = True
    """False for reviews, which are answered and forgotten."""
    cohabits_with: GroupKind | None = None
    """The kind in whose store, and in whose versions, objects of this one are kept."""

    tracks_generation: bool = False
    generation_first: int = 1
    """What a new object begins with. With 0 it has none until something of it changes."""
    generation_is_fixed: bool = False
    """Whether it stays at the first, whatever changes."""
    generation_metadata: str = ""
    """A field of the metadata whose change makes another generation, as that of a spec does."""
    unconditional_update: bool = True
    """Whether an update without a resource version overwrites whatever is there."""
    create_on_update: bool = False
    """Whether an update of what is not there creates it."""
    create_keeps_status: bool = False
    """Whether a new object has the status that it was sent with."""
    status_keeps_metadata: bool = False
    """Whether labels and the like stay as they are when the status is written."""
    status_keeps: tuple[str, ...] = ()
    """Those of them that do, where not all do."""
    is_graceful: bool = False
    """Whether a delete gives it time to end: it stays, marked, until somebody says it is over."""
    orphans_by_default: bool = False
    """Whether what it owns stays when it is deleted by someone who does not say what is to be."""
    follows_owners: bool = True
    """Whether it goes when its owners do; if not, no policy of a delete is of concern to it."""
    returns_deleted: bool = False
    """Whether a delete answers with the object instead of a Status."""
    name_rule: NameRuleName = "subdomain"
    selectable_fields: tuple[SelectableField, ...] = ()
    """Besides `metadata.name` and `metadata.namespace`, which every kind has."""

    pinned: bool = False
    """Stored in one version in every release, because agreement itself stands on it."""
    required: bool = False
    """Hosted in every release, because the server or its clients cannot do without."""
    is_heavy: bool = False
    """Checking one takes some milliseconds: they take turns, and others get theirs in between."""
    behaviour_missing: bool = False
    """It can be stored, but nothing acts on it yet: creating it gives a warning."""
    deprecation: str = ""
    """What whoever uses it is told: there is something better by now."""

    has_status: bool = field(init=False, repr=False, compare=False)
    """Whether `status` is written through a path of its own, and only there."""

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
        """The function that says what is wrong with a name."""
        return _NAME_RULES[self.name_rule]

    @property
    def store(self) -> GroupKind:
        """The kind whose keys and stored versions these objects have: usually itself."""
        return self.cohabits_with or self.group_kind

    @property
    def storage_api_version(self) -> str:
        """The `apiVersion` in stored bytes when no release says otherwise."""
        return api_version(self.store.group, self.storage_version)

    def api_version(self, version: str) -> str:
        """The `apiVersion` of objects in one of the versions."""
        return api_version(self.group, version)

    def type_name(self, version: str) -> str:
        """The OpenAPI definition name of the type in one version."""
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
    """A row of the tables. Lists are words in one text, and what is usual is left out: a plural
    that ends in s, and that the stable versions are served, or all if there are none."""
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
    """Fields whose label is their path."""
    return tuple(SelectableField(label, tuple(label.split("."))) for label in labels)


def api_version(group: str, version: str) -> str:
    """A group and a version as objects carry them."""
    return f"{group}/{version}" if group else version


def type_name(group: str, version: str, kind: str) -> str:
    """The OpenAPI definition name of a built-in type."""
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
