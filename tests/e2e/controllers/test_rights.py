"""The controllers against a server with RBAC, with the permissions of the manifests in deploy/.

The manifests are created unchanged. The controllers authenticate as their service account, with a
token requested as by `kubectl create token`; the audit log has all their requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.apiserver.audit_options import AuditOptions
from restow.client import ApiClient, ClientConfig
from restow.migration.events import EventRecorder
from restow.migration.led_controller import Part
from restow.migration.metrics import ControllerMetrics
from restow.migration.migration_objects import MIGRATION_APIS, phase_of
from restow.migration.migration_values import MigrationPhase
from restow.migration.parts import PartOptions, make_parts
from restow.migration.process import ControllersProcess, ProcessOptions
from restow.migration.rights import missing_rights, rights_of
from tests.e2e.controllers.test_manifests import (
    ACCOUNT,
    CONFIG_MAPS,
    NAMESPACE,
    STATES,
    documents,
    fill,
)
from tests.unit.migration.running_process import running_server, until, with_token

PARTS = ("trigger", "migrator")
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
CALLS_MIN = 50
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS = GroupVersionResource("", "v1", "secrets")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


def audit_to(directory: Path) -> AuditOptions:
    """Returns a policy that logs every request."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
    path = directory / "policy.yaml"
    path.write_bytes(orjson.dumps(policy))
    return AuditOptions(path=str(directory / "audit.log"), policy_file=path, mode="blocking")


async def token_of(admin: ApiClient) -> str:
    """Returns a token of the account, for an hour."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    made = await admin.create(
        ACCOUNTS, body, namespace=NAMESPACE, name=ACCOUNT, subresource="token"
    )
    return str(made["status"]["token"])


def refusals(directory: Path) -> list[tuple[str, str, str]]:
    """Returns the refused requests of the account in the log: verb, path and name."""
    events = [orjson.loads(line) for line in (directory / "audit.log").read_bytes().splitlines()]
    mine = [each for each in events if each["user"].get("username") == USER]
    assert len(mine) > CALLS_MIN
    return [
        (each["verb"], each["objectRef"]["resource"], each["objectRef"]["name"])
        for each in mine
        if each["responseStatus"]["code"] in (401, 403)
    ]


async def install(admin: ApiClient) -> None:
    """Creates the namespace, the account, the roles and the bindings of the manifests."""
    resources = (await admin.discover()).resources
    found = {(each.group, each.version, each.kind): each for each in resources}
    for manifest in [*documents("namespace.yaml"), *documents("rbac.yaml")]:
        group, _, version = manifest["apiVersion"].rpartition("/")
        resource = found[group, version, manifest["kind"]].resource
        namespace = manifest["metadata"].get("namespace", "")
        await admin.create(resource, manifest, namespace=namespace)

    async def is_gathered() -> bool:
        role = await admin.get(ROLES, "restow-migrator-resources")
        return bool(role.get("rules"))

    await until(is_gathered)


@asynccontextmanager
async def running(config: ClientConfig) -> AsyncIterator[ControllersProcess]:
    """Runs all controllers, as the user in the configuration."""
    runtime = Runtime.system()

    def connect_to(_address: str) -> ApiClient:
        return ApiClient.connect(config, runtime=runtime)

    async with (
        ApiClient.connect(config, runtime=runtime) as client,
        ApiClient.connect(config, runtime=runtime) as bulk,
    ):

        def make(recorder: EventRecorder, metrics: ControllerMetrics) -> list[Part]:
            return make_parts(
                PartOptions(names=PARTS),
                client=client,
                bulk=bulk,
                connect_to=connect_to,
                recorder=recorder,
                metrics=metrics,
            )

        options = ProcessOptions(namespace=NAMESPACE, port=0, identity="test")
        process = ControllersProcess(client, options, make)
        try:
            await process.start()
            yield process
        finally:
            await process.stop()


async def test_the_permissions_of_the_manifests_suffice(tmp_path: Path) -> None:
    """With exactly these permissions states are maintained and a migration succeeds."""
    async with running_server(tmp_path, audit=audit_to(tmp_path)) as config:
        runtime = Runtime.system()
        async with ApiClient.connect(config, runtime=runtime) as admin:
            await install(admin)
            await fill(admin)
            mine = with_token(config, await token_of(admin))
            async with ApiClient.connect(mine, runtime=runtime) as account:
                await migrates(admin, account, mine)
    # Only the requests that were expected to be refused.
    assert refusals(tmp_path) == [("delete", "secrets", "x"), ("delete", "clusterroles", "x")]


async def migrates(admin: ApiClient, account: ApiClient, mine: ClientConfig) -> None:
    """Runs the controllers as the account until a migration has succeeded."""

    async def has_all() -> bool:
        rights = rights_of(PARTS, is_elected=True)
        return not await missing_rights(account, rights, namespace=NAMESPACE, served=frozenset())

    await until(has_all)
    async with running(mine):

        async def is_migrated() -> bool:
            page = await admin.list_page(MIGRATION_APIS[0])
            return any(
                each["spec"]["resource"]["resource"] == CONFIG_MAPS.resource
                and phase_of(each) is MigrationPhase.SUCCEEDED
                for each in page.items
            )

        await until(is_migrated)
        state = await admin.get(STATES, "configmaps")
        assert state["status"]["currentStorageVersionHash"]
    with pytest.raises(status.Forbidden, match="cannot delete resource"):
        await account.delete(SECRETS, "x", namespace="default")
    with pytest.raises(status.Forbidden, match="cannot delete resource"):
        await account.delete(ROLES, "x")
