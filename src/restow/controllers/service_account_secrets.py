"""Secrets of type `kubernetes.io/service-account-token` get the token of the account they name.

Such a token has no end: it is good as long as its Secret holds it. Whoever wants one makes the
Secret; when the account goes, or another of that name takes its place, the Secret goes too.

Not here: tokens of limited time, which are asked for; and how a token is signed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.corrections import Corrections
from restow.controllers.object_keys import working_version
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.stored_bytes import check_opened, load
from restow.storage.interface import Batch, Revision
from restow.storage.pages import items_below

TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
LOOK_SECONDS: Final = 300.0
_Wanted = tuple[dict[str, str], str]
"""Data, and the uid of the account."""
_TYPE_BYTES: Final = TYPE.encode()

SignAccountToken = Callable[[str, tuple[str, str], str], str]
"""Makes a token, given a namespace, name and uid of an account, and the name of the Secret."""


class ServiceAccountSecretController:
    """Fills and removes Secrets of accounts. An observer of all objects."""

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
        self._secrets = _hosted(catalog, "Secret")
        self._accounts = _hosted(catalog, "ServiceAccount")
        self._certificates = certificates
        self._sign = sign
        self._corrections = Corrections("the certificates in the Secret", runtime.clock)
        self._of_accounts: dict[str, set[str]] = {}
        """By path of an account: its Secrets."""
        self.queue: WorkQueue[str] = runtime.work_queue("account-secrets")

    async def look(self, revision: Revision) -> None:
        """Queue every Secret of an account."""
        root = self._secrets.root
        async for item in items_below(self._storage, root):
            if _TYPE_BYTES in item.value:
                self.queue.add(item.key[len(root) :])

    def take_certificates(self, certificates: str) -> None:
        """Publish these authorities from the next look on."""
        self._certificates = certificates

    async def look_again(self) -> float:
        """The periodic look."""
        await self.look(Revision(0))
        return LOOK_SECONDS

    def see(self, batch: Batch) -> None:
        """Notice such Secrets, and accounts that come and go."""
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
        """Put one Secret right; after how long, when somebody else keeps it otherwise."""
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
                is_filled = bool((secret.get("data") or {}).get("token"))
                if is_filled and (wait := self._corrections.seconds_to_wait(path)):
                    return wait
                account = (account_path.partition("/")[2], uid)
                token = self._sign(namespace, account, name)
                await self._fill(path, token, self._wanted(namespace, uid))
                if is_filled:
                    self._corrections.note(path)
        except (status.NotFound, status.Conflict):
            return None  # it has changed, and that will be seen
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
            held = current.get("data") or {}
            # The token that is there stays: somebody has it.
            kept = {**held, **data, "token": held.get("token") or _encoded(token)}
            metadata = current["metadata"]
            annotations = {**(metadata.get("annotations") or {}), ACCOUNT_UID: uid}
            return {**current, "metadata": {**metadata, "annotations": annotations}, "data": kept}

        version = working_version(self._secrets)
        await self._store.update(self._secrets, version, path, change, is_patch=True)


def _lacks(secret: Object, wanted: _Wanted) -> bool:
    data, uid = wanted
    held = secret.get("data") or {}
    annotations = secret["metadata"].get("annotations") or {}
    is_whole = held.get("token") and data.items() <= held.items()
    return not is_whole or annotations.get(ACCOUNT_UID) != uid


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _hosted(catalog: Catalog, kind: str) -> Resource:
    resource = catalog.of_kind("", kind)
    assert resource is not None, f"every release hosts {kind}"
    return resource
