"""Controller of CRDs: accepts or rejects their names and sets the condition Established.

A CRD gets the names that no other CRD of its group has. It is established when all servers serve
its resource, or after some seconds if a server does not. A CRD that is being deleted is passed to
the finalizer controller (`crd_finalizer`).

Several CRDs are processed concurrently. A name is reserved in the same synchronous step in which it
is found free, before anything is written, so that no two CRDs get it. Not here: serving custom
resources, which every server does itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers import crd_conditions as conditions
from restow.controllers.crd_finalizer import CrdFinalizer
from restow.controllers.crd_names import (
    NameClaims,
    NameDecision,
    decide,
    from_wire,
    normalize,
    to_wire,
)
from restow.controllers.object_updates import update_if_present
from restow.kinds.defaults.crds import CLEANUP_FINALIZER
from restow.kinds.validation.webhook_clients import has_bad_bundle
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    ROOT,
    CrdUnreadable,
    CustomResourceDefinition,
    definition_key,
    read_definition,
)
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.strategy import timestamp, uid_conflict
from restow.storage.interface import Batch, Event, Item, Key, Revision, Span
from restow.storage.pages import pages

ESTABLISH_SECONDS_MAX: Final = 5.0
"""How long a CRD waits for servers that do not serve it yet."""
_PAGE: Final = 20
"""CRDs read at once: one of them may take a megabyte."""

logger = logging.getLogger(__name__)

ResourcePredicate = Callable[[str, str, str], bool]
"""Called with the group and plural of a resource, and the UID of its CRD."""
Wake = Callable[[str, str], None]
"""Called with the group and plural of a resource when the report of a server has changed."""


def _always(_group: str, _plural: str, _uid: str) -> bool:
    return True


def _never_woken(_wake: Wake | None) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdControllerOptions:
    """Information about the servers of a cluster. The defaults are those of a single server."""

    served_by_all: ResourcePredicate = _always
    """Whether every participating server serves a resource as this CRD defines it."""
    closed_by_all: ResourcePredicate = _always
    """Whether every participating server rejects creates of the resource, or does not serve it."""
    hosted_otherwise: Callable[[str, str], bool] = lambda _group, _plural: False
    """Whether aggregated servers host the resource without a CRD: its objects do not belong to the
    CRD then."""
    wake: Callable[[Wake | None], None] = _never_woken
    """Registers a callback for changed reports; None unregisters it."""


class CrdController:
    """Reconciles all CRDs. An observer of all objects; a new one is created for each leader
    term."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        options: CrdControllerOptions | None = None,
    ) -> None:
        self._store = store
        self._storage = store.storage
        self._clock = runtime.clock
        self._options = options or CrdControllerOptions()
        self._definitions = catalog.required("apiextensions.k8s.io", "CustomResourceDefinition")
        self._claims = NameClaims(catalog)
        self._hosted_otherwise: set[str] = set()
        """CRDs that wait until no aggregated server hosts their resource."""
        self._accepted_at: dict[str, tuple[str, float]] = {}  # name → UID, time
        self.queue: WorkQueue[str] = runtime.work_queue("definition")
        self.cleaner = CrdFinalizer(
            store,
            catalog,
            runtime,
            definitions=self._definitions,
            closed_by_all=self._options.closed_by_all,
            hosted_otherwise=self._options.hosted_otherwise,
        )

    # Events.

    async def list_objects(self, revision: Revision) -> None:
        """Record the names of all CRDs, then queue every CRD."""
        found = set[str]()
        async for page in pages(self._storage, Span.of_prefix(ROOT), limit=_PAGE):
            for item in page.items:
                found.add(item.key[len(ROOT) :])
                self._note(item.key, item.value, item.revision)
            await self._clock.sleep(0)
        self._claims.keep_only(found, revision)
        # Only now: names must not be assigned before all existing names are known.
        for name in found:
            self.queue.add(name)

    def on_batch(self, batch: Batch) -> None:
        """Handle changes of CRDs, and removals of instances that a CRD waits for."""
        for event in batch.events:
            if event.key.startswith(ROOT):
                self._on_event(event)
            elif event.value is None:
                self.cleaner.on_removal(event.key)

    def _on_event(self, event: Event) -> None:
        name = event.key[len(ROOT) :]
        if event.value is None:
            self._accepted_at.pop(name, None)
            self._queue_all(self._claims.remove(name, event.revision))
            return
        self._note(event.key, event.value, event.revision)
        self.queue.add(name)

    def _note(self, key: Key, value: bytes, revision: Revision) -> None:
        try:
            definition = CustomResourceDefinition(key, value, revision)
        except CrdUnreadable as error:
            logger.warning("%s", error)
            return
        name = key[len(ROOT) :]
        self._queue_all(self._claims.note(name, definition.accepted_names, revision))

    def _queue_all(self, names: set[str]) -> None:
        for name in sorted(names):
            self.queue.add(name)

    @contextmanager
    def woken(self) -> Iterator[None]:
        """Receive changed reports of the servers while the context is active."""
        self._options.wake(self._wake)
        try:
            yield
        finally:
            self._options.wake(None)

    def _wake(self, group: str, plural: str) -> None:
        name = f"{plural}.{group}"
        if name in self._accepted_at or name in self._hosted_otherwise:
            self.queue.add(name)
        self.cleaner.wake(name)

    def hosting_changed(self, group: str) -> None:
        """Handle a change of the resources that this server hosts."""
        self.cleaner.hosting_changed(group)

    # Reconciliation.

    async def reconcile(self, name: str) -> float | None:
        """Reconcile one CRD; return the seconds after which to check again."""
        item = await self._storage.get(definition_key(name))
        definition = None if item is None else _readable(item)
        if item is None or definition is None or definition.is_closing:
            self._accepted_at.pop(name, None)
            self._end_reservation(name)
            if definition is not None and CLEANUP_FINALIZER in definition.finalizers:
                self.cleaner.queue.add(name)
            return None
        if self._needs_names(definition) or _lacks_approval(definition, item):
            await self._write_conditions(definition)
            return None  # the event of this write queues the CRD again
        self._end_reservation(name)
        return await self._establish(definition)

    # Names.

    def _needs_names(self, definition: CustomResourceDefinition) -> bool:
        """Whether the names in the status must be updated."""
        names, accepted = normalize(definition.names), normalize(definition.accepted_names)
        if names == accepted and definition.names_accepted:
            return False
        decision = self._decide(definition.name, names, accepted)
        current = definition.condition(NAMES_ACCEPTED)
        return (
            decision.names != accepted
            or current is None
            or current.status != ("True" if decision.is_accepted else "False")
            or (current.reason, current.message) != (decision.reason, decision.message)
        )

    def _decide(self, name: str, requested: Any, accepted: Any) -> NameDecision:
        decision = decide(requested, accepted, lambda claim: self._claims.is_taken(claim, name))
        self._claims.wait(name, decision.refused)
        return decision

    async def _write_conditions(self, definition: CustomResourceDefinition) -> None:
        """Write the accepted names of a CRD, and the approval condition of a protected group."""
        name = definition.name

        def change(obj: Object) -> Object:
            _check_uid(self._definitions, obj, definition)
            spec, state = obj.get("spec") or {}, obj.get("status") or {}
            if obj["metadata"].get("deletionTimestamp"):
                return obj  # no new names while it is being deleted
            old = state.get("conditions") or []
            decision = self._decide(
                name, from_wire(spec.get("names")), from_wire(state.get("acceptedNames"))
            )
            # Reserve names in the same step in which they were found free.
            self._claims.reserve(name, decision.names)
            new = [*_naming(decision, old), *_approving(obj)]
            state["conditions"] = conditions.set_conditions(old, new, now=self._now)
            state["acceptedNames"] = to_wire(decision.names)
            obj["status"] = state
            return obj

        try:
            await self._write(name, change)
        except status.Conflict:
            self._end_reservation(name)
            raise
        # After any other error it may have been written: names stay reserved until that is known.
        self._end_reservation(name)

    def _end_reservation(self, name: str) -> None:
        self._queue_all(self._claims.end_reservation(name))

    # The condition Established.

    async def _establish(self, definition: CustomResourceDefinition) -> float | None:
        name, uid = definition.name, definition.uid
        if not definition.names_accepted or definition.established:
            self._accepted_at.pop(name, None)
            return None
        wanted = conditions.BAD_BUNDLE if _has_bad_bundle(definition) else conditions.IS_ESTABLISHED
        if wanted is conditions.BAD_BUNDLE and _has_condition(definition, wanted):
            return None
        plural = definition.accepted_names.plural
        self._hosted_otherwise.discard(name)
        if self._options.hosted_otherwise(definition.group, plural):
            self._hosted_otherwise.add(name)
            wanted = conditions.HOSTED_OTHERWISE
            if _has_condition(definition, wanted):
                return None
        seconds_left = self._seconds_left(definition)
        is_served = self._options.served_by_all(definition.group, plural, uid)
        is_refused = wanted is conditions.HOSTED_OTHERWISE
        if not is_served and not is_refused and seconds_left > 0:
            return seconds_left
        if not is_served and not is_refused:
            logger.warning("%s is established although not every server serves it yet", name)

        def change(obj: Object) -> Object:
            _check_uid(self._definitions, obj, definition)
            state = obj.get("status") or {}
            old = state.get("conditions") or []
            if _is_true(old, NAMES_ACCEPTED) and not _is_true(old, ESTABLISHED):
                state["conditions"] = conditions.set_conditions(old, [wanted], now=self._now)
                obj["status"] = state
            return obj

        await self._write(name, change)
        self._accepted_at.pop(name, None)
        return None

    def _seconds_left(self, definition: CustomResourceDefinition) -> float:
        """Return the remaining wait of a CRD for servers, since this process first processed it."""
        now = self._clock.monotonic()
        since = self._accepted_at.get(definition.name)
        if since is None or since[0] != definition.uid:
            since = self._accepted_at[definition.name] = (definition.uid, now)
        return since[1] + ESTABLISH_SECONDS_MAX - now

    # Writing.

    @property
    def _now(self) -> str:
        return timestamp(self._clock.wall())

    async def _write(self, name: str, change: Callable[[Object], Object]) -> None:
        """Update the status of a CRD; does nothing if it was deleted."""
        written = await update_if_present(
            self._store, self._definitions, name, change, subresource="status"
        )
        if written is None:
            return
        stored = _decode_written(written.body)
        names = from_wire(stored.status.get("acceptedNames"))
        revision = int(stored.metadata.resource_version)
        self._queue_all(self._claims.note(name, names, revision))


