"""Servers for the API tests: complete servers on a loopback port, over plain HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from restow.admission import Admission
from restow.aio import Runtime
from restow.apiserver.assembly import Assembly
from restow.apiserver.audit import Audit
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import (
    AccessOptions,
    AuthParts,
    EndpointOptions,
    Foundation,
    Secrets,
    StorageAgreement,
)
from restow.apiserver.service_accounts import AccountRules
from restow.encryption.decrypted_storage import DecryptedStorage
from restow.encryption.interface import Keys
from restow.endpoints.app import Barrier, open_barrier
from restow.httpserver import Limits, Listener, TlsMaterial
from restow.kinds.releases import Release, ReleaseVersion, default_release, shipped_release
from restow.registry.catalog import Catalog, release_catalog
from restow.registry.committer import Sealed
from restow.registry.encoding import EncodingPolicy, FixedPolicy
from restow.request.context import User
from restow.request.limits import RequestLimits
from restow.request.responses import error_body
from restow.storage.interface import Key, Put, Storage, Transaction, Write
from restow.storageversion.mirror import Mirror
from restow.storageversion.remote_reports import RemoteReports
from tests.support.api_client import ApiClient

TOKEN = "masters-token"
OTHER_TOKEN = "token-of-nobody-special"
SECRETS = Secrets(
    tokens={
        TOKEN: User("admin", ("system:masters",)),
        OTHER_TOKEN: User("jane", ("developers",), "u-1"),
    },
    continue_key=b"a key that all servers of the cluster share",
)
SERVED_IN_ALL = frozenset({"Deployment", "CronJob", "PodDisruptionBudget"})
"""Kinds whose old versions are served as well, so that conversions are visible."""


def _with_old_versions() -> Catalog:
    kinds = [
        replace(kind, versions=tuple(ReleaseVersion(each.name) for each in kind.versions))
        if kind.definition.kind in SERVED_IN_ALL
        else kind
        for kind in default_release().kinds
    ]
    return release_catalog(Release("builtin", tuple(kinds)))


BUILTIN = _with_old_versions()

NS = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{NS}/configmaps"


@dataclass(slots=True)
class RunningServer:
    """A server, and a client for it with all permissions."""

    assembly: Assembly
    listener: Listener
    client: ApiClient
    storage: Storage

    @property
    def port(self) -> int:
        return self.listener.port

    async def put_raw(self, key: str, value: bytes | dict[str, Any] | None) -> int:
        """Writes into the store directly; returns the revision."""
        data = orjson.dumps(value) + b"\n" if isinstance(value, dict) else value
        assert data is not None
        write: Write = Put(Key(key), data)
        outcome = await self.storage.commit(Transaction(writes=(write,)))
        return int(outcome.revision)  # type: ignore[union-attr]

    async def raw(self, key: str) -> Any:
        """Returns the store's value of a key."""
        item = await self.storage.get(Key(key))
        return None if item is None else orjson.loads(item.value)

    async def stop(self) -> None:
        await self.client.close()
        await self.listener.stop(grace_seconds=1)
        await self.assembly.close()


async def start_server(
    storage: Storage,
    catalog: Catalog = BUILTIN,
    *,
    policy: EncodingPolicy | None = None,
    barrier: Barrier = open_barrier,
    admission: Sequence[Admission] = (),
    reports: RemoteReports | None = None,
    auth_parts: AuthParts | None = None,
    limits: RequestLimits | None = None,
    accounts: AccountRules | None = None,
    runtime: Runtime | None = None,
    audit: Audit | None = None,
    mirror: Mirror | None = None,
    keys: Keys | None = None,
    listener_limits: Limits | None = None,
    tls: TlsMaterial | None = None,
) -> RunningServer:
    runtime = runtime or Runtime.system()
    assembly = await assemble(
        Foundation(
            storage=storage if keys is None else DecryptedStorage(storage, keys),
            catalog=catalog,
            runtime=runtime,
            sealed=None if keys is None else Sealed(storage, keys),
        ),
        AccessOptions(
            secrets=SECRETS,
            auth_parts=auth_parts,
            accounts=accounts,
            admission=admission,
            audit=audit,
        ),
        EndpointOptions(address="127.0.0.1:6443", limits=limits or RequestLimits()),
        StorageAgreement(
            policy=policy or FixedPolicy(), barrier=barrier, mirror=mirror, reports=reports
        ),
    )
    listener = await Listener.start(
        assembly.app,
        bind="127.0.0.1",
        port=0,
        runtime=runtime,
        gate=assembly.app.gate,
        given_up=assembly.app.given_up,
        refused=assembly.app.refused,
        quick=assembly.app.quick,
        error_body=error_body,
        limits=listener_limits,
        tls=tls,
    )
    client = ApiClient(listener.port, token=TOKEN)
    return RunningServer(assembly, listener, client, storage)


def catalog_of(release: str) -> Catalog:
    return release_catalog(shipped_release(release))


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, **metadata},
        "data": data or {},
    }
