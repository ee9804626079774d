"""Stored APIServices, decoded for the controllers that use them, and the writer of `Available`.

Not here: validation of APIServices (`restow.kinds`), the controller of the local ones
(`api_services`), and connections to other servers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from restow.aio import Clock
from restow.apimachinery import status
from restow.controllers.crd_conditions import set_conditions
from restow.controllers.object_keys import working_version
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.strategy import timestamp

GROUP: Final = "apiregistration.k8s.io"
KIND: Final = "APIService"
AVAILABLE: Final = "Available"
HTTPS_PORT: Final = 443
MESSAGE_LENGTH_MAX: Final = 1_024
"""Responses of other servers may be long."""


class ApiServiceReference(msgspec.Struct, frozen=True):
    """The service of the aggregated servers."""

    namespace: str = ""
    name: str = ""
    port: int | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of an APIService."""

    group: str = ""
    version: str = ""
    service: ApiServiceReference | None = None
    ca_bundle: str | None = None
    """CA certificates: PEM, encoded in base64."""
    skips_verification: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)
    group_priority_minimum: int = 0
    version_priority: int = 0


class ApiServiceCondition(msgspec.Struct, frozen=True):
    """A condition, with the fields that are compared."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[ApiServiceCondition] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None


class ApiService(msgspec.Struct, frozen=True):
    """An APIService, with the fields that are used."""

    metadata: _Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: _Status | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def is_local(self) -> bool:
        """Whether the group version is served by this cluster's own servers."""
        return self.spec.service is None

    def says(self, finding: ApiServiceAvailability) -> bool:
        """Whether the condition in the status is equal to this one."""
        conditions = (self.status and self.status.conditions) or ()
        current = next((each for each in conditions if each.type == AVAILABLE), None)
        wanted = (finding.status, finding.reason, finding.message[:MESSAGE_LENGTH_MAX])
        return current is not None and (current.status, current.reason, current.message) == wanted


class ApiServiceAvailability(NamedTuple):
    """Result of an availability check, in the form of the condition `Available`."""

    status: str
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        return self.status == "True"


LOCAL: Final = ApiServiceAvailability("True", "Local", "Local APIServices are always available")
PASSED: Final = ApiServiceAvailability("True", "Passed", "all checks passed")

_decode: Final = msgspec.json.Decoder(ApiService).decode


def read_api_service(value: bytes) -> ApiService | None:
    """Decode a stored APIService; None if the value is something else."""
    try:
        return _decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


async def write_finding(
    store: ResourceStore,
    resource: Resource,
    found: ApiService,
    finding: ApiServiceAvailability,
    clock: Clock,
) -> None:
    """Write the condition `Available`, unless it is set already or the APIService was deleted."""
    finding = finding._replace(message=finding.message[:MESSAGE_LENGTH_MAX])
    if found.says(finding):
        return
    wanted: dict[str, Any] = {"type": AVAILABLE, **finding._asdict()}

    def change(obj: Object) -> Object:
        if obj["metadata"].get("uid") == found.uid:
            state = obj.get("status") or {}
            now = timestamp(clock.wall())
            state["conditions"] = set_conditions(state.get("conditions") or [], [wanted], now=now)
            obj["status"] = state
        return obj

    try:
        await store.update(
            resource,
            working_version(resource),
            found.name,
            change,
            subresource="status",
            is_patch=True,
        )
    except status.NotFound:
        return
