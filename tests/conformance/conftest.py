"""Processes that several conformance suites share."""

from collections.abc import Iterator

import pytest

from tests.support.etcd_process import EtcdCluster, start_etcd


@pytest.fixture(scope="session")
def etcd_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd with one member, for all tests; each finds it empty, at any revision."""
    with start_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
