"""Two servers on each kind of store, for the tests of custom resources with real clients.

CRDs are cluster-scoped, so each test has an API group of its own.
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
from tests.e2e.custom.webhook_thread import WebhookThread
from tests.e2e.storageversion.conftest import keys, new_cluster
from tests.support.etcd_process import start_etcd
from tests.support.server_process import ServerProcess

__all__ = ["keys", "new_cluster"]

STORES: Final = ("sqlite", "etcd")
_NUMBERS: Final = count(1)


class Pairs:
    """Pairs of servers, each started on first use."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._pairs: dict[str, tuple[ServerProcess, ServerProcess]] = {}

    def on(self, store: str) -> tuple[ServerProcess, ServerProcess]:
        found = self._pairs.get(store)
        if found is None:
            address = ""
            if store == "etcd":
                address = self._stack.enter_context(start_etcd(self._directory / "etcd")).url
            one = ServerProcess(self._directory / store, store=address)
            self._stack.enter_context(one)
            two = self._stack.enter_context(one.sibling(self._directory / f"{store}-other"))
            found = self._pairs[store] = (one, two)
        return found


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with ExitStack() as stack:
        yield Pairs(tmp_path_factory.mktemp("custom"), stack)


@pytest.fixture(scope="module", params=STORES)
def pair(request: pytest.FixtureRequest, pairs: Pairs) -> tuple[ServerProcess, ServerProcess]:
    """Two servers on one store, of each kind of store."""
    return pairs.on(request.param)


@pytest.fixture(scope="module")
def server(pair: tuple[ServerProcess, ServerProcess]) -> ServerProcess:
    """The first of the two."""
    return pair[0]


@pytest.fixture(scope="module")
def other(pair: tuple[ServerProcess, ServerProcess]) -> ServerProcess:
    """The second of the two."""
    return pair[1]


@pytest.fixture
def group() -> str:
    """An API group that no other test uses."""
    return f"e{next(_NUMBERS)}.custom.example.org"


@pytest.fixture(scope="module", params=binaries(), ids=lambda path: Path(path).name)
def kubectl_found(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """Every kubectl."""
    return Kubectl.found(request.param, server, tmp_path_factory.mktemp("home"))


@pytest.fixture
def kubectl(kubectl_found: Kubectl, tmp_path: Path) -> Kubectl:
    """Every kubectl, each with a home directory of its own: it caches discovery for hours."""
    home = tmp_path / "home"
    home.mkdir()
    return replace(kubectl_found, home=home)


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[WebhookThread]:
    """A conversion webhook that a test can pause."""
    with WebhookThread(tmp_path) as made:
        yield made
