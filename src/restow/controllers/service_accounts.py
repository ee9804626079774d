"""Controller of the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` in each
namespace.

Both are created again when they are deleted, unless the namespace is being deleted. Not here:
tokens of service accounts.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.corrections import Corrections
from restow.controllers.object_keys import DELETING, read_metadata, working_version
from restow.controllers.objects_watch import Relisting
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import check_opened, load
from restow.storage.interface import Batch, Revision, RevisionIs
from restow.storage.pages import items_below

ACCOUNT_NAME: Final = "default"
CERTIFICATES_NAME: Final = "kube-root-ca.crt"
CERTIFICATES_FIELD: Final = "ca.crt"
DESCRIPTION_NAME: Final = "kubernetes.io/description"
DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal"
    " endpoints such as the internal service IP or kubernetes.default.svc. No other usage is"
    " guaranteed across distributions of Kubernetes clusters."
)
CHANGED_SECONDS: Final = 0.1
"""When to retry a namespace that was changed concurrently."""


class _NamespaceChanged(Exception):
    """The namespace has changed since it was read."""


class ServiceAccountController(Relisting):
    """Creates the default objects of namespaces. An observer of all objects."""

    def __init__(
        self, store: ResourceStore, catalog: Catalog, runtime: Runtime, *, certificates: str
    ) -> None:
        self._store = store
        self._storage = store.storage
        self._namespaces = catalog.required("", "Namespace")
        self._accounts = catalog.required("", "ServiceAccount")
        self._config_maps = catalog.required("", "ConfigMap")
        self._certificates = certificates
        """May be replaced; published at the next resync."""
        self._corrections = Corrections("the certificates of the namespace", runtime.clock)
        self._ends = (
            (self._accounts.root, f"/{ACCOUNT_NAME}"),
            (self._config_maps.root, f"/{CERTIFICATES_NAME}"),
        )
        self.queue: WorkQueue[str] = runtime.work_queue("accounts")

    async def list_objects(self, revision: Revision) -> None:
        """Queue every namespace."""
        root = self._namespaces.root
        async for item in items_below(self._storage, root):
            self.queue.add(item.key[len(root) :])

    def take_certificates(self, certificates: str) -> None:
        """Publish these CA certificates from the next resync on."""
        self._certificates = certificates

    def on_batch(self, batch: Batch) -> None:
        """Handle new namespaces, and changes of their default objects."""
        namespaces = self._namespaces.root
        for event in batch.events:
            key = event.key
            if key.startswith(namespaces):
                if event.previous is None:
                    self.queue.add(key[len(namespaces) :])
                continue
            for root, end in self._ends:
                if key.endswith(end) and key.startswith(root):
                    self.queue.add(key[len(root) : -len(end)])

    async def reconcile(self, name: str) -> float | None:
        """Create the missing objects of one namespace."""
        item = await self._storage.get(self._namespaces.key_of(name))
        if item is None:
            return None
        if DELETING in item.value:
            metadata = read_metadata(item.value)
            if metadata is None or metadata.deletion_timestamp:
                return None
        # Guard against a concurrent deletion: create nothing if the namespace has changed.
        guard = RevisionIs(item.key, item.revision)
        try:
            await self._ensure_account(name, guard)
            if self._certificates:
                return await self._ensure_certificates(name, guard)
        except _NamespaceChanged:
            return CHANGED_SECONDS
        return None

    async def _ensure_account(self, namespace: str, guard: RevisionIs) -> None:
        path = self._accounts.path_of(namespace, ACCOUNT_NAME)
        if await self._storage.get(self._accounts.key_of(path)) is None:
            obj = {"metadata": {"name": ACCOUNT_NAME}}
            await self._create(self._accounts, namespace, obj, guard)

    async def _ensure_certificates(self, namespace: str, guard: RevisionIs) -> float | None:
        """Publish the CA certificates; return the seconds to wait if another program changes
        them."""
        resource, data = self._config_maps, {CERTIFICATES_FIELD: self._certificates}
        path = resource.path_of(namespace, CERTIFICATES_NAME)
        item = await self._storage.get(resource.key_of(path))
        if item is None:
            metadata = {"name": CERTIFICATES_NAME, "annotations": {DESCRIPTION_NAME: DESCRIPTION}}
            obj = {"metadata": metadata, "data": data}
            await self._create(resource, namespace, obj, guard)
            return None
        check_opened(item.value)
        stored: Object = load(item.value)
        annotations = stored["metadata"].get("annotations") or {}
        if stored.get("data") == data and annotations.get(DESCRIPTION_NAME):
            return None
        if wait := self._corrections.seconds_to_wait(namespace):
            return wait
        try:
            await self._store.update(
                resource,
                working_version(resource),
                path,
                lambda current: _described({**current, "data": data}),
                is_patch=True,
            )
        except status.NotFound:
            return None  # the event of its deletion queues the namespace again
        self._corrections.note(namespace)
        return None

    async def _create(
        self, resource: Resource, namespace: str, obj: Object, guard: RevisionIs
    ) -> None:
        version = working_version(resource)

        async def place(*, must_be_fresh: bool) -> RevisionIs:
            if must_be_fresh:
                raise _NamespaceChanged
            return guard

        try:
            await self._store.create(resource, version, obj, namespace=namespace, place=place)
        except status.AlreadyExists:
            return


def _described(obj: Object) -> Object:
    """Return the object with the annotation that describes it."""
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DESCRIPTION_NAME: DESCRIPTION}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
