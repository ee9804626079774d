"""Controller of Secrets of type `kubernetes.io/service-account-token`: writes tokens into them.

Such a token does not expire: it is valid while its Secret contains it. A client creates the Secret;
when the service account is deleted, or replaced by another one of that name, the Secret is deleted.

Not here: tokens with an expiry, from TokenRequests, and the signing of tokens.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.corrections import Corrections
from restow.controllers.object_keys import working_version
from restow.controllers.objects_watch import Relisting
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.stored_bytes import check_opened, load
from restow.storage.interface import Batch, Revision
from restow.storage.pages import items_below

TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
_Wanted = tuple[dict[str, str], str]
"""Data, and the UID of the service account."""
_TYPE_BYTES: Final = TYPE.encode()

SignAccountToken = Callable[[str, tuple[str, str], str], str]
"""Signs a token for the namespace, name and UID of a service account, and the Secret's name."""


class ServiceAccountSecretController(Relisting):
    """Fills and removes token Secrets of service accounts. An observer of all objects."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        certificates: str,
        sign: SignAccountToken,
    ) -> None:
        self._store = store
        self._storage = store.storage
        self._secrets = catalog.required("", "Secret")
        self._accounts = catalog.required("", "ServiceAccount")
        self._certificates = certificates
        self._sign = sign
        self._corrections = Corrections("the certificates in the Secret", runtime.clock)
        self._of_accounts: dict[str, set[str]] = {}
        """By path of a service account: its Secrets."""
        self.queue: WorkQueue[str] = runtime.work_queue("account-secrets")

    async def list_objects(self, revision: Revision) -> None:
        """Queue every token Secret."""
        root = self._secrets.root
        async for item in items_below(self._storage, root):
            if _TYPE_BYTES in item.value:
                self.queue.add(item.key[len(root) :])

    def take_certificates(self, certificates: str) -> None:
        """Publish these CA certificates from the next resync on."""
        self._certificates = certificates

    def on_batch(self, batch: Batch) -> None:
        """Handle changes of token Secrets, and creates and deletes of service accounts."""
        secrets, accounts = self._secrets.root, self._accounts.root
        for event in batch.events:
            key = event.key
            if key.startswith(secrets):
                if event.value is not None and _TYPE_BYTES in event.value:
                    self.queue.add(key[len(secrets) :])
            elif key.startswith(accounts) and (event.value is None or event.previous is None):
                for path in self._of_accounts.get(key[len(accounts) :], ()):
                    self.queue.add(path)

    async def reconcile(self, path: str) -> float | None:
        """Reconcile one Secret; return the seconds to wait if another program changes it back."""
        item = await self._storage.get(self._secrets.key_of(path))
        if item is None:
            self._forget(path)
            return None
        check_opened(item.value)
        secret: dict[str, Any] = load(item.value)
        if secret.get("type") != TYPE or secret["metadata"].get("deletionTimestamp"):
            return None
        namespace, _, name = path.partition("/")
        annotations = secret["metadata"].get("annotations") or {}
        account_path = f"{namespace}/{annotations.get(ACCOUNT_NAME) or ''}"
        self._of_accounts.setdefault(account_path, set()).add(path)
        uid = await self._account_uid(account_path)
        try:
            if uid is None or (annotations.get(ACCOUNT_UID) or uid) != uid:
                await self._remove(path, secret)
            elif _lacks(secret, self._wanted(namespace, uid)):
                has_token = bool((secret.get("data") or {}).get("token"))
                if has_token and (wait := self._corrections.seconds_to_wait(path)):
                    return wait
                account = (account_path.partition("/")[2], uid)
                token = self._sign(namespace, account, name)
                await self._fill(path, token, self._wanted(namespace, uid))
                if has_token:
                    self._corrections.note(path)
        except (status.NotFound, status.Conflict):
            return None  # the event of the change queues it again
        return None

    def _forget(self, path: str) -> None:
        for account, paths in list(self._of_accounts.items()):
            paths.discard(path)
            if not paths:
                del self._of_accounts[account]

    async def _account_uid(self, path: str) -> str | None:
        item = await self._storage.get(self._accounts.key_of(path))
        if item is None:
            return None
        check_opened(item.value)
        return str(load(item.value)["metadata"]["uid"])

    def _wanted(self, namespace: str, uid: str) -> _Wanted:
        data = {"namespace": _encoded(namespace)}
        if self._certificates:
            data["ca.crt"] = _encoded(self._certificates)
        return data, uid

    async def _remove(self, path: str, secret: Object) -> None:
        options = DeleteOptions(uid=secret["metadata"]["uid"])
        await self._store.delete(self._secrets, working_version(self._secrets), path, options)

    async def _fill(self, path: str, token: str, wanted: _Wanted) -> None:
        data, uid = wanted

        def change(current: Object) -> Object:
            current_data = current.get("data") or {}
            # An existing token stays, as clients may use it.
            kept = {**current_data, **data, "token": current_data.get("token") or _encoded(token)}
            metadata = current["metadata"]
            annotations = {**(metadata.get("annotations") or {}), ACCOUNT_UID: uid}
            return {**current, "metadata": {**metadata, "annotations": annotations}, "data": kept}

        version = working_version(self._secrets)
        await self._store.update(self._secrets, version, path, change, is_patch=True)


def _lacks(secret: Object, wanted: _Wanted) -> bool:
    data, uid = wanted
    current_data = secret.get("data") or {}
    annotations = secret["metadata"].get("annotations") or {}
    is_complete = current_data.get("token") and data.items() <= current_data.items()
    return not is_complete or annotations.get(ACCOUNT_UID) != uid


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
