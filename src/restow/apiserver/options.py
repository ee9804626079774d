"""What one may choose about a server. Values only; nothing is opened here.

Values that cannot work, alone or together, raise a ValueError that says why and names the flag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from restow.apiserver.audit_options import AuditOptions
from restow.apiserver.authentication_options import AuthenticationOptions
from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.limit_options import LimitOptions
from restow.apiserver.runtime_config import RuntimeConfig
from restow.apiserver.service_account_options import ServiceAccountOptions
from restow.apiserver.tls_options import TlsOptions

PORT_DEFAULT: Final = 6443
STORAGE_SCAN_SECONDS_DEFAULT: Final = 3600.0
COMPACTION_SECONDS_DEFAULT: Final = 300.0
EVENT_TTL_SECONDS_DEFAULT: Final = 3600.0
LIVEZ_GRACE_SECONDS_DEFAULT: Final = 300.0
"""Five times the minute in which KEP-2339 wants a server to have reported."""
LEASE_SECONDS_DEFAULT: Final = 15
LEASE_RENEW_SECONDS_DEFAULT: Final = 5.0
LEASE_SECONDS_MAX: Final = 24 * 3600
"""A dead server counts as alive for so long; all that waits for it waits too."""
LOOSE_BOUND_SECONDS_DEFAULT: Final = 60.0
LOOSE_BOUND_SECONDS_MAX: Final = 24 * 3600

CoordinationMode = Literal["report", "vote"]
Guarantee = Literal["strict", "loose"]
VoteBootstrap = Literal["wait", "force"]
RecordedMode = Literal["report", "strict", "loose", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationOptions:
    """How the servers of a cluster agree on the version in which they write."""

    mode: CoordinationMode = "report"
    guarantee: Guarantee = "strict"
    loose_bound_seconds: float = LOOSE_BOUND_SECONDS_DEFAULT
    vote_bootstrap: VoteBootstrap = "wait"
    change_mode: bool = False
    """Start although the running servers coordinate in another mode."""

    def __post_init__(self) -> None:
        if self.mode == "report":
            for flag, has_effect in (
                ("--guarantee loose", self.guarantee == "loose"),
                ("--vote-bootstrap force", self.vote_bootstrap == "force"),
            ):
                if has_effect:
                    raise ValueError(f"{flag} is about a vote: it needs --coordination vote")
        if not 0 < self.loose_bound_seconds <= LOOSE_BOUND_SECONDS_MAX:
            raise ValueError(
                f"--loose-bound-seconds {self.loose_bound_seconds:g} is not above 0 and at"
                f" most {LOOSE_BOUND_SECONDS_MAX}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `restow serve`, by kube-apiserver's names where it has one."""

    data_dir: Path
    store: str = ""
    """Address of the store; empty: SQLite in the data directory."""
    bind: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    front_port: int | None = None
    """A second port, which several servers share: open while this one is ready."""
    front_bind: str = ""
    """Address of the front port; empty: as `bind`."""
    front_fds: tuple[int, ...] = ()
    """Listening sockets of a front port, inherited from a parent, this server's own first."""
    kubeconfig: Path | None = None
    """Where to write it; None: in the data directory."""
    release: Path | None = None
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    token_auth_file: Path | None = None
    service_account_signing_key_file: Path | None = None
    encryption_provider_config: Path | None = None
    """The keys that values are encrypted with; None: they are not, and none is readable that is."""
    compaction_interval_seconds: float = COMPACTION_SECONDS_DEFAULT
    storage_scan_interval_seconds: float = STORAGE_SCAN_SECONDS_DEFAULT
    """Between two scans of the raw store in the background; 0: none."""
    event_ttl_seconds: float = EVENT_TTL_SECONDS_DEFAULT
    grace_seconds: float = 10.0
    """How long requests in work may take when the server stops."""
    livez_grace_seconds: float = LIVEZ_GRACE_SECONDS_DEFAULT
    """How long `/livez` waits for the start to be finished."""
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    runtime_config: RuntimeConfig = field(default_factory=RuntimeConfig)
    identity_lease_duration_seconds: int = LEASE_SECONDS_DEFAULT
    identity_lease_renew_interval_seconds: float = LEASE_RENEW_SECONDS_DEFAULT
    coordination: CoordinationOptions = field(default_factory=CoordinationOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    tls: TlsOptions = field(default_factory=TlsOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    service_accounts: ServiceAccountOptions = field(default_factory=ServiceAccountOptions)

    def __post_init__(self) -> None:
        self._check_lease()
        self._check_front()
        coordination, renew = self.coordination, self.identity_lease_renew_interval_seconds
        if coordination.guarantee == "loose" and coordination.loose_bound_seconds <= 2 * renew:
            raise ValueError(
                f"--loose-bound-seconds {coordination.loose_bound_seconds:g} must be more than"
                f" twice --identity-lease-renew-interval-seconds {renew:g}: that is how often a"
                " server hears that it is up to date"
            )
        if self.coordination.mode == "vote" and not self.feature_gates.storage_version_api:
            raise ValueError(
                "--coordination vote needs the feature gate StorageVersionAPI: votes are cast in"
                " StorageVersion objects"
            )

    def _check_front(self) -> None:
        if self.front_bind and self.front_port is None:
            raise ValueError("--front-bind: only with --front-port")
        if self.front_fds and self.front_port is not None:
            raise ValueError("--front-fds brings a port of its own: give no --front-port")
        if self.front_port is not None and self.front_port == self.port != 0:
            raise ValueError(
                f"--front-port {self.front_port} is also --port: a server needs one of its own"
            )
        if len(set(self.front_fds)) != len(self.front_fds) or any(fd < 3 for fd in self.front_fds):
            raise ValueError("--front-fds: different numbers from 3 on, the own socket first")

    def _check_lease(self) -> None:
        duration = self.identity_lease_duration_seconds
        renew = self.identity_lease_renew_interval_seconds
        if not 1 <= duration <= LEASE_SECONDS_MAX:
            raise ValueError(
                f"--identity-lease-duration-seconds {duration} is not between 1 and"
                f" {LEASE_SECONDS_MAX}"
            )
        if not 0 < renew * 2 < duration:
            raise ValueError(
                f"--identity-lease-renew-interval-seconds {renew:g} must be above 0 and less than"
                f" half of --identity-lease-duration-seconds {duration}, so that one lost renewal"
                " does not end the lease"
            )

    @property
    def store_address(self) -> str:
        return self.store or f"sqlite:{self.data_dir / 'store.db'}"

    @property
    def recorded_mode(self) -> RecordedMode:
        """How this server coordinates, as it tells the others."""
        if not self.feature_gates.storage_version_api:
            return "off"
        if self.coordination.mode == "report":
            return "report"
        return self.coordination.guarantee
