"""How an aggregated server makes itself known: Service, Endpoints and APIServices at the main.

All servers of one component share them. Each keeps its own address in the Endpoints, and takes it
out when it stops. The address of one that has died is taken out by those that live, once it is no
member any more. The APIServices stay when the last server is gone: what they say is still true,
and whoever asks hears that nobody answers.

What is there already is respected: an APIService that names somebody else is not taken over. Not
here: who is a member (`restow.storageversion`).
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
LOOK_SECONDS: Final = 30.0
"""Between looks at what is there, if nothing is heard."""
PAUSE_SECONDS: Final = 0.1
ATTEMPTS_MAX: Final = 10
LEAVE_SECONDS_MAX: Final = 3.0
BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=10, jitter=0.3)

logger = logging.getLogger(__name__)


class NotOurs(Exception):
    """Something is there already that belongs to somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the main servers are told of the servers of one component."""

    component: str
    namespace: str
    service: str
    ca_pem: bytes
    """What signs their certificates."""
    group_versions: tuple[GroupVersion, ...]
    """What they serve; of each group the preferred version first."""


class SelfRegistration:
    """Keeps one server known."""

    def __init__(
        self,
        client: ApiClient,
        runtime: Runtime,
        identity: Identity,
        *,
        own: EndpointAddress,
        living: Callable[[], Collection[EndpointAddress]],
    ) -> None:
        """`living` tells the addresses of all servers of the component that are members."""
        self._client = client
        self._runtime = runtime
        self._identity = identity
        self._own = own
        self._living = living
        self._known: frozenset[EndpointAddress] = frozenset()
        """Of the living, as was last heard."""
        self._changed = asyncio.Event()
        self._is_leaving = False
        self.trouble: str | None = None
        """Why it is not known as it should be; None when it is."""

    def server_changed(self, key: Key, _item: Item | None) -> None:
        """For the mirror of the store: when a server has gone, its address goes too; when this one
        has come back after all, its own is needed again. Renewals change nothing."""
        if key.startswith(SERVERS_PREFIX):
            living = frozenset(self._living())
            if living != self._known:
                self._known = living
                self._changed.set()

    async def enter(self) -> None:
        """Make this server known; tries until that is done."""
        failures = 0
        while not await self._try_step():
            seconds = BACKOFF.delay_seconds(failures, self._runtime.randomness)
            await self._runtime.clock.sleep(seconds)
            failures += 1

    async def run(self) -> None:
        """Keep it known, for ever."""
        clock, failures = self._runtime.clock, 0
        while True:
            seconds = LOOK_SECONDS
            if failures:
                seconds = BACKOFF.delay_seconds(failures, self._runtime.randomness)
            try:
                async with clock.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await clock.sleep(PAUSE_SECONDS)  # so that several changes are seen together
            failures = 0 if await self._try_step() else failures + 1

    async def leave(self) -> None:
        """Take the own address out, so that nobody is sent here any more."""
        self._is_leaving = True
        try:
            async with self._runtime.clock.timeout(LEAVE_SECONDS_MAX):
                await self._keep_endpoints()
        except (StatusError, ClientError, NotOurs, TimeoutError) as error:
            # Those that go on will find out by themselves.
            logger.warning("the address of this server could not be taken out: %s", error)

    async def _try_step(self) -> bool:
        try:
            await self._keep_service()
            await self._keep_endpoints()
            for index, group_version in enumerate(self._identity.group_versions):
                await self._keep_api_service(group_version, index)
        except (StatusError, ClientError, NotOurs) as error:
            if self.trouble != str(error):
                self.trouble = str(error)
                logger.warning("this server is not known to the main servers: %s", error)
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
                return  # another server of this component was faster

    async def _keep_endpoints(self) -> None:
        """Put the own address there, and take out those that are nobody's any more."""
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
                after = before & {*self._living(), self._own}
                after = after - {self._own} if self._is_leaving else after | {self._own}
                if after != before:
                    await self._client.update(
                        ENDPOINTS, {**found, "subsets": self._endpoints(after)["subsets"]}
                    )
            except (AlreadyExists, Conflict, NotFound):
                continue  # others of this component do the same
            return
        raise NotOurs(f"the endpoints {identity.namespace}/{identity.service} change all the time")

    async def _keep_api_service(self, group_version: GroupVersion, index: int) -> None:
        wanted = _api_service(self._identity, group_version, index)
        name = wanted["metadata"]["name"]
        try:
            found = await self._client.get(API_SERVICES, name)
        except NotFound:
            try:
                await self._client.create(API_SERVICES, wanted)
            except AlreadyExists:
                self._changed.set()  # another server was faster: see what it has made
            return
        spec = found.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        self._check_ours(name, spec)
        # Priorities are left as they are: whoever has changed them had a reason.
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
                f"the APIService {name} says that the main servers serve it themselves: remove the"
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
    """All group versions of a catalogue's groups."""
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
    """Without a selector: its endpoints are kept by the servers themselves."""
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
    """What is said in endpoints of ours; what is said otherwise is left out, and so removed."""
    found: set[EndpointAddress] = set()
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            for each in subset.get("addresses") or ():
                ip, number = each.get("ip"), port.get("port")
                if port.get("name") == PORT_NAME and isinstance(ip, str):
                    found.add(EndpointAddress(ip, int(number)))
    return found
