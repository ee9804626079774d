"""Clusters for the tests with several servers, on each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime
from restow.apiserver.pki import PkiOptions, ensure_pki
from tests.e2e.storageversion.clusters import Cluster
from tests.support.etcd_process import start_etcd

STORES: Final = ("sqlite", "etcd")
_NUMBERS: Final = count(1)

NewCluster = Callable[[str], Cluster]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys that are created once and copied for every server."""
    directory = tmp_path_factory.mktemp("keys") / "pki"
    ensure_pki(directory, Runtime.system(), PkiOptions(bind="127.0.0.1"))
    return directory


@pytest.fixture(scope="module")
def new_cluster(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewCluster]:
    """Creates clusters without servers, each on an empty store; all end with the module."""
    with ExitStack() as stack:

        def make(store: str) -> Cluster:
            directory = tmp_path_factory.mktemp(f"cluster-{next(_NUMBERS)}")
            address = f"sqlite:{directory / 'store.db'}"
            if store == "etcd":
                address = stack.enter_context(start_etcd(directory / "etcd")).url
            cluster = Cluster(directory, address, keys)
            stack.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture(params=STORES)
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    """A cluster without servers, on an empty store of each kind."""
    made = new_cluster(request.param)
    yield made
    made.close()
