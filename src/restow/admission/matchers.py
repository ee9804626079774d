"""Matching of writes by webhooks and policies: resource rules, namespace and object selectors.

A rule names groups, versions, resources and operations. With the match policy `Equivalent` it also
matches the same objects in other versions, and in other groups that share their storage; a match
returns the version in which the objects are to be sent.

Not here: the actions after a match, and CEL expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from restow.admission.review import Attributes, WriteOf
from restow.apimachinery import status
from restow.apimachinery.selectors import LabelSelector, label_selector_of
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry, WatchCache

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
# Exempt, so that a configuration which refuses all writes can still be deleted.
_EXEMPT: Final = frozenset(
    {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)
_ANY: Final = "*"


class Hosted(NamedTuple):
    """A resource in one of its served versions."""

    resource: Resource
    version: str


def is_exempt(resource: Resource) -> bool:
    """Return whether webhooks and policies do not apply: their own configuration objects."""
    return resource.group == ADMISSION_GROUP and resource.plural in _EXEMPT


def is_namespace(resource: Resource) -> bool:
    """Return whether this is the Namespace resource."""
    return resource.plural == "namespaces" and not resource.group


def equivalents(catalog: Catalog, write: WriteOf) -> tuple[Hosted, ...]:
    """Return the equivalent resources and versions of a write, the requested one first."""
    resource = write.resource
    others = [each for each in catalog if each.root == resource.root and each.kind != resource.kind]
    return (
        Hosted(resource, write.version),
        *(
            Hosted(each, version)
            for each in (resource, *others)
            for version in each.served
            if (each is not resource or version != write.version)
            and _has(Hosted(each, version), write.subresource)
        ),
    )


def _has(hosted: Hosted, subresource: str) -> bool:
    if not subresource:
        return True
    return hosted.resource.subresource(hosted.version, subresource) is not None


class CompiledMatchRule:
    """One compiled rule."""

    __slots__ = ("_groups", "_names", "_operations", "_resources", "_scope", "_versions")

    def __init__(self, rule: Object) -> None:
        self._operations = _set_of(rule, "operations")
        self._groups = _set_of(rule, "apiGroups")
        self._versions = _set_of(rule, "apiVersions")
        self._resources = frozenset(
            (name, sub)
            for name, _, sub in (text.partition("/") for text in _set_of(rule, "resources"))
        )
        self._names = _set_of(rule, "resourceNames")
        self._scope = rule.get("scope") or _ANY

    def covers(self, write: WriteOf, hosted: Hosted) -> bool:
        """Return whether the rule matches a kind of write, regardless of name and namespace."""
        if not _is_in(write.operation, self._operations):
            return False
        resource, version = hosted
        if not _is_in(resource.group, self._groups) or not _is_in(version, self._versions):
            return False
        if self._scope != _ANY and (self._scope == "Namespaced") is not resource.kind.namespaced:
            return False
        plural, sub = resource.plural, write.subresource
        return not self._resources.isdisjoint(
            ((plural, sub), (_ANY, sub), (plural, _ANY), (_ANY, _ANY))
        )

    def has_name(self, name: str) -> bool:
        """Return whether the rule matches an object name."""
        return not self._names or name in self._names


class Matcher:
    """The rules and selectors of a webhook, a policy or a binding."""

    __slots__ = ("_excluded", "_is_exact", "_namespaces", "_objects", "_rules")

    def __init__(
        self,
        rules: Sequence[Object] | None,
        *,
        excluded: Sequence[Object] = (),
        match_policy: str = "Equivalent",
        namespace_selector: Object | None = None,
        object_selector: Object | None = None,
    ) -> None:
        """`rules=None` matches everything. Raises a 400 for an invalid selector."""
        self._rules = None if rules is None else [CompiledMatchRule(each) for each in rules]
        self._excluded = [CompiledMatchRule(each) for each in excluded]
        self._is_exact = match_policy == "Exact"
        self._namespaces: LabelSelector = label_selector_of(namespace_selector or {})
        self._objects: LabelSelector = label_selector_of(object_selector or {})

    @property
    def has_namespace_selector(self) -> bool:
        """Return whether `matches` needs the namespace object."""
        return bool(self._namespaces)

    def may_concern(self, write: WriteOf, targets: Sequence[Hosted]) -> bool:
        """Return whether it may match a kind of write; `targets` are its equivalents."""
        if self._rules is None:
            return True
        return any(
            rule.covers(write, hosted) for hosted in self._targets(targets) for rule in self._rules
        )

    def matches(
        self, attributes: Attributes, targets: Sequence[Hosted], namespace: Object | None
    ) -> Hosted | None:
        """Return the resource and version in which a write matches, or None.

        `namespace` is the stored namespace of the object.
        """
        if self._namespaces and not self._selects_namespace(attributes, namespace):
            return None
        if self._objects and not self._selects_object(attributes):
            return None
        if self._excluded and self._found(self._excluded, attributes, targets) is not None:
            return None
        return targets[0] if self._rules is None else self._found(self._rules, attributes, targets)

    def _targets(self, targets: Sequence[Hosted]) -> Sequence[Hosted]:
        return targets[:1] if self._is_exact else targets

    def _found(
        self, rules: list[CompiledMatchRule], attributes: Attributes, targets: Sequence[Hosted]
    ) -> Hosted | None:
        write = attributes.write
        for rule in rules:
            if rule.covers(write, targets[0]) and rule.has_name(attributes.name):
                return targets[0]
        for rule in rules:
            for hosted in self._targets(targets)[1:]:
                if rule.covers(write, hosted) and rule.has_name(attributes.name):
                    return hosted
        return None

    def _selects_namespace(self, attributes: Attributes, namespace: Object | None) -> bool:
        if is_namespace(attributes.resource):
            # For a create or update of a namespace, use the labels that it will have.
            if attributes.obj is not None and not attributes.subresource:
                namespace = attributes.obj
            else:
                namespace = attributes.old
        elif not attributes.namespace:
            return True  # a cluster-scoped object matches every namespace selector
        return self._namespaces.matches(labels_of(namespace))

    def _selects_object(self, attributes: Attributes) -> bool:
        return any(
            obj is not None and self._objects.matches(labels_of(obj))
            for obj in (attributes.obj, attributes.old)
        )


class Namespaces:
    """Looks up namespaces for webhooks and policies."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def cached(self, name: str) -> Object | None:
        """Return a namespace from the cache, read-only, or None if it is not in the cache."""
        resource = self._catalog.of_kind("", "Namespace")
        cache = None if resource is None else self._store.ready(resource)
        entry = None if cache is None else cache.get(name)
        return None if cache is None or entry is None else _parsed(cache, name, entry)

    async def get(self, name: str) -> Object:
        """Return a namespace after a consistent read. Raises 404."""
        resource = self._catalog.of_kind("", "Namespace")
        if resource is None:
            raise status.resource_not_found()
        cache = await self._store.read(resource)
        entry = cache.get(name)
        if entry is None:
            raise status.not_found(resource.kind.group_resource, name)
        return _parsed(cache, name, entry)


def _parsed(cache: WatchCache, name: str, entry: Entry) -> Object:
    key = ("admission", name)
    found: Object | None = cache.memo.get(key)
    if found is None:
        found = cache.memo[key] = orjson.loads(entry[2])
    return found


def labels_of(obj: Object | None) -> Mapping[str, str]:
    """Return the labels of an object."""
    metadata: Any = (obj or {}).get("metadata") or {}
    labels = metadata.get("labels")
    return labels if isinstance(labels, dict) else {}


def _set_of(rule: Object, name: str) -> frozenset[str]:
    return frozenset(each for each in rule.get(name) or () if isinstance(each, str))


def _is_in(value: str, allowed: frozenset[str]) -> bool:
    return value in allowed or _ANY in allowed
