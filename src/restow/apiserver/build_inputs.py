"""The inputs of a server's build stages: each group of options is one frozen dataclass."""

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
"""Returns the current encoding version of a resource."""


def preferred_version(resource: Resource) -> str:
    """The encoding version of a server that does not coordinate with others."""
    return resource.storage_api_version


def _is_whole() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The store, catalog and runtime on which a server is built."""

    storage: Storage
    """Values decrypted with the available keys."""
    catalog: Catalog
    runtime: Runtime
    sealed: Sealed | None = None
    """The storage below the encryption."""
    metrics: Metrics = field(default_factory=Metrics)
    webhooks: Webhooks = field(init=False)
    """Webhooks that convert custom resources."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "webhooks", Webhooks(self.runtime))

    def custom_resources(self, registration: CustomRegistrar) -> CustomResources:
        """Create the part that serves CRDs; `registration` reports them to other servers."""
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
    """The parts by which servers agree on storage versions; by default, for a single server."""

    policy: EncodingPolicy = field(default_factory=FixedPolicy)
    barrier: Barrier = open_barrier
    version_of: VersionOf = preferred_version
    mirror: Mirror | None = None
    """If set, StorageStates that a scan contradicts are corrected."""
    reports: RemoteReports | None = None
    """Receives StorageVersions of servers with a store of their own."""
    custom: CustomResources | None = None
    """Serves CRDs and reports them; None: they are not reported."""
    is_whole: Callable[[], bool] = _is_whole
    """Whether all CRDs of the store are loaded, so that an unknown resource does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Secrets of a server that no client may read."""

    tokens: dict[str, User]
    continue_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthParts:
    """Delegated authentication and authorization of an aggregated server."""

    authentication: Authentication
    authorizer: Authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Options of access control and audit."""

    secrets: Secrets
    auth_parts: AuthParts | None = None
    """If set, the server has no dashboard, which needs the cluster's own credentials."""
    authenticators: Authenticators | None = None
    """None: only certificates and the tokens of `secrets`."""
    accounts: AccountRules | None = None
    """If set, tokens of this cluster authenticate service accounts."""
    admission: Sequence[Admission] = ()
    audit: Audit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Options of what clients see."""

    address: str
    gates: FeatureGates = field(default_factory=FeatureGates)
    limits: RequestLimits = field(default_factory=RequestLimits)
    aggregation: AggregationOptions | None = None
    """If set, requests can be forwarded to aggregated servers."""
    is_leading: Callable[[], bool] = lambda: False
    """Whether this server writes the availability of aggregated APIs."""
    counters: Counters = field(default_factory=Counters)
    """Request counters; the listener's."""
