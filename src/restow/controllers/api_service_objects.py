"""APIServices as they are stored: who serves a group in a version, and what is known of them.

Read here for those who act on them; and the one way to write the condition `Available`. Not here:
whether an APIService is right (`restow.kinds`), who keeps those of our own groups
(`api_services`), and how other servers are reached.
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
"""What others answer may be long."""


class ApiServiceReference(msgspec.Struct, frozen=True):
    """The service whose servers serve it."""

    namespace: str = ""
    name: str = ""
    port: int | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What is wanted."""

    group: str = ""
    version: str = ""
    service: ApiServiceReference | None = None
    ca_bundle: str | None = None
    """Certificates as PEM, in base64."""
    skips_verification: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)
    group_priority_minimum: int = 0
    version_priority: int = 0


class ApiServiceCondition(msgspec.Struct, frozen=True):
    """A condition, as far as it is compared."""

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
    """An APIService, as far as somebody acts on it."""

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
        """Whether whoever is asked serves it itself."""
        return self.spec.service is None

    def says(self, finding: ApiServiceAvailability) -> bool:
        """Whether its condition is as this one."""
        conditions = (self.status and self.status.conditions) or ()
        said = next((each for each in conditions if each.type == AVAILABLE), None)
        told = (finding.status, finding.reason, finding.message[:MESSAGE_LENGTH_MAX])
        return said is not None and (said.status, said.reason, said.message) == told


class ApiServiceAvailability(NamedTuple):
    """What a look at an APIService has shown, in the words of its condition."""

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
    """A stored APIService; None for what is no such thing."""
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
    """Let an APIService say what was found, unless it does already or is gone."""
    finding = finding._replace(message=finding.message[:MESSAGE_LENGTH_MAX])
    if found.says(finding):
        return
    told: dict[str, Any] = {"type": AVAILABLE, **finding._asdict()}

    def change(obj: Object) -> Object:
        if obj["metadata"].get("uid") == found.uid:
            state = obj.get("status") or {}
            now = timestamp(clock.wall())
            state["conditions"] = set_conditions(state.get("conditions") or [], [told], now=now)
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
