"""Stages for the tests of migrations: without servers, or with two that keep running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.migration.stage import Stage
from tests.e2e.storageversion.conftest import STORES, NewCluster, keys, new_cluster
from tests.sizes import SIZES

__all__ = ["keys", "new_cluster"]


@pytest.fixture(params=STORES)
def bare_stage(
    request: pytest.FixtureRequest, new_cluster: NewCluster, tmp_path: Path
) -> Iterator[Stage]:
    """A stage without servers, on an empty store of each kind."""
    cluster = new_cluster(request.param)
    made = Stage(cluster, tmp_path)
    yield made
    made.close()
    cluster.close()


@pytest.fixture(scope="module", params=STORES)
def pair(
    request: pytest.FixtureRequest,
    new_cluster: NewCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """Two servers of one release, with all kinds but one verified; they end with the module."""
    cluster = new_cluster(request.param)
    stage = Stage(cluster, tmp_path_factory.mktemp("pair"))
    stage.servers = cluster.start("x+2", "x+2")
    stage.verify_other_kinds()
    yield stage
    cluster.close()


@pytest.fixture
def stage(pair: Stage) -> Iterator[Stage]:
    """The two servers, old objects, and no controllers."""
    pair.start_over(SIZES.migration_objects)
    yield pair
    pair.close()
