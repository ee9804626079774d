"""What is known of aggregated APIs, and how a backend is asked: the seam between the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from restow.apimachinery.names import GroupVersion
from restow.client.transport import ClientRequest, ClientResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRef:
    """The Service that an APIService names."""

    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteApi:
    """One group in one version that another server serves."""

    name: str
    """Of the APIService: `version.group`."""
    uid: str
    group: str
    version: str
    service: ServiceRef
    ca_pem: str | None = None
    """The only authority that is trusted; None: those that the system trusts."""
    is_unverified: bool = False
    """Whether whoever answers is believed (`insecureSkipTLSVerify`)."""
    group_priority: int = 0
    version_priority: int = 0

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)


class Directory(Protocol):
    """Which APIs are aggregated, as this server knows it now."""

    listeners: list[Callable[[], None]]
    """Called when an API has come, gone or changed, or its availability has."""

    def find(self, group: str, version: str) -> RemoteApi | None:
        """The remote API; None when the group is served here in that version, or by nobody."""

    def all(self) -> Sequence[RemoteApi]:
        """All remote APIs, in order of priority."""

    def unavailable(self, api: RemoteApi) -> str | None:
        """Why an API cannot be asked now; None when it can, as far as is known."""


class Backends(Protocol):
    """The ways to the servers behind remote APIs."""

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        """Ask one of the servers of an API, as this server: its own client certificate.

        Raises ConnectionFailed, or a ValueError for a request that is no HTTP. Sets no deadline.
        """

    async def close(self) -> None:
        """End all connections."""
