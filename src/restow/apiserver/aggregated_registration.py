"""Registers an aggregated server with the main servers: Service, Endpoints and APIServices.

All servers of one component share these objects. Each server maintains its own address in the
Endpoints and removes it when it stops. The address of a crashed server is removed by the running
ones, once it no longer participates. The APIServices stay when the last server stops: they are
still correct, and requests get a 503.

Objects of other owners are respected: an APIService that refers to another Service is not changed.
Not here: which servers participate (`restow.storageversion`).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from restow.aio import Backoff, Runtime
from restow.apimachinery.names import GroupVersion, GroupVersionResource
from restow.apimachinery.status import AlreadyExists, Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apiserver.aggregated_options import GROUP_PRIORITY_DEFAULT, VERSION_PRIORITY_MAX
from restow.client import ApiClient, ClientError, Object
from restow.controllers import EndpointAddress
from restow.storage.interface import Item, Key
from restow.storageversion.identity import SERVERS_PREFIX

SERVICES: Final = GroupVersionResource("", "v1", "services")
ENDPOINTS: Final = GroupVersionResource("", "v1", "endpoints")
API_SERVICES: Final = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices")
SERVICE_PORT: Final = 443
PORT_NAME: Final = "https"
COMPONENT_LABEL: Final = "app.kubernetes.io/name"
RESYNC_SECONDS: Final = 30.0
"""Interval of checks of the registered objects while nothing changes."""
PAUSE_SECONDS: Final = 0.1
ATTEMPTS_MAX: Final = 10
LEAVE_SECONDS_MAX: Final = 3.0
BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=10, jitter=0.3)

logger = logging.getLogger(__name__)


class NotOurs(Exception):
    """An object exists already and belongs to another owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The data that the servers of one component register at the main servers."""

    component: str
    namespace: str
    service: str
    ca_pem: bytes
    """The CA that signs their certificates."""
    group_versions: tuple[GroupVersion, ...]
    """The group versions they serve; of each group the preferred version first."""


class SelfRegistration:
    """Keeps one server registered."""

    def __init__(
        self,
        client: ApiClient,
        runtime: Runtime,
        identity: Identity,
        *,
        own: EndpointAddress,
        member_addresses: Callable[[], Collection[EndpointAddress]],
    ) -> None:
        """`member_addresses` returns the addresses of all participating component servers."""
        self._client = client
        self._runtime = runtime
        self._identity = identity
        self._own = own
        self._member_addresses = member_addresses
        self._known: frozenset[EndpointAddress] = frozenset()
        """The result of `member_addresses` at the last change."""
        self._changed = asyncio.Event()
        self._is_leaving = False
        self.trouble: str | None = None
        """The reason why the registration is incomplete; None when it is complete."""

    def server_changed(self, key: Key, _item: Item | None) -> None:
        """Listener for the store's mirror: update the Endpoints when a server of the component has
        left, or this one has come back. Lease renewals change nothing."""
        if key.startswith(SERVERS_PREFIX):
            member_addresses = frozenset(self._member_addresses())
            if member_addresses != self._known:
                self._known = member_addresses
                self._changed.set()

    async def enter(self) -> None:
        """Register this server; retries until that succeeds."""
        failures = 0
        while not await self._try_step():
            seconds = BACKOFF.delay_seconds(failures, self._runtime.randomness)
            await self._runtime.clock.sleep(seconds)
            failures += 1

    async def run(self) -> None:
        """Maintain the registration, forever."""
        clock, failures = self._runtime.clock, 0
        while True:
            seconds = RESYNC_SECONDS
            if failures:
                seconds = BACKOFF.delay_seconds(failures, self._runtime.randomness)
            try:
                async with clock.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await clock.sleep(PAUSE_SECONDS)  # handles several changes in one step
            failures = 0 if await self._try_step() else failures + 1

    async def leave(self) -> None:
        """Remove this server's address, so that no more requests are forwarded to it."""
        self._is_leaving = True
        try:
            async with self._runtime.clock.timeout(LEAVE_SECONDS_MAX):
                await self._keep_endpoints()
        except (StatusError, ClientError, NotOurs, TimeoutError) as error:
            # The remaining servers of the component remove it later.
            logger.warning("cannot remove the address of this server from its Endpoints: %s", error)

    async def _try_step(self) -> bool:
        try:
            await self._keep_service()
            await self._keep_endpoints()
            for index, group_version in enumerate(self._identity.group_versions):
                await self._keep_api_service(group_version, index)
        except (StatusError, ClientError, NotOurs) as error:
            if self.trouble != str(error):
                self.trouble = str(error)
                logger.warning(
                    "cannot register this server at the main servers: %s; retrying", error
                )
            return False
        self.trouble = None
        return True

    async def _keep_service(self) -> None:
        identity = self._identity
        try:
            await self._client.get(SERVICES, identity.service, namespace=identity.namespace)
        except NotFound:
            try:
                await self._client.create(SERVICES, _service(identity))
            except AlreadyExists:
                return  # another server of this component has created it

    async def _keep_endpoints(self) -> None:
        """Add this server's address, and remove addresses of servers that have left."""
        identity = self._identity
        for _ in range(ATTEMPTS_MAX):
            try:
                found = await self._client.get(
                    ENDPOINTS, identity.service, namespace=identity.namespace
                )
            except NotFound:
                found = None
            try:
                if found is None:
                    if not self._is_leaving:
                        await self._client.create(ENDPOINTS, self._endpoints({self._own}))
                    return
                before = _addresses_of(found)
                after = before & {*self._member_addresses(), self._own}
                after = after - {self._own} if self._is_leaving else after | {self._own}
                if after != before:
                    await self._client.update(
                        ENDPOINTS, {**found, "subsets": self._endpoints(after)["subsets"]}
                    )
            except (AlreadyExists, Conflict, NotFound):
                continue  # other servers of this component write the same object
            return
        raise NotOurs(
            f"too many conflicts on the endpoints {identity.namespace}/{identity.service}"
        )

    async def _keep_api_service(self, group_version: GroupVersion, index: int) -> None:
        wanted = _api_service(self._identity, group_version, index)
        name = wanted["metadata"]["name"]
        try:
            found = await self._client.get(API_SERVICES, name)
        except NotFound:
            try:
                await self._client.create(API_SERVICES, wanted)
            except AlreadyExists:
                self._changed.set()  # another server has created it: check its content
            return
        spec = found.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        self._check_ours(name, spec)
        # Keep the priorities: they may have been changed on purpose.
        kept = {"caBundle": wanted["spec"]["caBundle"], "insecureSkipTLSVerify": None}
        if spec.get("caBundle") == kept["caBundle"] and not spec.get("insecureSkipTLSVerify"):
            return
        try:
            await self._client.update(API_SERVICES, {**found, "spec": {**spec, **kept}})
        except (Conflict, NotFound):
            self._changed.set()

    def _check_ours(self, name: str, spec: dict[str, Any]) -> None:
        service = spec.get("service")
        if not isinstance(service, dict):
            raise NotOurs(
                f"the APIService {name} is served by the main servers themselves: remove the"
                " CustomResourceDefinitions of its group, or choose another group"
            )
        theirs = (service.get("namespace"), service.get("name"))
        if theirs != (self._identity.namespace, self._identity.service):
            raise NotOurs(
                f"the APIService {name} is served by {theirs[0]}/{theirs[1]}: delete it, or start"
                " with that --service-namespace and --service-name"
            )

    def _endpoints(self, addresses: Collection[EndpointAddress]) -> Object:
        subsets = [
            {
                "addresses": [{"ip": each.ip} for each in sorted(addresses) if each.port == port],
                "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
            }
            for port in sorted({each.port for each in addresses})
        ]
        metadata = _metadata(self._identity, self._identity.service)
        return {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": metadata,
            "subsets": subsets,
        }


