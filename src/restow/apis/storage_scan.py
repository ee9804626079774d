"""StorageScan (`storage.restow.dev/v1alpha1`): counts the raw values of the store at one revision.

A create-only review, like SubjectAccessReview. One request scans one page; the client repeats it
with `spec.continue` until `status.continue` is empty, and adds up the counts. All pages read the
same revision.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from restow.apimachinery.names import GroupVersionResource
from restow.apis.encryption_keys import IDENTITY

GROUP: Final = "storage.restow.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "StorageScan"
STORAGE_SCANS: Final = GroupVersionResource(GROUP, VERSION, "storagescans")

OBJECTS_PREFIX: Final = "/registry/"
"""Prefix of the keys of all API objects."""
LIMIT_MAX: Final = 100_000
"""Values per page."""
EXAMPLES_MAX: Final = 5
"""Keys named per count."""

Scope = Literal["Cluster", "Namespaced", "Other"]
"""Number of key segments after the resource's prefix: one, two, or another number."""
Problem = Literal["", "NotDecrypted", "NotDecodable"]


class StorageScanSpec(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The request."""

    prefix: str = ""
    """Only keys with this prefix; empty: all keys of API objects."""
    limit: int = 0
    """Values per page; 0: the server decides."""
    continue_: str = msgspec.field(name="continue", default="")


class StoredCount(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Values under one prefix that are stored in the same way."""

    prefix: str
    """Key prefix of the resource: `/registry/example.com/widgets/`."""
    group: str = ""
    resource: str = ""
    """The resource of the prefix; empty if it has no name."""
    scope: Scope
    api_version: str = ""
    """Empty if unreadable."""
    kind: str = ""
    encoding: str
    """`json`, `protobuf`, `yaml`, or `unreadable`; of an encrypted value, the decrypted form."""
    encryption_key: str = ""
    """ID of the encryption key; empty: not encrypted."""
    problem: Problem = ""
    values: int
    first_create_revision: int = 0
    """The lowest create revision of the values' keys."""
    examples: list[str] = msgspec.field(default_factory=list)
    """Sample keys."""


class ScannedServer(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A server with a membership record in this store."""

    id: str
    mode: str = ""
    """`report`, `strict`, `loose` or `off`; empty: its record is unreadable."""
    address: str = ""
    encryption_problem: str = ""
    """Path and error of its encryption configuration file, if rejected: it could not restart."""


class ScannedDefinition(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A stored CustomResourceDefinition."""

    name: str
    uid: str = ""
    create_revision: int = 0


class Contradiction(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Values in a version, or under an encryption key, that the StorageState of their resource does
    not list."""

    group: str = ""
    resource: str
    api_version: str = ""
    """Empty if unreadable."""
    encryption_key: str = ""
    """The key that the StorageState does not list; `identity`: not encrypted. Empty: the key is
    listed, but the version is not."""
    values: int
    examples: list[str] = msgspec.field(default_factory=list)

    @property
    def text(self) -> str:
        """Number and form of the values, for messages: `2 as apps/v1, encrypted with aesgcm:a`."""
        parts = [f" as {self.api_version}"] if self.api_version else []
        if self.encryption_key == IDENTITY:
            parts.append(" not encrypted")
        elif self.encryption_key:
            parts.append(f" encrypted with {self.encryption_key}")
        return f"{self.values:,}{','.join(parts)}"


class StorageScanStatus(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One page of the result."""

    resource_version: str = ""
    """The revision that all pages read."""
    continue_: str = msgspec.field(name="continue", default="")
    scanned: int = 0
    """Values in this page."""
    total: int | None = None
    """Values in all pages; in the first page only."""
    counts: list[StoredCount] = msgspec.field(default_factory=list)
    contradictions: list[Contradiction] = msgspec.field(default_factory=list)
    servers: list[ScannedServer] = msgspec.field(default_factory=list)
    """All servers that can write to this store, when the page was scanned."""
    unfenced_servers: list[str] = msgspec.field(default_factory=list)
    """API servers with an identity lease in this store and no membership record."""
    definitions: list[ScannedDefinition] = msgspec.field(default_factory=list)
    """In the first page only."""


class StorageScan(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The review."""

    kind: str = KIND
    api_version: str = API_VERSION
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: StorageScanSpec = msgspec.field(default_factory=StorageScanSpec)
    status: StorageScanStatus = msgspec.field(default_factory=StorageScanStatus)
