"""Controller of local APIServices: one for each group version that the servers themselves serve.

Clients read there which group versions are served and available. Those of built-in kinds are
labelled `onstart`, those of custom resources `true`, as in kube-apiserver; an object without the
label is not managed. Changes of managed ones are reverted, missing ones are created, and ones that
are no longer served are deleted.

Custom resources are read from the stored CRDs, not from the catalog of this server, which may lag
behind. Not here: APIServices of aggregated servers (`restow.aggregator`), except that any
APIService without a service gets the condition `Available`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.api_service_objects import (
    GROUP,
    KIND,
    LOCAL,
    ApiService,
    read_api_service,
    write_finding,
)
from restow.controllers.object_keys import working_version
from restow.controllers.object_updates import update_if_present
from restow.controllers.objects_watch import Relisting
from restow.kinds.builtin import api_service_priorities
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import ROOT as DEFINITIONS
from restow.registry.resource import Object
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.stored_bytes import load
from restow.storage.interface import Batch, Item, Revision
from restow.storage.pages import items_below

LABEL: Final = "kube-aggregator.kubernetes.io/automanaged"
ON_START: Final = "onstart"
ALWAYS: Final = "true"
_EMPTY: Final = (None, False, "")


def hosts_api_services(catalog: Catalog) -> bool:
    """Whether the release hosts APIServices."""
    return catalog.of_kind(GROUP, KIND) is not None


class ApiServiceController(Relisting):
    """Keeps local APIServices in sync with the served group versions. An observer of all
    objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        self._resource = catalog.required(GROUP, KIND)
        self._store = store
        self._storage = store.storage
        self._clock = runtime.clock
        self._built_in = _built_in(catalog)
        self._defined: dict[str, frozenset[str]] = {}
        """By name of a CRD: the APIServices that it requires."""
        self._custom: Counter[str] = Counter()
        """By APIService: the number of CRDs that require it."""
        self.queue: WorkQueue[str] = runtime.work_queue("apiservices")

    # Events.

    async def list_objects(self, revision: Revision) -> None:
        """Read all CRDs, and queue all existing and required APIServices."""
        removed = set(self._defined)
        async for item in items_below(self._storage, DEFINITIONS):
            name = item.key.removeprefix(DEFINITIONS)
            removed.discard(name)
            self._define(name, _wanted_by(item.value))
        for name in removed:
            self._define(name, frozenset())
        root = self._resource.root
        async for item in items_below(self._storage, root):
            self.queue.add(item.key.removeprefix(root))
        for name in (*self._built_in, *self._custom):
            self.queue.add(name)

    def on_batch(self, batch: Batch) -> None:
        """Handle changes of APIServices and CRDs."""
        root = self._resource.root
        for event in batch.events:
            key = event.key
            if key.startswith(root):
                self.queue.add(key.removeprefix(root))
            elif key.startswith(DEFINITIONS):
                wanted = frozenset() if event.value is None else _wanted_by(event.value)
                self._define(key.removeprefix(DEFINITIONS), wanted)

    def _define(self, definition: str, wanted: frozenset[str]) -> None:
        before = self._defined.get(definition, frozenset())
        if wanted == before:
            return
        if wanted:
            self._defined[definition] = wanted
        else:
            del self._defined[definition]
        for name in wanted - before:
            self._custom[name] += 1
            self.queue.add(name)
        for name in before - wanted:
            self._custom[name] -= 1
            if not self._custom[name]:
                del self._custom[name]
            self.queue.add(name)

    # Reconciliation.

    async def reconcile(self, name: str) -> float | None:
        """Create, update or delete one APIService."""
        wanted = self._wanted(name)
        item = await self._storage.get(self._resource.key_of(name))
        found = None if item is None else read_api_service(item.value)
        if item is None:
            if wanted is not None:
                await self._create(wanted)
        elif found is None:
            return None  # unreadable; the watch cache reports it
        elif LABEL not in (found.metadata.labels or {}):
            await self._write_local_status(found)
        elif wanted is None:
            await self._delete(name, item, found)
        elif not _has_spec(item.value, wanted["spec"]):
            await self._set_spec(name, found, wanted["spec"])
        else:
            await self._write_local_status(found)
        return None

    def _wanted(self, name: str) -> Object | None:
        if name in self._built_in:
            label = ON_START
        elif name in self._custom:
            label = ALWAYS
        else:
            return None
        version, _, group = name.partition(".")
        group_priority, version_priority = api_service_priorities(group, version)
        return {
            "metadata": {"name": name, "labels": {LABEL: label}},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": group_priority,
                "versionPriority": version_priority,
            },
        }

    async def _create(self, wanted: Object) -> None:
        resource = self._resource
        try:
            await self._store.create(resource, working_version(resource), wanted, namespace="")
        except status.AlreadyExists:
            return  # the event of its creation queues it again

    async def _set_spec(self, name: str, found: ApiService, spec: Object) -> None:
        def change(obj: Object) -> Object:
            metadata = obj["metadata"]
            is_same = metadata.get("uid") == found.uid
            if is_same and LABEL in (metadata.get("labels") or {}):
                obj["spec"] = dict(spec)
            return obj

        await update_if_present(self._store, self._resource, name, change)

    async def _delete(self, name: str, item: Item, found: ApiService) -> None:
        options = DeleteOptions(uid=found.uid, resource_version=str(item.revision))
        resource = self._resource
        try:
            await self._store.delete(resource, working_version(resource), name, options)
        except (status.NotFound, status.Conflict):
            return  # the event of the change queues it again

    async def _write_local_status(self, found: ApiService) -> None:
        if found.is_local:
            await write_finding(self._store, self._resource, found, LOCAL, self._clock)


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool = False


class _DefinedSpec(msgspec.Struct, frozen=True):
    group: str
    versions: list[_Version]


class _Defined(msgspec.Struct, frozen=True):
    spec: _DefinedSpec


_decode_defined: Final = msgspec.json.Decoder(_Defined).decode


def _wanted_by(definition: bytes) -> frozenset[str]:
    """Return the names of the APIServices that a CRD requires."""
    try:
        spec = _decode_defined(definition).spec
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return frozenset()
    return frozenset(f"{each.name}.{spec.group}" for each in spec.versions if each.served)


def _built_in(catalog: Catalog) -> frozenset[str]:
    """Return the names of the APIServices of built-in kinds.

    The group of APIServices itself has none, as in kube-apiserver.
    """
    return frozenset(
        f"{version}.{resource.group}"
        for resource in catalog
        if resource.origin is None and resource.group != GROUP
        for version in resource.served
    )


def _has_spec(value: bytes, wanted: Object) -> bool:
    spec = load(value).get("spec") or {}
    return {name: found for name, found in spec.items() if found not in _EMPTY} == {
        name: found for name, found in wanted.items() if found not in _EMPTY
    }
