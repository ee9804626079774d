"""Installing the CRDs of migration.k8s.io: created or updated in place, never deleted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.client import ApiClient, InProcessResponse, InProcessTransport
from restow.migration import crds
from restow.migration.installation import InstallFailed, InstallOutcome, install, missing_kinds
from tests.unit.migration.running_process import running_server

STATES = "storagestates.migration.k8s.io"
MIGRATIONS = "storageversionmigrations.migration.k8s.io"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMES = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class Kubernetes:
    """A fake API server for an installation: CRDs, and discovery derived from them."""

    def __init__(self, *, has_definitions: bool = True) -> None:
        self.definitions: dict[str, dict[str, Any]] = {}
        self.has_definitions = has_definitions
        self.built_in: set[str] = set()
        self.is_slow = 0
        """The number of reads of a CRD before it is established."""
        self.writes: list[str] = []
        self.before_write: list[Callable[[], object]] = []
        self.version = 1

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        try:
            return self._answer(method, target, orjson.loads(body) if body else None)
        except status.StatusError as error:
            return InProcessResponse(error.code, error.to_bytes())

    def _answer(self, method: str, target: str, body: Any) -> InProcessResponse:
        path, _, query = target.partition("?")
        if path == "/apis/apiextensions.k8s.io/v1" and self.has_definitions:
            return _resources("customresourcedefinitions")
        if path == "/apis/migration.k8s.io/v1alpha1":
            served = self.built_in | {
                each["spec"]["names"]["plural"]
                for each in self.definitions.values()
                if self._is_established(each)
            }
            if served:
                return _resources(*served)
        if not path.startswith(_CRDS) or not self.has_definitions:
            raise status.resource_not_found()
        name = path.removeprefix(_CRDS).strip("/")
        is_dry_run = "dryRun=All" in query
        if method == "GET":
            return InProcessResponse(200, orjson.dumps(self._found(name)))
        if self.before_write:
            self.before_write.pop(0)()
        self.writes.append(f"{method}{' dry run' if is_dry_run else ''}")
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.definitions:
                raise status.already_exists(_NAMES, name)
        elif (
            self._found(name)["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]
        ):
            raise status.conflict(_NAMES, name)
        return InProcessResponse(200, orjson.dumps(body if is_dry_run else self.store(body)))

    def store(self, value: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = copy.deepcopy(value)
        stored["metadata"]["resourceVersion"] = str(self.version)
        stored["spec"].setdefault("conversion", {"strategy": "None"})
        stored.setdefault("status", {})["conditions"] = [
            {"type": "Established", "status": "True"},
            {"type": "NamesAccepted", "status": "True"},
        ]
        self.definitions[stored["metadata"]["name"]] = stored
        return stored

    def _found(self, name: str) -> dict[str, Any]:
        if name not in self.definitions:
            raise status.not_found(_NAMES, name)
        if self.is_slow and "status" in self.definitions[name]:
            self.is_slow -= 1
            return self.definitions[name] | {"status": {}}
        return self.definitions[name]

    def _is_established(self, definition: dict[str, Any]) -> bool:
        return not self.is_slow and "status" in definition

    def client(self, clock: SimulatedClock | None = None) -> ApiClient:
        runtime = Runtime.simulated("install", clock=clock or SimulatedClock())
        return ApiClient(InProcessTransport(self.handle), runtime=runtime)


def _resources(*names: str) -> InProcessResponse:
    entries = [{"name": each, "kind": "Any", "namespaced": False, "verbs": []} for each in names]
    return InProcessResponse(200, orjson.dumps({"kind": "APIResourceList", "resources": entries}))


def original(plural: str) -> dict[str, Any]:
    """Returns a CRD as in kube-storage-version-migrator: the same names, fewer fields."""
    definition = crds.definition_of(plural)
    definition["metadata"]["labels"] = {"team": "theirs"}
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, test only"}
    definition["spec"]["preserveUnknownFields"] = False
    version = definition["spec"]["versions"][0]
    del version["additionalPrinterColumns"]
    version["schema"]["openAPIV3Schema"] = {"type": "object"}
    return definition


def outcomes(done: list[Any]) -> dict[str, InstallOutcome]:
    return {each.name: each.outcome for each in done}


async def test_both_kinds_are_created_once() -> None:
    """Both CRDs are created on an empty server; a second installation changes nothing."""
    server = Kubernetes()
    client = server.client()
    assert await missing_kinds(client) == [STATES, MIGRATIONS]
    assert outcomes(await install(client)) == {
        STATES: InstallOutcome.CREATED,
        MIGRATIONS: InstallOutcome.CREATED,
    }
    assert await missing_kinds(client) == []
    server.writes.clear()
    assert set(outcomes(await install(client)).values()) == {InstallOutcome.UNCHANGED}
    assert server.writes == []


async def test_an_original_definition_is_upgraded_in_place() -> None:
    """Fields and columns are added; labels and annotations of others are kept; nothing is
    deleted."""
    server = Kubernetes()
    for plural in crds.DEFINITIONS:
        server.store(original(plural))
    assert set(outcomes(await install(server.client())).values()) == {InstallOutcome.UPDATED}
    assert set(server.writes) == {"PUT"}
    stored = server.definitions[STATES]
    assert stored["metadata"]["labels"] == {"team": "theirs"}
    assert stored["metadata"]["annotations"]["api-approved.kubernetes.io"].startswith("unapproved")
    version = stored["spec"]["versions"][0]
    status_fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert "currentStorageVersionHashes" in status_fields
    assert version["additionalPrinterColumns"]


def test_a_newer_version_remains_the_storage_version() -> None:
    """If the CRD has a newer storage version, our version is updated but does not become the
    storage version."""
    existing = original("storagestates")
    newer = copy.deepcopy(existing["spec"]["versions"][0]) | {"name": "v1beta1"}
    existing["spec"]["versions"][0]["storage"] = False
    existing["spec"]["versions"].append(newer)
    result = crds.upgraded(existing, "storagestates")
    stored = {each["name"]: each["storage"] for each in result["spec"]["versions"]}
    assert stored == {"v1alpha1": False, "v1beta1": True}
    assert result["spec"]["versions"][1] == newer
    assert crds.upgraded(result, "storagestates") == result


async def test_a_dry_run_changes_nothing() -> None:
    """The server validates the CRDs in a dry run, and nothing is stored."""
    server = Kubernetes()
    done = await install(server.client(), is_dry_run=True)
    assert set(outcomes(done).values()) == {InstallOutcome.CREATED}
    assert set(server.writes) == {"POST dry run"}
    assert server.definitions == {}


async def test_concurrent_installers_do_not_conflict() -> None:
    """An installer that loses a race, at a create or an update, reads the CRD again and
    continues."""
    server = Kubernetes()
    server.before_write = [lambda: server.store(crds.definition_of("storagestates"))]
    assert outcomes(await install(server.client()))[STATES] is InstallOutcome.UNCHANGED
    server.store(original("storagestates") | {"status": {}})
    server.before_write = [lambda: server.store(original("storagestates"))]
    assert outcomes(await install(server.client()))[STATES] is InstallOutcome.UPDATED


async def test_it_waits_until_the_kinds_are_served() -> None:
    """The installation is complete when a CRD is established and in discovery, not when it is
    stored."""
    server, clock = Kubernetes(), SimulatedClock()
    server.is_slow = 5
    done = await clock.run_until_done(install(server.client(clock)))
    assert server.is_slow == 0
    assert set(outcomes(done).values()) == {InstallOutcome.CREATED}


async def test_a_definition_that_is_never_established_is_reported() -> None:
    """The installation fails after a timeout and reports the server's status of the CRD."""
    server, clock = Kubernetes(), SimulatedClock()
    server.is_slow = 10**9
    with pytest.raises(
        InstallFailed, match="not served after 30 s: the server has not established"
    ):
        await clock.run_until_done(install(server.client(clock)))


