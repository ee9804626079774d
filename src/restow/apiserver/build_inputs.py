"""What a server is built from: each group of options is one frozen dataclass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from restow.admission import Admission
from restow.aio import Runtime
from restow.apiserver.aggregation import AggregationOptions
from restow.apiserver.audit import Audit
from restow.apiserver.authentication import Authenticators
from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.service_accounts import AccountRules
from restow.apiserver.webhooks import Webhooks
from restow.authentication import Authentication
from restow.authorization import Authorizer
from restow.endpoints.app import Barrier, open_barrier
from restow.httpserver import Counters
from restow.registry.catalog import Catalog
from restow.registry.committer import Sealed
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.encoding import EncodingPolicy, FixedPolicy
from restow.registry.resource import Resource
from restow.request.context import User
from restow.request.limits import RequestLimits
from restow.request.metrics import Metrics
from restow.storage.interface import Storage
from restow.storageversion.custom_resources import CustomRegistrar, CustomResources
from restow.storageversion.mirror import Mirror
from restow.storageversion.remote_reports import RemoteReports

VersionOf = Callable[[Resource], str]
"""The version in which a resource is written now."""


def preferred_version(resource: Resource) -> str:
    """The version in which a server writes that agrees with no other."""
    return resource.storage_api_version


def _is_whole() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """What a server stands on."""

    storage: Storage
    """As it reads with the keys there are."""
    catalog: Catalog
    runtime: Runtime
    sealed: Sealed | None = None
    """What lies beneath a storage that is encrypted."""
    metrics: Metrics = field(default_factory=Metrics)
    webhooks: Webhooks = field(init=False)
    """Those that convert custom resources."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "webhooks", Webhooks(self.runtime))

    def custom_resources(self, registration: CustomRegistrar) -> CustomResources:
        """What serves CRDs; `registration` reports them to other servers."""
        webhooks = self.webhooks
        return CustomResources(
            self.storage,
            self.catalog,
            self.runtime,
            registration=registration,
            make=lambda definition: custom_resource(definition, remote=webhooks.of(definition)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAgreement:
    """How this server and others agree on storage versions; by default there are no others."""

    policy: EncodingPolicy = field(default_factory=FixedPolicy)
    barrier: Barrier = open_barrier
    version_of: VersionOf = preferred_version
    mirror: Mirror | None = None
    """With it, StorageStates that a scan contradicts are corrected."""
    reports: RemoteReports | None = None
    """Takes the reports of servers with a store of their own."""
    custom: CustomResources | None = None
    """Serves CRDs and registers them; None: they are registered nowhere."""
    is_whole: Callable[[], bool] = _is_whole
    """Whether all CRDs of the store are known, so that other resources do not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What a server shows to no client."""

    tokens: dict[str, User]
    continue_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthParts:
    """How an aggregated server authenticates and authorizes, in the place of a cluster's rules."""

    authentication: Authentication
    authorizer: Authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Who may do what, and what is written about it."""

    secrets: Secrets
    auth_parts: AuthParts | None = None
    """With them the server has no dashboard: that is for credentials of the cluster itself."""
    authenticators: Authenticators | None = None
    """None: certificates and the tokens of `secrets` are enough."""
    accounts: AccountRules | None = None
    """With them, programs authenticate as service accounts, by tokens of this cluster."""
    admission: Sequence[Admission] = ()
    audit: Audit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """What clients see."""

    address: str
    gates: FeatureGates = field(default_factory=FeatureGates)
    limits: RequestLimits = field(default_factory=RequestLimits)
    aggregation: AggregationOptions | None = None
    """With them, other servers may stand behind this one."""
    is_leading: Callable[[], bool] = lambda: False
    """Whether this server writes which of them are available."""
    counters: Counters = field(default_factory=Counters)
    """Counts the requests; the listener's."""
