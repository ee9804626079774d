"""Schemas of objects for server-side apply: which values are merged, and which are replaced.

A `SchemaNode` describes the values that are allowed at one path of an object: a scalar, a map, a
list, or several of them if the type is unknown. Parts of a *granular* value have owners of their
own; an *atomic* value has one owner and is replaced as a whole. Nodes of structs are created on
first access, cached with the struct, and shared by all objects.

This module also defines facts that are in Kubernetes' OpenAPI schemas but not in the type tables:
structs that are atomic wherever they are used, and defaults of list keys.

Not here: the schemas of custom kinds (`structural_schema`), and walks over values (`values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from restow.apimachinery.apply.elements import key_text, value_text
from restow.apimachinery.apply.sets import EMPTY, SELF, FieldSet
from restow.apimachinery.types import Field, ListOf, MapOf, Scalar, Special, Struct, StructRef, Type

STRING: Final = "string"
NUMERIC: Final = "numeric"
BOOLEAN: Final = "boolean"
UNTYPED: Final = "untyped"

OUTLINES_MAX: Final = 64
"""Maximum per struct: most are written with a few combinations of their fields."""

_COMPILED: Final = "apply"
_CORE: Final = "io.k8s.api.core.v1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ADMISSION: Final = "io.k8s.api.admissionregistration."

# Structs that are atomic wherever they are used, unless a field overrides it.
ATOMIC_STRUCTS: Final = frozenset(
    (
        *(
            _CORE + name
            for name in (
                "ConfigMapKeySelector",
                "EndpointAddress",
                "EndpointPort",
                "FileKeySelector",
                "LocalObjectReference",
                "NodeSelector",
                "NodeSelectorTerm",
                "ObjectFieldSelector",
                "ObjectReference",
                "ResourceFieldSelector",
                "ScopeSelector",
                "SecretKeySelector",
                "SecretReference",
                "TopologySelectorTerm",
                "TypedLocalObjectReference",
            )
        ),
        *(
            f"{_ADMISSION}{version}.{name}"
            for version in ("v1", "v1beta1", "v1alpha1")
            for name in ("MatchResources", "NamedRuleWithOperations", "ParamKind", "ParamRef")
        ),
        _ADMISSION + "v1.Variable",
        _ADMISSION + "v1beta1.Variable",
        _META + "LabelSelector",
        _META + "OwnerReference",
        "io.k8s.api.autoscaling.v1.CrossVersionObjectReference",
        "io.k8s.api.discovery.v1.EndpointPort",
        "io.k8s.api.networking.v1.ServiceBackendPort",
        "io.k8s.api.rbac.v1.RoleRef",
        "io.k8s.api.rbac.v1.Subject",
    )
)
# Defaults of omitted key fields; other keys have one only if Go always serializes them.
_KEY_DEFAULTS: Final[dict[tuple[str, str], Any]] = {
    (_CORE + "ContainerPort", "protocol"): "TCP",
    (_CORE + "ServicePort", "protocol"): "TCP",
    (_CORE + "LocalObjectReference", "name"): "",
}
_ZEROS: Final[dict[Type, Any]] = {Scalar.STRING: "", Scalar.INT32: 0, Scalar.INT64: 0}


class MapMember:
    """One member of a map."""

    __slots__ = ("is_declared", "node", "walk", "wire")

    def __init__(self, name: str, node: SchemaNode | None, *, is_declared: bool) -> None:
        # The key in a field set.
        self.wire = "f:" + name
        # None if the schema does not declare this member.
        self.node = node
        # The node if fields below it can have owners.
        self.walk: SchemaNode | None = None if node is None or node.is_leaf else node
        # Whether it is a declared field rather than a member of a map with arbitrary keys.
        self.is_declared = is_declared


Outline = tuple[FieldSet, tuple[tuple[str, str, "SchemaNode"], ...]]
"""The field set of a struct's members and of itself; the members that have fields below them."""


class Members(dict[str, MapMember]):
    """The members of a map by name. Declared ones are cached on lookup; the others share one node.

    `members[name]` always returns an entry.
    """

    __slots__ = ("_declare", "element", "has_declared", "is_plain", "outlines")

    def __init__(
        self,
        declare: Callable[[str], SchemaNode | None] | None = None,
        *,
        element: SchemaNode | None = None,
    ) -> None:
        super().__init__()
        self._declare = declare
        self.has_declared = declare is not None
        self.element = element
        self.is_plain = False
        self.outlines: dict[tuple[str, ...], Outline] = {}
        self.set_element(element)

    def set_element(self, element: SchemaNode | None) -> None:
        """Set the node of undeclared members. Only for nodes that contain themselves."""
        self.element = element
        # Labels, data: only the keys matter.
        self.is_plain = not self.has_declared and element is not None and element.is_leaf

    def outline(self, names: tuple[str, ...]) -> Outline | None:
        """Return the field set that values with exactly these members have; None if any is
        undeclared.

        Clients write the same members each time, so a small cache suffices.
        """
        entries = [self[name] for name in names]
        if not all(each.is_declared for each in entries):
            return None
        # Without members below it, the path is a plain member and needs no `.` key.
        wires = {SELF: EMPTY, **{each.wire: EMPTY for each in entries}} if names else EMPTY
        below = tuple(
            (name, each.wire, each.walk)
            for name, each in zip(names, entries, strict=True)
            if each.walk is not None
        )
        if len(self.outlines) < OUTLINES_MAX:
            self.outlines[names] = (wires, below)
        return wires, below

    def __missing__(self, name: str) -> MapMember:
        node = None if self._declare is None else self._declare(name)
        if node is None:
            return MapMember(name, self.element, is_declared=False)
        found = self[name] = MapMember(name, node, is_declared=True)
        return found


