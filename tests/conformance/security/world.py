"""A server with all kinds and two custom ones, users with and without roles, and a barrier that can
be closed. In this process, over plain HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives.asymmetric import ec

from restow.aio import Runtime
from restow.apimachinery.jwt_keys import KeySet, SigningKey
from restow.apiserver.assembly import Assembly
from restow.apiserver.authentication import Authenticators
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import (
    AccessOptions,
    EndpointOptions,
    Foundation,
    Secrets,
    StorageAgreement,
)
from restow.apiserver.service_accounts import AccountRules
from restow.authentication import NOWHERE
from restow.authentication.service_accounts import AccountTrust
from restow.endpoints.barrier import NO_ERROR, WriteBarrier
from restow.endpoints.handlers.token_request import TokenLimits
from restow.httpserver import Limits, Listener
from restow.registry.catalog import Catalog, builtin_catalog
from restow.registry.resource import Resource
from restow.request.context import User
from restow.request.responses import error_body
from restow.storage.interface import Key, Put, Storage, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.mirror import Mirror
from restow.storageversion.remote_reports import RemoteReports
from tests.conformance.security.cells import MINE, OTHER, Right
from tests.support.api_client import ApiClient

CUSTOM: Final = "matrix.example.org"
RBAC: Final = "rbac.authorization.k8s.io"
RBAC_ROOT: Final = f"/apis/{RBAC}/v1"
MASTER: Final = "master"
USERS: Final = {
    name: User(name, (group, "system:authenticated"))
    for name, group in (
        (MASTER, "system:masters"),
        ("nobody-special", "people"),
        ("role-even", "people"),
        ("role-odd", "people"),
        ("cluster-even", "people"),
        ("cluster-odd", "people"),
        ("view", "people"),
        ("edit", "people"),
        ("admin", "people"),
    )
}
KEY: Final = SigningKey(ec.generate_private_key(ec.SECP256R1()))
ACCOUNTS: Final = AccountRules(
    trust=AccountTrust(
        signing=KEY,
        keys=KeySet([KEY.public]),
        issuers=("https://issuer.example",),
        audiences=("https://api",),
    ),
    limits=TokenLimits(),
)
# Repeatedly rejected connections are throttled, which these tests would trigger all the time.
LIMITS: Final = Limits(refusals_free=1_000_000)


@dataclass(slots=True)
class Reported:
    """A registration in which everything or nothing is registered. Satisfies `Registration`."""

    completed: bool = True

    def pending(self, _resource: Resource) -> str | None:
        return None if self.completed else NO_ERROR


@dataclass(slots=True)
class World:
    """One server, or two over one store, and their clients by user."""

    assembly: Assembly
    port: int
    reported: Reported
    catalog: Catalog
    clients: dict[str, ApiClient] = field(default_factory=dict)

    def client(self, user: str) -> ApiClient:
        """The client of a user; the empty name has no credential."""
        if user not in self.clients:
            self.clients[user] = ApiClient(self.port, token=user or None)
        return self.clients[user]

    async def create(self, path: str, obj: dict[str, Any]) -> None:
        made = await self.client(MASTER).post(path, obj)
        assert made.status == 201, made.body

    async def give(self, user: str, rights: Iterable[Right], *, namespace: str = "") -> None:
        """Grant exactly these permissions: in a namespace, or at cluster scope."""
        verbs: dict[tuple[str, str], list[str]] = {}
        for right in rights:
            verbs.setdefault((right.group, right.resource), []).append(right.verb)
        rules = [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(set(found))}
            for (group, resource), found in verbs.items()
        ]
        kind = "Role" if namespace else "ClusterRole"
        root = RBAC_ROOT + (f"/namespaces/{namespace}" if namespace else "")
        await self.create(f"{root}/{kind.lower()}s", {"metadata": {"name": user}, "rules": rules})
        await self.bind(user, kind, root)

    async def bind(self, user: str, kind: str = "ClusterRole", root: str = RBAC_ROOT) -> None:
        """Bind a user to the role of the same name; effective when this returns."""
        binding = {
            "metadata": {"name": f"{user}-is-bound"},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": user},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }
        await self.create(f"{root}/{kind.lower()}bindings", binding)
        assert self.assembly.rbac is not None
        await self.assembly.rbac.freshen()


def definition(plural: str, scope: str) -> dict[str, Any]:
    """A CRD with both subresources, as stored once its names are accepted."""
    names = {"plural": plural, "singular": plural[:-1], "kind": plural.title()[:-1]}
    names["listKind"] = f"{names['kind']}List"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"{plural}.{CUSTOM}", "uid": f"uid-{plural}"},
        "spec": {"group": CUSTOM, "names": names, "scope": scope, "versions": [version]},
        "status": {
            "acceptedNames": names,
            "storedVersions": ["v1"],
            "conditions": [
                {"type": "NamesAccepted", "status": "True"},
                {"type": "Established", "status": "True"},
            ],
        },
    }


@asynccontextmanager
async def _server(
    storage: Storage, runtime: Runtime, *, anonymous: bool = True
) -> AsyncIterator[World]:
    catalog, reported = builtin_catalog(), Reported()
    authenticators = Authenticators.plain(USERS, runtime)
    if not anonymous:
        authenticators.anonymous = NOWHERE
    assembly = await assemble(
        Foundation(storage=storage, catalog=catalog, runtime=runtime),
        AccessOptions(
            secrets=Secrets(tokens=USERS, continue_key=b"a key of the cluster"),
            authenticators=authenticators,
            accounts=ACCOUNTS,
        ),
        EndpointOptions(address="127.0.0.1:6443"),
        StorageAgreement(
            barrier=WriteBarrier(reported),
            reports=RemoteReports(storage, Mirror(storage, runtime, ()), runtime),
        ),
    )
    await assembly.custom.start()
    listener = await Listener.start(
        assembly.app,
        bind="127.0.0.1",
        port=0,
        runtime=runtime,
        limits=LIMITS,
        gate=assembly.app.gate,
        quick=assembly.app.quick,
        error_body=error_body,
    )
    world = World(assembly, listener.port, reported, catalog)
    try:
        yield world
    finally:
        for client in world.clients.values():
            await client.close()
        await listener.stop(grace_seconds=1)
        await assembly.close()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[World, World]]:
    """A server, and a second one over the same store that rejects anonymous requests."""
    runtime, storage = Runtime.system(), MemoryStorage()
    for plural, scope in (("locals", "Namespaced"), ("globals", "Cluster")):
        key = Key(f"/registry/apiextensions.k8s.io/customresourcedefinitions/{plural}.{CUSTOM}")
        value = orjson.dumps(definition(plural, scope)) + b"\n"
        await storage.commit(Transaction(writes=(Put(key, value),)))
    try:
        async with (
            _server(storage, runtime) as world,
            _server(storage, runtime, anonymous=False) as closed,
        ):
            for name in (MINE, OTHER):
                await world.create("/api/v1/namespaces", {"metadata": {"name": name}})
            yield world, closed
    finally:
        await storage.close()