def api_service_name(group_version: GroupVersion) -> str:
    return f"{group_version.version}.{group_version.group}"


def group_versions_of(groups: Mapping[str, Sequence[str]]) -> tuple[GroupVersion, ...]:
    """All group versions of a catalog's groups."""
    return tuple(
        GroupVersion(group, version) for group, versions in groups.items() for version in versions
    )


def _metadata(identity: Identity, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": identity.namespace,
        "labels": {COMPONENT_LABEL: identity.component},
    }


def _service(identity: Identity) -> Object:
    """A Service without a selector: the servers themselves maintain its endpoints."""
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(identity, identity.service),
        "spec": {"ports": [port]},
    }


def _api_service(identity: Identity, group_version: GroupVersion, index: int) -> Object:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": api_service_name(group_version),
            "labels": {COMPONENT_LABEL: identity.component},
        },
        "spec": {
            "group": group_version.group,
            "version": group_version.version,
            "groupPriorityMinimum": GROUP_PRIORITY_DEFAULT,
            "versionPriority": max(VERSION_PRIORITY_MAX - index, 1),
            "service": {
                "namespace": identity.namespace,
                "name": identity.service,
                "port": SERVICE_PORT,
            },
            "caBundle": base64.b64encode(identity.ca_pem).decode(),
        },
    }


def _addresses_of(endpoints: Object) -> set[EndpointAddress]:
    """The addresses in an Endpoints object of this component; entries of another form are left
    out, and so removed."""
    found: set[EndpointAddress] = set()
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            for each in subset.get("addresses") or ():
                ip, number = each.get("ip"), port.get("port")
                if port.get("name") == PORT_NAME and isinstance(ip, str):
                    found.add(EndpointAddress(ip, int(number)))
    return found
