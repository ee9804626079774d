"""The admission plug-ins of one server, in the order in which they run.

This is the composition root of `restow.admission`. To add a plug-in, add it to one of the two lists
in `AdmissionParts`. Not here: the plug-ins themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from restow.admission import Admission, Chain, Mutation, ObjectCheck
from restow.admission.certificate_signing import RequesterStamp, SignerPermissions
from restow.admission.defaults import ClaimDefaults, PodDefaults
from restow.admission.limit_ranger import LimitChecks, LimitDefaults, LimitRanges
from restow.admission.matchers import Namespaces
from restow.admission.policies import Policies
from restow.admission.policies_authorizer import authorizer_values
from restow.admission.policies_rights import ParamRights
from restow.admission.resource_quota import QuotaAdmission, quota_resource
from restow.admission.service_account import PodAccounts
from restow.admission.webhooks import MutatingWebhooks, ValidatingWebhooks, WebhookDependencies
from restow.admission.webhooks_index import WebhookIndex
from restow.admission.webhooks_metrics import WebhookMetrics
from restow.admission.webhooks_transport import HookCalls
from restow.aggregator.services import StoredServices
from restow.aio import Runtime
from restow.authorization import Authorizer
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.request.metrics import Metrics
from restow.request.offload import Offload


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlugins:
    """Plug-ins of a server besides webhooks and policies."""

    checks: Sequence[Admission] = ()
    """Run first: checks of the server itself, such as the escalation check."""
    object_checks: Sequence[ObjectCheck] = ()
    """Checks of every object, including objects that concern no plug-in."""
    own: Sequence[Admission] = ()
    """Plug-ins of a program that serves kinds of its own."""
    last: Sequence[Admission] = ()
    """Run after all others except quotas have accepted the write, such as plug-ins that count
    objects."""
    gives_accounts: bool = False
    """Whether pods run as service accounts of this cluster and get tokens of it."""


class AdmissionParts:
    """All admission plug-ins; `start` them when the store is readable, before the first write."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        authorizer: Authorizer,
        plugins: OwnPlugins,
        offload: Offload,
        allows_loopback: bool = False,
    ) -> None:
        """`allows_loopback`: whether webhooks behind a Service may run on this machine."""
        self._calls = HookCalls(
            StoredServices(store, catalog), runtime, allows_loopback=allows_loopback
        )
        self._metrics = WebhookMetrics()
        mutating, validating = (
            WebhookIndex(kind, store, catalog, runtime, on_changed=self._hooks_changed)
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        )
        self._hooks = (mutating, validating)
        self._policies = Policies(
            store,
            catalog,
            runtime,
            authorizer=authorizer,
            offload=offload,
            on_changed=self.forget,
        )
        self._limits = LimitRanges(store, catalog, runtime, on_changed=self.forget)
        accounts = catalog.named("", "serviceaccounts") if plugins.gives_accounts else None
        pods = [] if accounts is None else [PodAccounts(store, accounts, runtime)]
        self._quotas: list[QuotaAdmission] = []
        if (quotas := quota_resource(catalog)) is not None:
            self._quotas.append(QuotaAdmission(store, quotas, runtime, on_changed=self.forget))
        asking = WebhookDependencies(
            calls=self._calls,
            namespaces=Namespaces(store, catalog),
            metrics=self._metrics,
            runtime=runtime,
            offload=offload,
            authorizer=partial(authorizer_values, authorizer),
        )
        mutations: list[Mutation] = [
            LimitDefaults(self._limits),
            *pods,
            PodDefaults(store, catalog),
            ClaimDefaults(store, catalog),
            MutatingWebhooks(mutating, asking),
            RequesterStamp(),
        ]
        admissions: list[Admission] = [
            *plugins.checks,
            LimitChecks(self._limits),
            *pods,
            ParamRights(store, catalog, authorizer),
            SignerPermissions(authorizer),
            *plugins.own,
            self._policies,
            ValidatingWebhooks(validating, asking),
            *plugins.last,
            *self._quotas,
        ]
        self.chain = Chain(mutations, admissions, object_checks=plugins.object_checks)

    async def start(self) -> None:
        """Load all admission configurations. Raises when they cannot be read."""
        for each in self._hooks:
            await each.start()
        await self._policies.start()
        await self._limits.start()
        for quota in self._quotas:
            await quota.start()

    async def freshen(self) -> None:
        """Wait until every policy that was acknowledged before this call is in effect."""
        await self._policies.freshen()

    async def close(self) -> None:
        for each in self._hooks:
            await each.close()
        await self._policies.close()
        await self._limits.close()
        for quota in self._quotas:
            await quota.close()
        await self._calls.close()

    def publish(self, metrics: Metrics) -> None:
        self._metrics.publish(metrics)

    def forget(self) -> None:
        """Discard the chain's cache: other writes may concern plug-ins now."""
        self.chain.invalidate()

    def _hooks_changed(self) -> None:
        self._calls.keep(client for each in self._hooks for client in each.clients())
        self.chain.invalidate()

    def catalog_changed(self, _group: str) -> None:
        """Drop what was derived from the hosted resources."""
        for each in self._hooks:
            each.invalidate()
        self.chain.invalidate()
