"""LimitRanger: applies the LimitRanges of a namespace to new pods, resized pods and claims.

Missing requests and limits of containers are defaulted; objects outside a limit are refused. While
no LimitRange exists, the plug-in handles no writes; in a namespace without one it costs one lookup.

Not here: how a LimitRange applies to an object (`restow.apimachinery.limit_ranges`).
"""

from __future__ import annotations

from collections.abc import Callable

from restow.admission.review import Attributes, WriteOf, forbidden
from restow.aio import Runtime
from restow.apimachinery import limit_ranges
from restow.apimachinery.limit_ranges import LimitRange
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import ResourceStore
from restow.registry.store_informer import InformedCache, StoreInformer


class LimitRanges(InformedCache):
    """All LimitRanges of the server. Call `start` before use and `close` at the end."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is called when the first LimitRange is created or the last one is
        deleted."""
        self._on_changed = on_changed
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        """By namespace and path."""
        resource = catalog.named("", "limitranges")
        self._informers = (
            [StoreInformer(store, resource, runtime, on_object=self._on_range)] if resource else []
        )

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def of(self, attributes: Attributes) -> list[LimitRange]:
        """Return the LimitRanges that apply to a write, ordered by name."""
        here = self._ranges.get(attributes.namespace)
        old = attributes.old
        # An object that is being deleted may still be updated, for example to remove finalizers.
        if not here or (old is not None and old["metadata"].get("deletionTimestamp")):
            return []
        return [here[path] for path in sorted(here)]

    def _on_range(self, path: str, obj: Object | None) -> None:
        namespace, had_some = path.partition("/")[0], bool(self._ranges)
        here = self._ranges.setdefault(namespace, {})
        if obj is not None:
            here[path] = limit_ranges.read_limit_range(obj)
        else:
            here.pop(path, None)
        if not here:
            del self._ranges[namespace]
        if bool(self._ranges) is not had_some:
            self._on_changed()


class LimitDefaults:
    """Set default requests and limits of containers. Satisfies `Mutation`."""

    def __init__(self, limit_ranges_here: LimitRanges) -> None:
        self._known = limit_ranges_here

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._known) and _is_of_pods(write)

    async def mutate(self, attributes: Attributes) -> Object | None:
        ranges = self._known.of(attributes)
        if not ranges or attributes.obj is None:
            return None
        return limit_ranges.with_defaults(attributes.obj, ranges)


class LimitChecks:
    """Refuse objects outside the limits. Satisfies `Admission`."""

    def __init__(self, limit_ranges_here: LimitRanges) -> None:
        self._known = limit_ranges_here

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._known) and (_is_of_pods(write) or _is_of_claims(write))

    def review(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None:
            return
        is_claim = attributes.resource.plural == "persistentvolumeclaims"
        problem_of = limit_ranges.claim_problem if is_claim else limit_ranges.pod_problem
        for each in self._known.of(attributes):
            if why := problem_of(obj, each):
                raise forbidden(attributes, why)


def _is_of_pods(write: WriteOf) -> bool:
    if write.resource.group or write.resource.plural != "pods":
        return False
    return (write.operation, write.subresource) in {("CREATE", ""), ("UPDATE", "resize")}


def _is_of_claims(write: WriteOf) -> bool:
    is_claim = not write.resource.group and write.resource.plural == "persistentvolumeclaims"
    return is_claim and write.operation != "DELETE" and not write.subresource
