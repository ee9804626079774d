"""The controllers work against a server with roles, with what the manifests in deploy/ give.

They come as the service account of the manifests, which the server knows by a token of its own; the
manifests are created as they are in the files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from restow.client import ApiClient, ClientConfig
from restow.controllers.events import EventRecorder
from restow.controllers.leading import Part
from restow.controllers.metrics import ControllerMetrics
from restow.controllers.parts import PartOptions, make_parts
from restow.controllers.process import ControllersProcess, ProcessOptions
from restow.controllers.requests import REQUESTS, phase_of
from restow.controllers.rights import missing_rights, rights_of
from restow.controllers.trigger.values import Phase
from restow.machinery import status
from restow.machinery.names import GroupVersionResource
from restow.runtime import Runtime
from tests.e2e.controllers.test_manifests import (
    ACCOUNT,
    CONFIG_MAPS,
    NAMESPACE,
    STATES,
    documents,
    fill,
)
from tests.unit.controllers.running import running_server, until

PARTS = ("trigger", "migrator")
TOKEN = "token-of-the-account"
SECRETS = GroupVersionResource("", "v1", "secrets")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


def account_file(directory: Path) -> Path:
    groups = f"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}"
    path = directory / "tokens.csv"
    path.write_text(f'{TOKEN},system:serviceaccount:{NAMESPACE}:{ACCOUNT},u-1,"{groups}"\n')
    path.chmod(0o600)
    return path


async def install(admin: ApiClient) -> None:
    """Create the namespace, the account, the roles and the bindings of the manifests."""
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
    """All controllers, as whoever the configuration names."""
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


async def test_the_manifests_are_enough(tmp_path: Path) -> None:
    """With nothing but these rights states are kept and a migration succeeds; and they are no more
    than they say."""
    async with running_server(tmp_path, token_auth_file=account_file(tmp_path)) as config:
        mine = replace(config, token=TOKEN, client_cert_pem=None, client_key_pem=None)
        runtime = Runtime.system()
        async with (
            ApiClient.connect(config, runtime=runtime) as admin,
            ApiClient.connect(mine, runtime=runtime) as account,
        ):

            async def has_all() -> bool:
                rights = rights_of(PARTS, is_elected=True)
                return not await missing_rights(
                    account, rights, namespace=NAMESPACE, served=frozenset()
                )

            assert not await has_all()
            await install(admin)
            await fill(admin)

            await until(has_all)
            async with running(mine):

                async def is_migrated() -> bool:
                    page = await admin.list_page(REQUESTS[0])
                    return any(
                        each["spec"]["resource"]["resource"] == CONFIG_MAPS.resource
                        and phase_of(each) is Phase.SUCCEEDED
                        for each in page.items
                    )

                await until(is_migrated)
                state = await admin.get(STATES, "configmaps")
                assert state["status"]["currentStorageVersionHash"]
            with pytest.raises(status.Forbidden, match="cannot delete resource"):
                await account.delete(SECRETS, "x", namespace="default")
            with pytest.raises(status.Forbidden, match="cannot delete resource"):
                await account.delete(ROLES, "x")
