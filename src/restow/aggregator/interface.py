"""Interfaces between the parts of the aggregator: the list of APIs, and calls to backends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupVersion
from restow.client.transport import ClientRequest, ClientResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRef:
    """The Service that an APIService refers to."""

    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteApi:
    """One group version that another server serves."""

    name: str
    """Name of the APIService: `version.group`."""
    uid: str
    group: str
    version: str
    service: ServiceRef
    ca_pem: str | None = None
    """The only trusted CAs; None: those of the system."""
    is_unverified: bool = False
    """Whether any certificate is accepted (`insecureSkipTLSVerify`)."""
    group_priority: int = 0
    version_priority: int = 0

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)


class Directory(Protocol):
    """The currently registered aggregated APIs."""

    changed: EventChannel[[]]
    """Called when an API was added, removed or changed, or its availability has changed."""

    def find(self, group: str, version: str) -> RemoteApi | None:
        """Return the remote API; None if the group version is served here or does not exist."""

    def all(self) -> Sequence[RemoteApi]:
        """All remote APIs, in order of priority."""

    def unavailable(self, api: RemoteApi) -> str | None:
        """The reason why an API is currently unavailable; None if no problem is known."""


class Backends(Protocol):
    """Calls to the servers of remote APIs."""

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        """Call one of the servers of an API, with this server's client certificate.

        Raises ConnectionFailed, or a ValueError for an invalid HTTP request. Sets no timeout.
        """

    async def close(self) -> None:
        """Close all connections."""