class Elements:
    """The items of a list. An associative list without keys is a set of scalars."""

    __slots__ = ("_keys", "_prefix", "defaults", "is_associative", "item", "keys", "only", "walk")

    def __init__(
        self,
        item: SchemaNode | None = None,
        *,
        is_associative: bool = False,
        keys: tuple[str, ...] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.item = item
        self.walk = None if item is None or item.is_leaf else item
        self.is_associative = is_associative
        self.keys = keys
        self.defaults = defaults or {}
        self._keys = tuple((name, f"{key_text(name)}:") for name in sorted(keys))
        # Most lists have one key, a name.
        self.only = keys[0] if len(keys) == 1 else None
        self._prefix = f"k:{{{self._keys[0][1]}" if keys else ""

    def element_of(self, value: Any) -> str:
        """Return the key of an item in a field set; ValueError with Kubernetes' wording if it has
        none.
        """
        kind = type(value)
        if kind is dict:
            if self.only is not None and self.only in value:
                return f"{self._prefix}{value_text(value[self.only])}}}"
            if self.keys:
                return self._keyed(value)
            raise ValueError("associative list without keys has an element that's a map type")
        if self.keys:
            what = "a null element" if value is None else "non-map elements"
            raise ValueError(f"associative list with keys may not have {what}")
        if kind is list:
            raise ValueError("not supported: associative list with lists as elements")
        if value is None:
            raise ValueError("associative list without keys has an element that's an explicit null")
        return f"v:{value_text(value)}"

    def _keyed(self, value: dict[str, Any]) -> str:
        parts = []
        for name, prefix in self._keys:
            if name in value:
                parts.append(prefix + value_text(value[name]))
            elif (default := self.defaults.get(name)) is not None:
                parts.append(prefix + value_text(default))
        if not parts:
            listed = " ".join(f'"{name}"' for name in self.keys)
            raise ValueError(
                "associative list with keys has an element that omits all key fields "
                f"[{listed}] (and doesn't have default values for any key fields)"
            )
        return "k:{" + ",".join(parts) + "}"

    def elements_of(self, values: list[Any]) -> list[str]:
        """Return the keys of stored items; an item without a valid key is known by its index."""
        try:
            return list(map(self.element_of, values))
        except ValueError:
            return [self._element_at(index, value) for index, value in enumerate(values)]

    def _element_at(self, index: int, value: Any) -> str:
        try:
            return self.element_of(value)
        except ValueError:
            return f"i:{index}"


class SchemaNode:
    """The values that are allowed at one path: any of a scalar, a map and a list."""

    __slots__ = (
        "elements",
        "granular_list",
        "granular_map",
        "is_leaf",
        "members",
        "scalar",
    )

    def __init__(
        self,
        *,
        scalar: str = "",
        members: Members | None = None,
        is_atomic_map: bool = False,
        elements: Elements | None = None,
    ) -> None:
        self.scalar = scalar
        self.members = members
        self.elements = elements
        # The parts below which fields may have owners.
        self.granular_map = None if is_atomic_map else members
        self.granular_list = elements if elements is not None and elements.is_associative else None
        self.is_leaf: bool = self.granular_map is None and self.granular_list is None

    def as_map_type(self, map_type: str | None) -> SchemaNode:
        """Return the node with the map type that a field declares for the struct or map in it."""
        is_atomic = map_type == "atomic"
        if map_type is None or self.members is None or is_atomic == (self.granular_map is None):
            return self
        return SchemaNode(
            scalar=self.scalar,
            members=self.members,
            is_atomic_map=is_atomic,
            elements=self.elements,
        )


def _self_containing(*, is_atomic: bool, element: SchemaNode | None = None) -> SchemaNode:
    members = Members()
    node = SchemaNode(
        scalar=UNTYPED,
        members=members,
        is_atomic_map=is_atomic,
        elements=Elements(element),
    )
    members.set_element(node)
    if element is None:
        node.elements = Elements(node)
    return node


TEXT: Final = SchemaNode(scalar=STRING)
NUMBER: Final = SchemaNode(scalar=NUMERIC)
FLAG: Final = SchemaNode(scalar=BOOLEAN)
ANY_SCALAR: Final = SchemaNode(scalar=UNTYPED)
ANY_ATOMIC: Final = _self_containing(is_atomic=True)
"""Any value, atomic."""
ANY: Final = _self_containing(is_atomic=False, element=ANY_ATOMIC)
"""Any value: maps are granular, lists are atomic."""
ANY_OBJECT: Final = SchemaNode(members=ANY.members)
"""A map of any values."""

_SCALARS: Final[dict[Scalar, SchemaNode]] = {
    Scalar.STRING: TEXT,
    Scalar.BYTES: TEXT,
    Scalar.BOOL: FLAG,
    Scalar.INT32: NUMBER,
    Scalar.INT64: NUMBER,
    Scalar.FLOAT64: NUMBER,
}
_SPECIALS: Final[dict[Special, SchemaNode]] = {
    Special.TIME: ANY_SCALAR,
    Special.MICRO_TIME: ANY_SCALAR,
    Special.DURATION: TEXT,
    Special.QUANTITY: ANY_SCALAR,
    Special.INT_OR_STRING: ANY,
    Special.RAW_EXTENSION: ANY_ATOMIC,
    Special.FIELDS_V1: ANY_OBJECT,
    Special.JSON: ANY,
    Special.SCHEMA_OR_ARRAY: ANY,
    Special.SCHEMA_OR_BOOL: ANY,
    Special.SCHEMA_OR_STRINGS: ANY,
}


def from_struct(struct: Struct) -> SchemaNode:
    """Return the shared node of a struct; the nodes below it are created on first access."""
    found = struct.compiled.get(_COMPILED)
    if found is None:
        found = struct.compiled[_COMPILED] = _compile(struct)
    assert isinstance(found, SchemaNode)
    return found


def _compile(struct: Struct) -> SchemaNode:
    def declare(name: str) -> SchemaNode | None:
        field = struct.by_name.get(name)
        return None if field is None else _node(field.type, struct, field)

    if not struct.fields:
        # An object without declared fields may hold anything.
        return ANY_OBJECT
    return SchemaNode(members=Members(declare), is_atomic_map=struct.name in ATOMIC_STRUCTS)


def _node(type_: Type, struct: Struct, field: Field | None = None) -> SchemaNode:
    """Return the node of a type; the field declares how its list or map merges."""
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case Special():
            return _SPECIALS[type_]
        case StructRef():
            found = from_struct(struct.table.struct(type_.name))
            return found if field is None else found.as_map_type(field.map_type)
        case MapOf():
            return SchemaNode(
                members=Members(element=_node(type_.value, struct)),
                is_atomic_map=field is not None and field.map_type == "atomic",
            )
        case ListOf():
            return _list(type_, struct, field)


def _list(type_: ListOf, struct: Struct, field: Field | None) -> SchemaNode:
    item = _node(type_.item, struct)
    is_associative, keys = _merging(field)
    defaults = {}
    if keys and isinstance(type_.item, StructRef):
        inner = struct.table.struct(type_.item.name)
        defaults = {name: _key_default(inner, name) for name in keys}
    return SchemaNode(
        elements=Elements(item, is_associative=is_associative, keys=keys, defaults=defaults)
    )


def _merging(field: Field | None) -> tuple[bool, tuple[str, ...]]:
    """Return whether list items have owners of their own, and the keys that identify them."""
    if field is None:
        return False, ()
    if field.list_type is not None:
        keys = field.list_keys if field.list_type == "map" else ()
        return field.list_type != "atomic", keys
    if "merge" in field.patch_strategies:
        return True, () if field.merge_key is None else (field.merge_key,)
    return False, ()


def _key_default(struct: Struct, name: str) -> Any:
    """Return the default of an omitted key; None if the item then lacks the key."""
    if (struct.name, name) in _KEY_DEFAULTS:
        return _KEY_DEFAULTS[struct.name, name]
    field = struct.by_name.get(name)
    if field is None or field.pointer or field.omitempty:
        return None
    return _ZEROS.get(field.type)


def _fixed(fields: Mapping[str, SchemaNode], *, element: SchemaNode | None = None) -> Members:
    """Return the members of a map whose fields are all known."""
    return Members(fields.get, element=element)


_OWNERS: Final = SchemaNode(
    elements=Elements(
        SchemaNode(
            members=_fixed(
                {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), TEXT),
                    **dict.fromkeys(("controller", "blockOwnerDeletion"), FLAG),
                }
            ),
            is_atomic_map=True,
        ),
        is_associative=True,
        keys=("uid",),
        defaults={"uid": ""},
    )
)
OBJECT_META: Final = SchemaNode(
    members=_fixed(
        {
            **dict.fromkeys(
                ("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), TEXT
            ),
            **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), NUMBER),
            **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), ANY_SCALAR),
            **dict.fromkeys(("labels", "annotations"), SchemaNode(members=Members(element=TEXT))),
            "ownerReferences": _OWNERS,
            "finalizers": SchemaNode(elements=Elements(TEXT, is_associative=True)),
            "managedFields": SchemaNode(elements=Elements(ANY_OBJECT)),
        }
    )
)
"""The metadata of every object; that of built-in kinds is the same, from their type table."""

OBJECT_FIELDS: Final[Mapping[str, SchemaNode]] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": OBJECT_META,
}
"""The fields that every object has."""

DEDUCED: Final = SchemaNode(members=_fixed(OBJECT_FIELDS, element=ANY))
"""An object of a kind without a schema: everything except its metadata is accepted."""
