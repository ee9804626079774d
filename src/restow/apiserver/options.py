"""What one may choose about a server. Values only; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PORT_DEFAULT: Final = 6443
COMPACTION_SECONDS_DEFAULT: Final = 300.0
EVENT_TTL_SECONDS_DEFAULT: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `restow serve`, by kube-apiserver's names where it has one."""

    data_dir: Path
    store: str = ""
    """Address of the store; empty: SQLite in the data directory."""
    bind: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    release: Path | None = None
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    token_auth_file: Path | None = None
    service_account_signing_key_file: Path | None = None
    compaction_interval_seconds: float = COMPACTION_SECONDS_DEFAULT
    event_ttl_seconds: float = EVENT_TTL_SECONDS_DEFAULT
    grace_seconds: float = 10.0
    """How long requests in work may take when the server stops."""

    @property
    def store_address(self) -> str:
        return self.store or f"sqlite:{self.data_dir / 'store.db'}"
