"""The manifests in deploy/: a server accepts them, and they grant exactly the permissions in use.

The controllers run against a real server in this process, over connections that record every call.
Roles are read from the files and compared with the calls, and with the table in the code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import restow
from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.client import ApiClient, ClientConfig
from restow.migration.crds import DEFINITIONS
from restow.migration.events import EventRecorder
from restow.migration.led_controller import Part
from restow.migration.metrics import ControllerMetrics
from restow.migration.migration_objects import MIGRATION_APIS, phase_of
from restow.migration.migration_values import MigrationPhase
from restow.migration.parts import PartOptions, make_parts
from restow.migration.process import ControllersProcess, ProcessOptions
from restow.migration.rights import ANY, OWN, RIGHTS
from tests.unit.migration.running_process import (
    Call,
    Recording,
    recording_client,
    running_server,
    until,
)

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
NAMESPACE = "restow-system"
ACCOUNT = "restow-controllers"
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
STATES = GroupVersionResource("migration.k8s.io", "v1alpha1", "storagestates")


def documents(name: str = "*.yaml") -> list[dict[str, Any]]:
    return [
        each
        for path in sorted((DEPLOY / "kubernetes").glob(name))
        for each in yaml.safe_load_all(path.read_text())
    ]


@dataclass(frozen=True)
class Grant:
    """One verb on one resource, in one scope."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str = ""

    def allows(self, call: Call) -> bool:
        return (
            self.group in {call.group, ANY}
            and self.resource in {call.resource, ANY}
            and self.verb == call.verb
            and self.namespace in {"", call.namespace}
            and self.name in {"", call.name}
        )


def granted(*, with_everything: bool) -> set[Grant]:
    """Returns the permissions of the controllers' account in the files."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in documents("rbac.yaml")
    }
    found: set[Grant] = set()
    for (kind, namespace, _), binding in roles.items():
        if not kind.endswith("Binding"):
            continue
        [subject] = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (ACCOUNT, NAMESPACE)
        role = roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]
        found |= set(_grants(role, namespace))
        if with_everything and "aggregationRule" in role:
            for part in _aggregated(role, list(roles.values())):
                found |= set(_grants(part, namespace))
    return found


def _aggregated(role: dict[str, Any], all_roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    [selector] = role["aggregationRule"]["clusterRoleSelectors"]
    wanted = selector["matchLabels"].items()
    return [each for each in all_roles if wanted <= each["metadata"].get("labels", {}).items()]


def _grants(role: dict[str, Any], namespace: str) -> Iterator[Grant]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Grant(group, resource, verb, namespace, name)


def refused(calls: set[Call], grants: set[Grant]) -> list[Call]:
    """Returns the calls that no rule allows; self-reviews are allowed to all users."""
    return [
        call
        for call in calls
        if call.group != "authorization.k8s.io" and not any(each.allows(call) for each in grants)
    ]


def test_the_roles_match_the_table() -> None:
    """The files grant each permission in the code's table, and no other."""
    wanted = {
        Grant(
            right.group,
            right.resource,
            verb,
            NAMESPACE if right.namespace == OWN else right.namespace,
            name,
        )
        for right in RIGHTS
        if right.who != "install"
        for verb in right.verbs
        for name in right.names or ("",)
    }
    assert granted(with_everything=True) == wanted


@dataclass
class Run:
    """A process of controllers, and its calls."""

    process: ControllersProcess
    admin: ApiClient
    control: Recording
    bulk: Recording


@asynccontextmanager
async def run_of(config: ClientConfig, options: PartOptions, **more: Any) -> AsyncIterator[Run]:
    client, control = recording_client(config)
    work, bulk = recording_client(config, **more)

    def connect_to(_address: str) -> ApiClient:
        return recording_client(config)[0]

    def make(recorder: EventRecorder, metrics: ControllerMetrics) -> list[Part]:
        return make_parts(
            options,
            client=client,
            bulk=work,
            connect_to=connect_to,
            recorder=recorder,
            metrics=metrics,
        )

    async with client, work, ApiClient.connect(config, runtime=Runtime.system()) as admin:
        for manifest in documents("namespace.yaml"):
            await admin.create(GroupVersionResource("", "v1", "namespaces"), manifest)
        process = ControllersProcess(
            client, ProcessOptions(namespace=NAMESPACE, port=0, identity="test"), make
        )
        try:
            await process.start()
            yield Run(process, admin, control, bulk)
        finally:
            await process.stop()


async def ask_for(admin: ApiClient, resource: GroupVersionResource) -> None:
    body = {
        "apiVersion": str(MIGRATION_APIS[0].group_version),
        "kind": "StorageVersionMigration",
        "metadata": {"name": f"{resource.resource}-by-hand"},
        "spec": {"resource": resource._asdict()},
    }
    await admin.create(MIGRATION_APIS[0], body)


async def fill(admin: ApiClient) -> None:
    for number in range(3):
        name = f"c{number}"
        await admin.create(
            CONFIG_MAPS,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}},
            namespace="default",
        )


