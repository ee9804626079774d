"""`coordination.k8s.io/v1`: Lease, with the fields that servers use for their identity."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "Lease",
    "LeaseSpec",
]

GROUP: Final = "coordination.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "Lease"


class LeaseSpec(msgspec.Struct, kw_only=True, omit_defaults=True):
    holder_identity: str = msgspec.field(name="holderIdentity", default="")
    lease_duration_seconds: int = msgspec.field(name="leaseDurationSeconds", default=0)
    renew_time: str | None = msgspec.field(name="renewTime", default=None)


class Lease(msgspec.Struct, kw_only=True):
    metadata: dict[str, Any]
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
