"""A real etcd, shared by the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.etcd_process import EtcdCluster, start_etcd


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with start_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