@pytest.mark.parametrize("has_rewrite", [True, False])
async def test_calls_of_the_migrator_are_allowed(tmp_path: Path, has_rewrite: bool) -> None:
    """With its role narrowed to one resource, all calls of a migration of it are allowed."""
    options = PartOptions(names=("migrator",))
    async with (
        running_server(tmp_path) as config,
        run_of(config, options, has_rewrite=has_rewrite) as run,
    ):
        await fill(run.admin)
        await ask_for(run.admin, CONFIG_MAPS)

        async def is_done() -> bool:
            found = await run.admin.get(MIGRATION_APIS[0], "configmaps-by-hand")
            return phase_of(found) is MigrationPhase.SUCCEEDED

        await until(is_done)
    grants = granted(with_everything=False)
    assert refused(run.control.calls, grants) == []
    narrow = {Grant("", "configmaps", verb, "") for verb in ("get", "list", "patch", "update")}
    assert refused(run.bulk.calls, grants | narrow) == []
    made = {(call.verb, call.resource) for call in run.bulk.calls}
    assert (("create", "storageversionmigrations/rewrite") in made) is has_rewrite
    assert (("patch", "configmaps") in made) is not has_rewrite


async def test_calls_of_the_trigger_are_allowed(tmp_path: Path) -> None:
    """All calls of the trigger are allowed without write permission on the migrated resources."""
    options = PartOptions(names=("trigger",))
    async with running_server(tmp_path) as config, run_of(config, options) as run:

        async def is_asked() -> bool:
            page = await run.admin.list_page(MIGRATION_APIS[0])
            return any(each["spec"]["resource"]["resource"] == "pods" for each in page.items)

        await until(is_asked)
        # A deleted state is created again.
        await run.admin.delete(STATES, "pods")

        async def is_back() -> bool:
            page = await run.admin.list_page(STATES)
            return any(each["metadata"]["name"] == "pods" for each in page.items)

        await until(is_back)
        await run.process.recorder.settle()
    assert refused(run.control.calls, granted(with_everything=False)) == []
    made = {(call.verb, call.resource) for call in run.control.calls}
    assert {
        ("create", "storagestates"),
        ("update", "storagestates/status"),
        ("create", "storageversionmigrations"),
        ("create", "events"),
        ("update", "leases"),
        ("watch", "storageversions"),
    } <= made
    assert run.bulk.calls == set()


async def test_a_server_accepts_the_manifests(tmp_path: Path) -> None:
    """Every document has a kind that restow serves, and can be created unchanged."""
    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
    ):
        found = {
            (f"{each.group}/{each.version}" if each.group else each.version, each.kind): each
            for each in (await client.discover()).resources
        }
        for manifest in [*documents("namespace.yaml"), *documents("[!n]*.yaml")]:
            if manifest["kind"] == "Kustomization":
                continue
            resource = found[manifest["apiVersion"], manifest["kind"]]
            if manifest["kind"] == "CustomResourceDefinition":
                continue  # these kinds are built in
            namespace = manifest["metadata"].get("namespace", "")
            assert bool(namespace) is resource.is_namespaced
            made = await client.create(resource.resource, manifest, namespace=namespace)
            assert made["metadata"]["name"] == manifest["metadata"]["name"]


def test_the_crds_match_the_code() -> None:
    """`kubectl apply -k` and `--install` create the same CRDs."""
    assert documents("crds.yaml") == list(DEFINITIONS.values())


def test_everything_is_in_the_kustomization() -> None:
    """One command applies all files, the namespace first."""
    [kustomization] = documents("kustomization.yaml")
    names = [path.name for path in MANIFESTS if path.name != "kustomization.yaml"]
    assert sorted(kustomization["resources"]) == names
    assert kustomization["resources"][0] == "namespace.yaml"


def test_the_deployment_is_restricted() -> None:
    """Two replicas that are never drained together, without privileges, with probes and limits."""
    deployment, budget = documents("deployment.yaml")
    template = deployment["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["maxUnavailable"] == 1
    selectors = [each["spec"]["selector"]["matchLabels"] for each in (deployment, budget)]
    assert all(each.items() <= template["metadata"]["labels"].items() for each in selectors)
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert template["spec"]["serviceAccountName"] == ACCOUNT
    assert container["image"] == f"restow:{restow.__version__}"
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert f"restow:{restow.__version__} " in dockerfile
    user = template["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:" in dockerfile


def test_the_arguments_of_the_deployment_are_valid() -> None:
    """The command line parses the arguments in the manifests and the unit."""
    import argparse

    from restow.cli import controllers

    parser = argparse.ArgumentParser()
    controllers.add_arguments(parser)
    deployment = documents("deployment.yaml")[0]
    words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[0] == "controllers"
    assert parser.parse_args(words[1:]).bind == "0.0.0.0"
    unit = (DEPLOY / "systemd" / "restow-controllers.service").read_text()
    [line] = [each for each in unit.splitlines() if each.startswith("ExecStart=")]
    said = line.split("restow controllers ")[1].replace("$RESTOW_CONTROLLERS_OPTIONS", "").split()
    assert str(parser.parse_args(said).kubeconfig) == "%d/kubeconfig"