class _WrittenMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Written(msgspec.Struct, frozen=True):
    metadata: _WrittenMetadata
    status: dict[str, Any]


class _Annotations(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Annotations


_decode_written: Final = msgspec.json.Decoder(_Written).decode
_decode_annotated: Final = msgspec.json.Decoder(_Annotated).decode


def _readable(item: Item) -> CustomResourceDefinition | None:
    try:
        return read_definition(item)
    except CrdUnreadable:
        return None  # logged when its event was handled


def _naming(decision: NameDecision, old: list[conditions.Condition]) -> list[conditions.Condition]:
    """Return the conditions that result from a decision about names."""
    accepted = conditions.names_accepted(
        decision.reason, decision.message, holds=decision.is_accepted
    )
    if _is_true(old, ESTABLISHED):
        return [accepted]
    if decision.is_accepted:
        return [accepted, conditions.INSTALLING]
    is_present = any(each.get("type") == ESTABLISHED for each in old)
    return [accepted] if is_present else [accepted, conditions.NOT_ACCEPTED]


def _approving(obj: Object) -> list[conditions.Condition]:
    if not conditions.is_protected((obj.get("spec") or {}).get("group") or ""):
        return []
    return [conditions.approval(obj["metadata"].get("annotations") or {})]


def _lacks_approval(definition: CustomResourceDefinition, item: Item) -> bool:
    if not conditions.is_protected(definition.group):
        return False
    try:
        annotations = _decode_annotated(item.value).metadata.annotations or {}
    except msgspec.ValidationError:
        annotations = {}
    return not _has_condition(definition, conditions.approval(annotations))


def _has_condition(definition: CustomResourceDefinition, wanted: conditions.Condition) -> bool:
    current = definition.condition(wanted["type"])
    return current is not None and (current.status, current.reason, current.message) == (
        wanted["status"],
        wanted["reason"],
        wanted["message"],
    )


def _is_true(old: list[conditions.Condition], kind: str) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in old)


def _has_bad_bundle(definition: CustomResourceDefinition) -> bool:
    webhook = definition.conversion.webhook
    config = None if webhook is None else webhook.client_config
    return config is not None and has_bad_bundle({"caBundle": config.ca_bundle})


def _check_uid(resource: Resource, obj: Object, definition: CustomResourceDefinition) -> None:
    found = obj["metadata"].get("uid") or ""
    if found != definition.uid:
        raise uid_conflict(resource, definition.name, asked=definition.uid, found=found)
