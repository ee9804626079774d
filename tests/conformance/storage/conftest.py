"""One harness per driver, so that each test of the suite runs on each of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.register_assert_rewrite("restow.testing.storage_suite")

# ruff: noqa: E402  (modules with rewritten asserts must not have been imported)

from restow.storage.interface import Storage
from restow.testing.storage_suite.harness import (
    Harness,
    MemoryHarness,
    SharedHarness,
    SuiteSizes,
    wipe,
)
from tests.sizes import SIZES
from tests.support.etcd_process import EtcdCluster, start_etcd

SUITE_SIZES = SuiteSizes(
    workers=SIZES.storage_workers,
    increments=SIZES.storage_increments,
    commits=SIZES.storage_commits,
)
DRIVERS = ["memory", "sqlite", "etcd", "etcd3"]


@pytest.fixture(scope="session")
def etcd_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd cluster with three members, scoped like the single member of the parent folder."""
    with start_etcd(tmp_path_factory.mktemp("etcd3"), members=3) as cluster:
        yield cluster


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(driver: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a driver's store; the etcd processes start on first use."""
    match driver:
        case "sqlite":
            return f"sqlite:{tmp_path / 'store'}"
        case "etcd":
            return str(request.getfixturevalue("etcd_one").url)
        case "etcd3":
            return str(request.getfixturevalue("etcd_three").url)
        case _:
            return "memory:"


@pytest_asyncio.fixture
async def harness(driver: str, address: str) -> AsyncIterator[Harness]:
    if driver == "memory":
        made: Harness = MemoryHarness(SUITE_SIZES)
    else:
        made = SharedHarness(driver, address, SUITE_SIZES)
    if driver.startswith("etcd"):
        await wipe(await made.open())
        await made.close()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def storage(harness: Harness) -> Storage:
    return await harness.open()
