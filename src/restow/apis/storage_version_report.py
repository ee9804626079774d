"""StorageVersionReport: the entry of a server with a store of its own for one resource.

It is sent to the subresource `report` of the resource's StorageVersion, and has the same API group.
Kubernetes has no such kind: there, aggregated servers write the status themselves.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import API_VERSION

KIND: Final = "StorageVersionReport"
SUBRESOURCE: Final = "report"
# Query parameters of the DELETE that withdraws a report.
SERVER_PARAMETER: Final = "serverID"
STORE_PARAMETER: Final = "store"
SEQUENCE_PARAMETER: Final = "sequence"


class StorageVersionReport(
    msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The versions and encryption keys with which one server writes and reads a resource."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    server_id: str = msgspec.field(name="serverID")
    store: str
    """ID of the store in which the server keeps its keys."""
    sequence: int
    """The revision of that store at which it reports; never decreases."""
    object_kind: str
    """Kind of the objects, from which version hashes are computed."""
    encoding_version: str
    decodable_versions: list[str]
    served_versions: list[str] = msgspec.field(default_factory=list)
    encryption_key: str = ""
    readable_encryption_keys: list[str] = msgspec.field(default_factory=lambda: [IDENTITY])
    preferred_encryption_key: str | None = None


def new_report(**fields: Any) -> StorageVersionReport:
    """Create a report with its kind and API version."""
    return StorageVersionReport(kind=KIND, api_version=API_VERSION, **fields)
