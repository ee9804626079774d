"""Servers for the tests with real clients: one per kind of store, shared by all modules.

A test uses a namespace of its own. A test that stops or kills a server starts one for itself, on
the same store: `sibling` of the shared server has the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.api.kubectl import Kubectl, binaries
from tests.e2e.api.kubectl_user import CLUSTER_RIGHTS, RIGHTS
from tests.e2e.clients.guests import account
from tests.support.etcd_process import start_etcd
from tests.support.server_process import ServerProcess

STORES: Final = ("sqlite", "etcd")
# A user of every shared server, without permissions.
EVE_TOKEN: Final = "token-of-eve"
_NUMBERS: Final = count(1)


class Shared:
    """The shared servers, each started on first use."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._servers: dict[str, ServerProcess] = {}

    def on(self, store: str) -> ServerProcess:
        server = self._servers.get(store)
        if server is None:
            address = ""
            if store == "etcd":
                address = self._stack.enter_context(start_etcd(self._directory / "etcd")).url
            tokens = self._directory / "tokens.csv"
            tokens.touch(mode=0o600)
            tokens.write_text(f'{EVE_TOKEN},eve,1001,"readers,writers"\n')
            server = self._servers[store] = ServerProcess(
                self._directory / store,
                store=address,
                arguments=["--token-auth-file", str(tokens)],
            )
            self._stack.enter_context(server)
        return server


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with ExitStack() as stack:
        yield Shared(tmp_path_factory.mktemp("api"), stack)


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, shared: Shared) -> ServerProcess:
    """The shared server of each kind of store."""
    return shared.on(request.param)


@pytest.fixture
def namespace(server: ServerProcess) -> str:
    """A new namespace."""
    name = f"test-{next(_NUMBERS)}"
    code, answer = server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert code == 201, answer
    return name


@pytest.fixture(scope="module", params=binaries(), ids=lambda path: Path(path).name)
def kubectl_in_default(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """Every kubectl, each with its own home directory."""
    return Kubectl.found(request.param, server, tmp_path_factory.mktemp("home"))


@pytest.fixture
def kubectl(kubectl_in_default: Kubectl, namespace: str) -> Kubectl:
    """Every kubectl, in a new namespace."""
    return kubectl_in_default.within(namespace)


@pytest.fixture(scope="module")
def worker(kubectl_in_default: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Every kubectl, for a user with few permissions, in a namespace that a module's tests
    share."""
    server, number = kubectl_in_default.server, next(_NUMBERS)
    namespace = f"work-{number}"
    code, answer = server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert code == 201, answer
    guest = account(server, f"worker-{number}", tmp_path_factory.mktemp("worker"))
    guest.give(RIGHTS, CLUSTER_RIGHTS)
    guest.admit(namespace, RIGHTS)
    return replace(kubectl_in_default, namespace=namespace, kubeconfig=guest.kubeconfig(namespace))
