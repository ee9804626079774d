"""Servers for real clients: one per kind of store, over TLS, with authorization.

Each module tests one client. RIGHTS lists the client's permissions in its namespaces, and
CLUSTER_RIGHTS those in the cluster; WHO selects how it authenticates. A test uses a namespace of
its own, and a module has a kind of its own in an API group of its own.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.crds import small
from tests.crds.building import CRDS, Family
from tests.e2e.api.conftest import Shared
from tests.e2e.clients import guests
from tests.e2e.clients.guests import Guest
from tests.support.server_process import ServerProcess

STORES: Final = ("sqlite", "etcd")
_NUMBERS: Final = count(1)


@pytest.fixture(autouse=True)
def left_sockets() -> Iterator[None]:
    """asyncio clients close their connections slightly after the call, when the loop of the test
    has ended: their sockets are collected here, before they cause warnings in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with ExitStack() as stack:
        yield Shared(tmp_path_factory.mktemp("clients"), stack)


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, shared: Shared) -> ServerProcess:
    """The shared server of each kind of store."""
    return shared.on(request.param)


@pytest.fixture(scope="module")
def client_name(request: pytest.FixtureRequest) -> str:
    """The client under test, in a form for object names."""
    return str(request.module.__name__).rpartition("test_")[2].replace("_", "-")


@pytest.fixture(scope="module")
def guest(
    request: pytest.FixtureRequest,
    server: ServerProcess,
    client_name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Guest:
    """The client's user."""
    make = getattr(guests, request.module.WHO)
    made: Guest = make(server, client_name, tmp_path_factory.mktemp(client_name))
    made.give(request.module.RIGHTS, request.module.CLUSTER_RIGHTS)
    return made


@pytest.fixture
def namespace(request: pytest.FixtureRequest, guest: Guest) -> str:
    """A new namespace, to which the client is admitted."""
    name = f"{guest.name}-{next(_NUMBERS)}"
    guests.create(guest.server, "/api/v1/namespaces", guests.named(name))
    guest.admit(name, request.module.RIGHTS)
    return name


@pytest.fixture
def kubeconfig(guest: Guest, namespace: str) -> Path:
    """The client's kubeconfig, for that namespace."""
    return guest.kubeconfig(namespace)


@pytest.fixture(scope="module")
def family(server: ServerProcess, client_name: str) -> Family:
    """A custom kind of the module, with a status, already established."""
    made = small.widget(f"{client_name}.example.org", status=True)
    guests.create(server, CRDS, made.definition)
    guests.wait(lambda: server.get(made.path())[0] == 200, what=made.name)
    return made


@pytest.fixture(scope="session")
def compacted_versions() -> dict[str, str]:
    """By server, a resource version of ConfigMaps that is compacted."""
    return {}


@pytest.fixture
def old_version(server: ServerProcess, compacted_versions: dict[str, str]) -> str:
    """A resource version that is too old for a watch of ConfigMaps."""
    if server.url not in compacted_versions:
        compacted_versions[server.url] = guests.compact_history(server)
    return compacted_versions[server.url]
