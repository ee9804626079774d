"""Fixtures for the tests of backup and restore: a runtime, and a real etcd, empty for each test."""

from collections.abc import Iterator

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.storage.etcd import open_etcd, parse_address
from restow.testing.storage_suite.harness import wipe
from tests.support.etcd_process import EtcdCluster, start_etcd


@pytest.fixture
def runtime() -> Runtime:
    return Runtime.system()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with start_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def empty_etcd(etcd: EtcdCluster, runtime: Runtime) -> str:
    """The address of an etcd without keys, at any revision."""
    storage = await open_etcd(parse_address(etcd.url), runtime)
    await wipe(storage)
    await storage.close()
    return str(etcd.url)