async def test_an_incompatible_definition_is_left_alone() -> None:
    """A namespaced CRD of the same name, or one that is being deleted, is rejected with its
    reason."""
    server = Kubernetes()
    incompatible = original("storagestates")
    incompatible["spec"]["scope"] = "Namespaced"
    server.store(incompatible)
    with pytest.raises(InstallFailed, match="scope Namespaced"):
        await install(server.client())
    terminating = original("storagestates")
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    server.store(terminating)
    with pytest.raises(InstallFailed, match="being deleted"):
        await install(server.client())


async def test_a_server_without_custom_resources() -> None:
    """Kinds that are served without a CRD are built in; otherwise the error names the missing
    API."""
    server = Kubernetes(has_definitions=False)
    with pytest.raises(InstallFailed, match="custom resources need"):
        await install(server.client())
    server.built_in = set(crds.DEFINITIONS)
    assert set(outcomes(await install(server.client())).values()) == {InstallOutcome.BUILT_IN}


async def test_a_restow_server_has_them_built_in(tmp_path: Path) -> None:
    """Nothing is written to a restow server, because it has the kinds built in."""
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
    ):
        assert await missing_kinds(client) == []
        assert set(outcomes(await install(client)).values()) == {InstallOutcome.BUILT_IN}


@pytest.mark.parametrize("plural", crds.DEFINITIONS)
def test_definitions_are_structural(plural: str) -> None:
    """Each node of a schema has a type, and each column and rule is complete."""
    version = crds.DEFINITIONS[plural]["spec"]["versions"][0]

    def check(schema: dict[str, Any]) -> None:
        assert schema["type"] in {"object", "array", "string", "integer", "number"}
        for each in schema.get("properties", {}).values():
            check(each)
        if schema["type"] == "array":
            check(schema["items"])
        for name in schema.get("required", []):
            assert name in schema["properties"]
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule["rule"]
            assert rule["message"]

    check(version["schema"]["openAPIV3Schema"])
    assert all(
        {"name", "type", "jsonPath"} <= set(each) for each in version["additionalPrinterColumns"]
    )
    assert version["subresources"] == {"status": {}}
    assert "preserveUnknownFields" not in crds.DEFINITIONS[plural]["spec"]
