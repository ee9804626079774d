"""Rolling upgrades under writes: objects are migrated, and no client gets an error."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.e2e.api.kubectl import Kubectl, binaries
from tests.e2e.migration.history import HASHES
from tests.e2e.migration.stage import Stage
from tests.e2e.storageversion.clusters import V1, V2, replace
from tests.e2e.storageversion.hammer import Answer, Hammer
from tests.sizes import SIZES

GAP_SECONDS: Final = 0.1
MIGRATED: Final = "storage_migrator_core_migrator_migrated_objects"
LABEL: Final = '{resource="example.com/v2, Resource=widgets"}'


def test_rolling_upgrade(bare_stage: Stage, tmp_path: Path) -> None:
    """Three servers are replaced one by one while clients write: at the end all objects are in
    the new version, the state and Events report it, and no client got an unexpected error."""
    stage, count = bare_stage, SIZES.migration_objects
    stage.plant(count)
    stage.servers = stage.cluster.start("x+1", "x+1", "x+1")
    stage.verify_other_kinds()
    with stage.controllers() as controllers, ExitStack() as stack:
        stage.wait(lambda: stage.persisted() == [HASHES[V1]], "v1 is known")
        hammers = [
            stack.enter_context(
                Hammer(server, writers=1, gap_seconds=GAP_SECONDS, prefix=f"h{number}-")
            )
            for number, server in enumerate(stage.servers)
        ]
        for server in stage.servers:
            replace(server, "x+2")
        for hammer in hammers:
            hammer.wait_for_successes(5)
        stage.wait_complete()
        for hammer in hammers:
            hammer.wait_for_successes(5)
        stack.close()
        stage.wait(lambda: "MigrationSucceeded" in stage.reasons(), "it is told")
        _, metrics = controllers.get("/metrics")
        check_reported(Kubectl.found(binaries()[0], stage.servers[1], tmp_path / "home"))
    assert not [each for hammer in hammers for each in hammer.answers if not is_expected(each)]
    [line] = [each for each in metrics.splitlines() if each.startswith(MIGRATED + LABEL)]
    assert float(line.split()[-1]) >= count
    assert "MigrationRequested" in stage.reasons()
    history = stage.audit_complete()
    assert history.rewritten == count
    assert set(history.left) == {V2}
    assert len(history.versions) > count


def is_expected(answer: Answer) -> bool:
    """Done, retryable, or a conflict, as any client must expect."""
    return answer.is_fair or answer.status == 409


def check_reported(kubectl: Kubectl) -> None:
    """kubectl shows what happened, and that it is complete."""
    lines = kubectl.run("get", "events").splitlines()
    about = "\n".join(line for line in lines if "widgets" in line)
    for reason in ("MigrationRequested", "MigrationStarted", "MigrationSucceeded"):
        assert reason in about, about
    requests = kubectl.run("get", "storageversionmigrations.migration.k8s.io")
    [line] = [each for each in requests.splitlines() if each.startswith("widgets")]
    assert "Succeeded" in line, line
