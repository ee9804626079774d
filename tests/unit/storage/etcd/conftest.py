"""A real etcd for the tests of its driver: one member, shared by the tests of a module."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from restow.aio import Runtime
from restow.storage.etcd import EtcdOptions, EtcdStorage, open_etcd
from tests.support.etcd_process import EtcdCluster, start_etcd

Opener = Callable[..., AbstractAsyncContextManager[EtcdStorage]]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with start_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def three_members(tmp_path: Path) -> Iterator[EtcdCluster]:
    with start_etcd(tmp_path, members=3) as cluster:
        yield cluster


@pytest.fixture
def runtime() -> Runtime:
    return Runtime.system()


@pytest.fixture
def opened(runtime: Runtime) -> Opener:
    """Open a store at some endpoints, and close it afterwards."""

    @asynccontextmanager
    async def open_at(*endpoints: str, **options: Any) -> AsyncIterator[EtcdStorage]:
        storage = await open_etcd(EtcdOptions(endpoints=endpoints, **options), runtime)
        try:
            yield storage
        finally:
            await storage.close()

    return open_at
