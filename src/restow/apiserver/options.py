"""Options of a server. Values only; nothing is opened here.

Invalid values or combinations raise a ValueError that gives the reason and names the flag.
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
"""Five times the minute within which KEP-2339 expects a server to have reported."""
LEASE_SECONDS_DEFAULT: Final = 15
LEASE_RENEW_SECONDS_DEFAULT: Final = 5.0
LEASE_SECONDS_MAX: Final = 24 * 3600
"""Limit of the time for which a crashed server still participates and delays the others."""
LOOSE_BOUND_SECONDS_DEFAULT: Final = 60.0
LOOSE_BOUND_SECONDS_MAX: Final = 24 * 3600

CoordinationMode = Literal["report", "vote"]
Guarantee = Literal["strict", "loose"]
VoteBootstrap = Literal["wait", "force"]
RecordedMode = Literal["report", "strict", "loose", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationOptions:
    """Options for the agreement of servers on encoding versions."""

    mode: CoordinationMode = "report"
    guarantee: Guarantee = "strict"
    loose_bound_seconds: float = LOOSE_BOUND_SECONDS_DEFAULT
    vote_bootstrap: VoteBootstrap = "wait"
    change_mode: bool = False
    """Start although the running servers use another coordination mode."""

    def __post_init__(self) -> None:
        if self.mode == "report":
            for flag, has_effect in (
                ("--guarantee loose", self.guarantee == "loose"),
                ("--vote-bootstrap force", self.vote_bootstrap == "force"),
            ):
                if has_effect:
                    raise ValueError(f"{flag} configures votes: it requires --coordination vote")
        if not 0 < self.loose_bound_seconds <= LOOSE_BOUND_SECONDS_MAX:
            raise ValueError(
                f"--loose-bound-seconds {self.loose_bound_seconds:g} is not above 0 and at"
                f" most {LOOSE_BOUND_SECONDS_MAX}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `restow serve`, with kube-apiserver's names where they exist there."""

    data_dir: Path
    store: str = ""
    """Address of the store; empty: SQLite in the data directory."""
    bind: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    front_port: int | None = None
    """A second port, shared by several servers: open while this server is ready."""
    front_bind: str = ""
    """Bind address of the front port; empty: the same as `bind`."""
    front_fds: tuple[int, ...] = ()
    """Listening sockets of a front port, inherited from a parent; this server's own one first."""
    kubeconfig: Path | None = None
    """Path of the kubeconfig; None: in the data directory."""
    release: Path | None = None
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    token_auth_file: Path | None = None
    service_account_signing_key_file: Path | None = None
    encryption_provider_config: Path | None = None
    """The encryption configuration; None: values are not encrypted, and encrypted ones
    unreadable."""
    compaction_interval_seconds: float = COMPACTION_SECONDS_DEFAULT
    storage_scan_interval_seconds: float = STORAGE_SCAN_SECONDS_DEFAULT
    """Interval of the background scan of the raw store; 0: no scan."""
    event_ttl_seconds: float = EVENT_TTL_SECONDS_DEFAULT
    grace_seconds: float = 10.0
    """Maximum duration of draining requests at shutdown."""
    livez_grace_seconds: float = LIVEZ_GRACE_SECONDS_DEFAULT
    """Time after the start until `/livez` fails if the start is not finished."""
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
                f" twice --identity-lease-renew-interval-seconds {renew:g}: the"
                " server's state is confirmed with each renewal"
            )
        if self.coordination.mode == "vote" and not self.feature_gates.storage_version_api:
            raise ValueError(
                "--coordination vote needs the feature gate StorageVersionAPI: votes are stored"
                " in StorageVersion objects"
            )

    def _check_front(self) -> None:
        if self.front_bind and self.front_port is None:
            raise ValueError("--front-bind: requires --front-port")
        if self.front_fds and self.front_port is not None:
            raise ValueError("--front-fds and --front-port cannot be used together")
        if self.front_port is not None and self.front_port == self.port != 0:
            raise ValueError(
                f"--front-port {self.front_port} is the same as --port: choose different ports"
            )
        if len(set(self.front_fds)) != len(self.front_fds) or any(fd < 3 for fd in self.front_fds):
            raise ValueError(
                "--front-fds: must be different numbers >= 3, this server's socket first"
            )

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
                f" half of --identity-lease-duration-seconds {duration}, so that the lease"
                " survives one lost renewal"
            )

    @property
    def store_address(self) -> str:
        return self.store or f"sqlite:{self.data_dir / 'store.db'}"

    @property
    def recorded_mode(self) -> RecordedMode:
        """The coordination mode of this server, as recorded in the store."""
        if not self.feature_gates.storage_version_api:
            return "off"
        if self.coordination.mode == "report":
            return "report"
        return self.coordination.guarantee
