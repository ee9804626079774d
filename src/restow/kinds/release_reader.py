"""Parses the YAML of a release, and rejects invalid ones with the line of the error.

It reads YAML nodes, which have line numbers, and builds only the values that are needed: so five
hundred kinds take a few hundredths of a second, and duplicate keys are detected.

Not here: the values of a release (`release_values`), and the file it comes from.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, cast, get_args

from restow.apimachinery.name_formats import dns_1035_label_problem, subdomain_problem
from restow.apimachinery.yaml_nodes import Items, Node, Pairs, Text, YamlProblem, compose
from restow.kinds.builtin import all_kinds, find_kind, group_order
from restow.kinds.kind import Kind
from restow.kinds.release_values import (
    ConversionName,
    Release,
    ReleaseError,
    ReleaseKind,
    ReleaseVersion,
    SchemaName,
    builtin_release_kind,
)

KINDS_MAX: Final = 5000
VERSIONS_MAX: Final = 32
NAME_LENGTH_MAX: Final = 63

_RELEASE_NAME: Final = re.compile(rf"[A-Za-z0-9][-A-Za-z0-9._+]{{0,{NAME_LENGTH_MAX - 1}}}")
_KIND_NAME: Final = re.compile(rf"[A-Z][A-Za-z0-9]{{0,{NAME_LENGTH_MAX - 1}}}")
_RELEASE_KEYS: Final = ("release", "builtins", "kinds")
_KIND_KEYS: Final = (
    "group",
    "kind",
    "plural",
    "scope",
    "versions",
    "storage",
    "conversion",
    "schema",
)
_VERSION_KEYS: Final = ("name", "served", "decodable")
_SCOPES: Final = ("Cluster", "Namespaced")
_TRUTHS: Final = {"true": True, "false": False}


def read_release(data: bytes, source: str) -> Release:
    """Parse the bytes of a file."""
    try:
        root = compose(data)
    except YamlProblem as problem:
        line = "" if problem.line is None else f":{problem.line}"
        raise ReleaseError(f"{source}{line}: {problem.why}") from problem
    if root is None:
        raise ReleaseError(f"{source}: is empty; a release has `release` and `kinds`")
    return _Reader(source).release(root)


class _Reader:
    """Reads YAML nodes. It keeps the name of the file for error messages."""

    def __init__(self, source: str) -> None:
        self._source = source

    def release(self, root: Node) -> Release:
        fields = self._fields(root, "a release", _RELEASE_KEYS)
        name = self._text(self._needed(fields, "release", root), "release")
        if not _RELEASE_NAME.fullmatch(name):
            why = f"`release: {name[:64]}` is no valid name: letters, digits and `-._+`, at most "
            raise self._error(fields["release"], f"{why}{NAME_LENGTH_MAX}")
        builtins = self._choice(fields, "builtins", ("all", "required"), default="all")
        node = self._needed(fields, "kinds", root)
        items = self._items(node, "kinds", KINDS_MAX)
        listed = [(item, self._kind(item)) for item in items]
        replaced = {kind.definition.group_kind for _, kind in listed}
        kinds = [
            builtin_release_kind(definition)
            for definition in all_kinds()
            if (builtins == "all" or definition.required) and definition.group_kind not in replaced
        ]
        taken = _Taken()
        for kind in kinds:
            taken.add(kind.definition)
        for item, kind in listed:
            problem = taken.add(kind.definition)
            if problem is not None:
                raise self._error(item, problem)
            kinds.append(kind)
        kinds.sort(key=lambda kind: group_order(kind.definition.group))
        return Release(name, tuple(kinds))

    def _kind(self, node: Node) -> ReleaseKind:
        fields = self._fields(node, "a kind", _KIND_KEYS)
        schema = cast(SchemaName, self._choice(fields, "schema", get_args(SchemaName), "builtin"))
        definition = self._definition(node, fields, schema)
        versions = self._versions(fields, node)
        if schema == "builtin":
            self._check_builtin_versions(fields["versions"], definition, versions)
        storage = self._storage(fields, node, definition, versions)
        conversion = cast(
            ConversionName,
            self._choice(
                fields,
                "conversion",
                get_args(ConversionName),
                "builtin" if schema == "builtin" else "rename",
            ),
        )
        self._check_conversion(fields.get("conversion", node), conversion, schema, versions)
        if schema == "open":
            definition = replace(
                definition,
                versions=tuple(version.name for version in versions),
                served_versions=tuple(version.name for version in versions if version.served),
                storage_version=storage,
            )
        return ReleaseKind(
            definition=definition,
            versions=versions,
            storage=storage,
            conversion=conversion,
            schema=schema,
        )

    def _definition(self, node: Node, fields: dict[str, Node], schema: SchemaName) -> Kind:
        """Return the built-in kind, or a new one for an open kind."""
        group = self._text(self._needed(fields, "group", node), "group")
        kind = self._text(self._needed(fields, "kind", node), "kind")
        plural = self._text(self._needed(fields, "plural", node), "plural")
        scope = self._choice(fields, "scope", _SCOPES)
        problem = subdomain_problem(group) if group else None
        if problem is not None:
            raise self._error(fields["group"], f"group {group[:64]!r}: {problem}")
        if not _KIND_NAME.fullmatch(kind):
            raise self._error(
                fields["kind"], f"{kind[:64]!r} is not a valid kind: use a name like `CronJob`"
            )
        problem = dns_1035_label_problem(plural)
        if problem is not None:
            raise self._error(fields["plural"], f"plural {plural[:64]!r}: {problem}")
        builtin = find_kind(group, kind)
        if builtin is None and schema == "builtin":
            raise self._error(
                fields["kind"],
                f"unknown kind {kind} in group {group!r}; a kind without a built-in type needs "
                "`schema: open`",
            )
        if builtin is None:
            return _open_kind(group, kind, plural, is_namespaced=scope == "Namespaced")
        if plural != builtin.plural:
            raise self._error(fields["plural"], f"the plural of {kind} is {builtin.plural}")
        if (scope == "Namespaced") != builtin.namespaced:
            wanted = "Namespaced" if builtin.namespaced else "Cluster"
            raise self._error(fields["scope"], f"the scope of {kind} is {wanted}")
        if schema == "open" and (builtin.pinned or _shares_store(builtin)):
            why = "another group shares its store"
            if builtin.pinned:
                why = "the servers agree on versions through it"
            raise self._error(fields["schema"], f"{kind} cannot be open: {why}")
        return builtin

    def _versions(self, fields: dict[str, Node], node: Node) -> tuple[ReleaseVersion, ...]:
        items = self._items(self._needed(fields, "versions", node), "versions", VERSIONS_MAX)
        if not items:
            raise self._error(fields["versions"], "a kind has at least one version")
        versions: list[ReleaseVersion] = []
        for item in items:
            members = self._fields(item, "a version", _VERSION_KEYS)
            name = self._text(self._needed(members, "name", item), "name")
            problem = dns_1035_label_problem(name)
            if problem is not None:
                raise self._error(members["name"], f"version {name[:64]!r}: {problem}")
            if any(version.name == name for version in versions):
                raise self._error(members["name"], f"duplicate version {name}")
            served = self._truth(members, "served")
            decodable = self._truth(members, "decodable")
            if served and not decodable:
                why = f"version {name} is served but not decodable; that is impossible"
                raise self._error(members["name"], why)
            versions.append(ReleaseVersion(name, served, decodable))
        if not any(version.served for version in versions):
            raise self._error(fields["versions"], "no version is served; remove the kind")
        return tuple(versions)

    def _storage(
        self,
        fields: dict[str, Node],
        node: Node,
        definition: Kind,
        versions: tuple[ReleaseVersion, ...],
    ) -> str:
        storage = self._text(self._needed(fields, "storage", node), "storage")
        where = fields["storage"]
        if definition.cohabits_with is not None:
            # Its objects are stored in the versions of another kind.
            store = find_kind(*definition.cohabits_with)
            if store is None or storage != store.storage_version:
                wanted = store.storage_version if store is not None else ""
                raise self._error(
                    where, f"{definition.kind} is stored as {wanted} of another group"
                )
            return storage
        found = next((version for version in versions if version.name == storage), None)
        if found is None:
            raise self._error(
                where, f"the storage version {storage[:64]} is not among the versions"
            )
        if not found.decodable:
            raise self._error(where, f"the storage version {storage} is not decodable")
        if definition.pinned and storage != definition.storage_version:
            why = f"{definition.kind} is stored as {definition.storage_version} in every release"
            raise self._error(where, why)
        return storage

    def _check_conversion(
        self,
        node: Node,
        conversion: ConversionName,
        schema: SchemaName,
        versions: tuple[ReleaseVersion, ...],
    ) -> None:
        if schema == "open" and conversion == "builtin":
            raise self._error(node, "an open kind has no built-in conversion; use `rename`")
        if schema == "builtin" and conversion == "rename":
            raise self._error(node, "a built-in kind has its own conversion; use `builtin`")
        if conversion == "none" and len(versions) > 1:
            raise self._error(node, "without a conversion only one version is allowed")

    def _check_builtin_versions(
        self, node: Node, definition: Kind, versions: tuple[ReleaseVersion, ...]
    ) -> None:
        items = self._items(node, "versions", VERSIONS_MAX)
        for item, version in zip(items, versions, strict=True):
            if version.name not in definition.versions:
                raise self._error(
                    item,
                    f"{definition.kind} has no version {version.name}; "
                    f"it has {', '.join(definition.versions)}",
                )

    def _fields(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        if not isinstance(node, Pairs):
            raise self._error(node, f"{what} must be a mapping with the keys {', '.join(known)}")
        fields: dict[str, Node] = {}
        for key, value in zip(node.nodes[::2], node.nodes[1::2], strict=True):
            name = key.value if isinstance(key, Text) else ""
            if name not in known:
                why = f"unknown key `{name[:64]}`; {what} has {', '.join(known)}"
                raise self._error(key, why)
            if name in fields:
                raise self._error(key, f"duplicate key `{name}`")
            fields[name] = value
        return fields

    def _needed(self, fields: dict[str, Node], name: str, parent: Node) -> Node:
        found = fields.get(name)
        if found is None:
            raise self._error(parent, f"`{name}` is missing")
        return found

    def _items(self, node: Node, name: str, count_max: int) -> list[Node]:
        if not isinstance(node, Items):
            raise self._error(node, f"`{name}` must be a list")
        if len(node.nodes) > count_max:
            raise self._error(node, f"`{name}` has more than {count_max} items")
        return node.nodes

    def _text(self, node: Node, name: str) -> str:
        if not isinstance(node, Text):
            raise self._error(node, f"`{name}` must be a string")
        return node.value

    def _truth(self, fields: dict[str, Node], name: str) -> bool:
        node = fields.get(name)
        if node is None:
            return True
        found = _TRUTHS.get(self._text(node, name))
        if found is None:
            raise self._error(node, f"`{name}` must be true or false")
        return found

    def _choice(
        self, fields: dict[str, Node], name: str, values: tuple[str, ...], default: str = ""
    ) -> str:
        node = fields.get(name)
        if node is None and default:
            return default
        if node is None:
            raise self._missing(fields, name)
        text = self._text(node, name)
        if text not in values:
            wanted = ", ".join(values)
            raise self._error(node, f"`{name}` must be one of {wanted}, not {text[:64]!r}")
        return text

    def _missing(self, fields: dict[str, Node], name: str) -> ReleaseError:
        nearest = next(iter(fields.values()), None)
        return self._error(nearest, f"`{name}` is missing")

    def _error(self, node: Node | None, why: str) -> ReleaseError:
        line = f":{node.line}" if node is not None else ""
        return ReleaseError(f"{self._source}{line}: {why}")


class _Taken:
    """Names and key prefixes of the kinds of a release, to detect duplicates."""

    def __init__(self) -> None:
        self._kinds: set[tuple[str, str]] = set()
        self._plurals: set[tuple[str, str]] = set()
        self._prefixes: set[str] = set()
        self._parents: set[str] = set()

    def add(self, kind: Kind) -> str | None:
        """Add a kind; return why it cannot be added, or None."""
        if kind.group_kind in self._kinds:
            return f"duplicate kind {kind.group_kind}"
        if kind.group_resource in self._plurals:
            return f"two kinds have the plural {kind.group_resource}"
        if kind.persisted and kind.cohabits_with is None:
            parents = _parents(kind.key_prefix)
            shared = (
                kind.key_prefix in self._prefixes
                or kind.key_prefix in self._parents
                or not self._prefixes.isdisjoint(parents)
            )
            if shared:
                return f"the key prefix of {kind.group_kind} overlaps with that of another kind"
            self._prefixes.add(kind.key_prefix)
            self._parents.update(parents)
        self._kinds.add(kind.group_kind)
        self._plurals.add(kind.group_resource)
        return None


def _shares_store(kind: Kind) -> bool:
    return kind.cohabits_with is not None or any(
        other.cohabits_with == kind.group_kind for other in all_kinds()
    )


def _parents(prefix: str) -> list[str]:
    parts = prefix.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _open_kind(group: str, kind: str, plural: str, *, is_namespaced: bool) -> Kind:
    """A kind without a built-in type. It behaves like a custom resource."""
    return Kind(
        group=group,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=is_namespaced,
        versions=(),
        served_versions=(),
        storage_version="",
        key_prefix=f"{group}/{plural}" if group else plural,
        tracks_generation=True,
        unconditional_update=False,
    )
