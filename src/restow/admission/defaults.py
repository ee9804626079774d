"""Defaults of new pods and persistent volume claims that depend on other objects.

    pods     priority and preemption policy of their PriorityClass, and tolerations for nodes
             that are not ready or unreachable
    claims   the default StorageClass

Only missing fields are set. A PriorityClass that a pod names must exist. restow runs no pods, but
clients that read a pod rely on these fields.

Not here: defaults that depend on the object alone (`restow.kinds.defaults`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from restow.admission.review import Attributes, WriteOf, forbidden
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore

TOLERATED_SECONDS: Final = 300
_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTING: Final = ("NoExecute", "", None)
_PREEMPTS: Final = "PreemptLowerPriority"
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class _Priority(NamedTuple):
    name: str
    value: int
    policy: str


_NO_CLASS: Final = _Priority("", 0, _PREEMPTS)
# Built-in classes: they exist in every cluster, even if no object is stored for them.
_BUILT_IN: Final = {
    "system-cluster-critical": _Priority("system-cluster-critical", 2_000_000_000, _PREEMPTS),
    "system-node-critical": _Priority("system-node-critical", 2_000_001_000, _PREEMPTS),
}


class PodDefaults:
    """Set defaults of new pods. Satisfies `Mutation`."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def concerns(self, write: WriteOf) -> bool:
        return _is_create_of(write, "pods")

    async def mutate(self, attributes: Attributes) -> Object | None:
        obj = attributes.obj
        assert obj is not None
        spec: dict[str, Any] = dict(obj.get("spec") or {})
        found = await self._priority(attributes, spec.get("priorityClassName") or "")
        _check_priority(attributes, spec, found)
        spec |= {"priority": found.value, "preemptionPolicy": found.policy}
        if found.name:
            spec["priorityClassName"] = found.name
        missing = _missing_tolerations(spec.get("tolerations") or [])
        if missing:
            spec["tolerations"] = [*(spec.get("tolerations") or []), *missing]
        return {**obj, "spec": spec}

    async def _priority(self, attributes: Attributes, name: str) -> _Priority:
        classes = await _objects(self._store, self._catalog.of_kind(_SCHEDULING, "PriorityClass"))
        if name:
            for each in classes:
                if each["metadata"]["name"] == name:
                    return _priority_of(each)
            if name in _BUILT_IN:
                return _BUILT_IN[name]
            raise forbidden(attributes, f"no PriorityClass with name {name} was found")
        marked = [_priority_of(each) for each in classes if each.get("globalDefault") is True]
        return min(marked, key=lambda each: each.value, default=_NO_CLASS)


class ClaimDefaults:
    """Set the default StorageClass of new persistent volume claims. Satisfies `Mutation`."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def concerns(self, write: WriteOf) -> bool:
        return _is_create_of(write, "persistentvolumeclaims")

    async def mutate(self, attributes: Attributes) -> Object | None:
        obj = attributes.obj
        assert obj is not None
        spec: dict[str, Any] = obj.get("spec") or {}
        annotations = obj["metadata"].get("annotations") or {}
        # The empty name is a choice too: no StorageClass.
        if spec.get("storageClassName") is not None or _OLD_CLASS in annotations:
            return None
        classes = await _objects(self._store, self._catalog.of_kind(_STORAGE, "StorageClass"))
        marked = [each["metadata"] for each in classes if _is_default(each)]
        if not marked:
            return None
        # Choose the newest class; classes of the same age are ordered by name.
        marked.sort(key=lambda each: each["name"])
        newest = max(marked, key=lambda each: each.get("creationTimestamp") or "")
        return {**obj, "spec": {**spec, "storageClassName": newest["name"]}}


_SCHEDULING: Final = "scheduling.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def _is_create_of(write: WriteOf, plural: str) -> bool:
    resource = write.resource
    is_new = write.operation == "CREATE" and not write.subresource
    return is_new and resource.plural == plural and not resource.group


async def _objects(store: ResourceStore, resource: Resource | None) -> list[Object]:
    """Return all objects of a resource; only for kinds with few objects."""
    if resource is None:
        return []
    cache = await store.read(resource)
    version = resource.api_version(resource.own_version)
    return [store.object_of(resource, entry, version) for entry in cache.select().entries]


def _priority_of(obj: Object) -> _Priority:
    return _Priority(
        obj["metadata"]["name"], obj.get("value") or 0, obj.get("preemptionPolicy") or _PREEMPTS
    )


def _check_priority(attributes: Attributes, spec: dict[str, Any], found: _Priority) -> None:
    """Check that a pod's own priority and preemption policy match its class. Raises 403."""
    said, policy = spec.get("priority"), spec.get("preemptionPolicy")
    text = "must not be provided in pod spec; priority admission controller computed"
    if said is not None and said != found.value:
        raise forbidden(
            attributes,
            f"the integer value of priority ({said}) {text} {found.value} from the given"
            " PriorityClass name",
        )
    if policy is not None and policy != found.policy:
        raise forbidden(
            attributes,
            f"the string value of PreemptionPolicy ({policy}) {text} {found.policy} from the given"
            " PriorityClass name",
        )


def _missing_tolerations(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    missing = []
    for taint in _NODE_TAINTS:
        is_tolerated = any(
            each.get("key") in (taint, "", None) and each.get("effect") in _EVICTING
            for each in given
        )
        if not is_tolerated:
            missing.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATED_SECONDS,
                }
            )
    return missing


def _is_default(obj: Object) -> bool:
    annotations = obj["metadata"].get("annotations") or {}
    return any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)
