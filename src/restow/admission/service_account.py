"""ServiceAccount admission: assigns service accounts to new pods and checks that they exist.

    pods without an account    get `default`, which a controller creates in each namespace; in a
                               new namespace it may not exist yet, so it is retried for a moment
    pods with an account       are refused if it does not exist
    all but mirror pods        get the account's token as a volume, and its image pull secrets

A server that issues no service account tokens does not run this plug-in.

Not here: the fields that a pod gets (`restow.apimachinery.pod_accounts`), and the creation of
accounts (`restow.controllers.service_accounts`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.admission.review import Attributes, WriteOf, forbidden
from restow.aio import Backoff, Runtime, retry
from restow.apimachinery import pod_accounts
from restow.apimachinery.status import Forbidden
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry

ATTEMPTS_MAX: Final = 10
"""Number of reads of the account `default`. Other accounts are read once."""
BACKOFF: Final = Backoff(initial_seconds=0.2, factor=1, max_seconds=0.2, jitter=0.5)
"""Delay between two reads of the account."""


class PodAccounts:
    """Apply service accounts to new pods, and refuse pods without one. Satisfies `Mutation` and
    `Admission`: a webhook may change the pod between the two."""

    def __init__(self, store: ResourceStore, accounts: Resource, runtime: Runtime) -> None:
        self._store = store
        self._accounts = accounts
        self._runtime = runtime

    def concerns(self, write: WriteOf) -> bool:
        if write.resource.group or write.resource.plural != "pods":
            return False
        return (write.operation, write.subresource) in {
            ("CREATE", ""),
            ("UPDATE", "ephemeralcontainers"),
        }

    async def mutate(self, attributes: Attributes) -> Object | None:
        obj = attributes.obj
        if attributes.operation != "CREATE" or obj is None or pod_accounts.is_mirror(obj):
            return None
        account = await self._account(attributes, _account_name(obj) or _DEFAULT)
        return pod_accounts.with_account(obj, account, suffix=self._runtime.ids.suffix())

    async def review(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None:
            return
        is_new = attributes.operation == "CREATE"
        if is_new and pod_accounts.is_mirror(obj):
            _refuse(attributes, pod_accounts.mirror_problem(obj))
            return
        name = _account_name(obj)
        if not name:
            if is_new:
                where = f"{attributes.namespace}/{attributes.name}"
                _refuse(attributes, f"no service account specified for pod {where}")
            return
        account = await self._account(attributes, name)
        if pod_accounts.limits_secrets(account):
            problem = pod_accounts.secrets_problem if is_new else pod_accounts.later_secrets_problem
            _refuse(attributes, problem(obj, account))

    async def _account(self, attributes: Attributes, name: str) -> Object:
        """Return the service account of a pod. Raises 403."""
        resource = self._accounts
        path = resource.path_of(attributes.namespace, name)
        cache = self._store.ready(resource)
        entry = None if cache is None else cache.get(path)

        async def read() -> Entry:
            found = (await self._store.read(resource)).get(path)
            if found is None:
                where = f"{attributes.namespace}/{name}"
                why = f'error looking up service account {where}: serviceaccount "{name}"'
                raise forbidden(attributes, f"{why} not found")
            return found

        if entry is None:
            # The cache may be behind the store, and the controller behind a new namespace.
            entry = await retry(
                read,
                retry_on=Forbidden,
                attempts_max=ATTEMPTS_MAX if name == _DEFAULT else 1,
                backoff=BACKOFF,
                clock=self._runtime.clock,
                randomness=self._runtime.randomness,
            )
        version = resource.api_version(resource.own_version)
        return self._store.object_of(resource, entry, version)


_DEFAULT: Final = pod_accounts.ACCOUNT_DEFAULT


def _account_name(pod: Object) -> str:
    spec: dict[str, Any] = pod.get("spec") or {}
    return spec.get("serviceAccountName") or ""


def _refuse(attributes: Attributes, why: str) -> None:
    if why:
        raise forbidden(attributes, why)
