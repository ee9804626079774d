"""The leader election record of a Lease, read and written like that of client-go.

The whole object is kept and only these fields are changed, so that newer fields are preserved.

Pure. Not here: the expiry of a lease, which each candidate determines by its own clock
(`leader_election`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from restow.apis.coordination_v1 import API_VERSION, KIND
from restow.client.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The fields of an election. Without a holder there is no leader."""

    holder: str = ""
    lease_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    transitions: int = 0

    @classmethod
    def read(cls, lease: Object) -> LeaseRecord:
        """Read a lease; fields of the wrong type count as empty."""
        spec = lease.get("spec")
        if not isinstance(spec, dict):
            spec = {}
        return cls(
            holder=_text(spec.get("holderIdentity")),
            lease_seconds=_number(spec.get("leaseDurationSeconds")),
            acquire_time=_text(spec.get("acquireTime")),
            renew_time=_text(spec.get("renewTime")),
            transitions=_number(spec.get("leaseTransitions")),
        )

    def written_to(self, lease: Object) -> Object:
        """The lease with these fields; all others are preserved."""
        spec = lease.get("spec")
        fields: dict[str, Any] = {
            # Omitted without a holder: some servers reject an empty one.
            "holderIdentity": self.holder or None,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": self.acquire_time,
            "renewTime": self.renew_time,
            "leaseTransitions": self.transitions,
        }
        known = spec if isinstance(spec, dict) else {}
        changed = {name: value for name, value in (known | fields).items() if value is not None}
        return lease | {"spec": changed}


def new_lease(namespace: str, name: str) -> Object:
    """A lease with an empty spec."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}}


def micro_time(moment: datetime) -> str:
    """A time in the format of leases: UTC, with microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
