"""Connection settings of the command line, which have precedence over a kubeconfig, as in kubectl.

Not here: the flags (`restow.cli.connection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_CA_FIELDS: Final = (
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOverrides:
    """Replaced settings; empty ones are those of the kubeconfig."""

    cluster: str = ""
    """The name of a cluster of the kubeconfig."""
    user: str = ""
    """The name of a user of the kubeconfig."""
    server: str = ""
    tls_server_name: str = ""
    certificate_authority: Path | None = None
    insecure_skip_tls_verify: bool = False
    token: str = field(default="", repr=False)
    client_certificate: Path | None = None
    client_key: Path | None = None
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    as_uid: str = ""

    @property
    def has_target(self) -> bool:
        """Whether a server or an entry is selected, so that no other source is searched."""
        return bool(self.cluster or self.user or self.server)

    def cluster_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a cluster with these settings. Another server or authority also replaces
        what belonged to the previous one."""
        merged = dict(fields)
        if self.server or self.tls_server_name:
            merged.pop("tls-server-name", None)
        if self.certificate_authority is not None or self.insecure_skip_tls_verify:
            for name in _CA_FIELDS:
                merged.pop(name, None)
        return merged | _given(
            {
                "server": self.server,
                "tls-server-name": self.tls_server_name,
                "certificate-authority": _absolute(self.certificate_authority),
                "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
            }
        )

    def user_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a user with these settings."""
        merged = dict(fields)
        if self.token:
            merged.pop("tokenFile", None)
        for name, path in (
            ("client-certificate", self.client_certificate),
            ("client-key", self.client_key),
        ):
            if path is not None:
                merged.pop(f"{name}-data", None)
        return merged | _given(
            {
                "token": self.token,
                "client-certificate": _absolute(self.client_certificate),
                "client-key": _absolute(self.client_key),
                "as": self.as_user,
                "as-groups": list(self.as_groups),
                "as-uid": self.as_uid,
            }
        )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())
