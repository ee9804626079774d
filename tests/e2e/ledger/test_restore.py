"""A backup is restored into an etcd under running servers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.ledger.stage import LedgerStage
from tests.e2e.localcluster.running import wait_for
from tests.sizes import SIZES
from tests.support.fire.ledger import Ledger
from tests.support.fire.objects import NAMESPACES, WIDGETS

AHEAD = "--ahead=5000"


def is_refused(stage: LedgerStage, server: int) -> bool:
    """Returns whether a server reports that its store was replaced."""
    return stage.request("GET", "/readyz/store-identity", server=server).status == 500


def test_a_restore_under_running_servers(tmp_path: Path) -> None:
    """An etcd with keys is refused. After it was emptied and a backup was restored into it,
    running servers continue with the backup: every acknowledged write before it exists, none
    from after it does, and old resource versions get 410."""
    with LedgerStage(tmp_path, store="etcd", per_second=SIZES.ledger_per_second) as stage:
        assert stage.etcd is not None
        stage.wait_writes(SIZES.ledger_writes)
        ledger = Ledger.of(stage.stop_load().operations)
        backup = tmp_path / "a.backup"
        assert stage.up.run("backup", str(backup)).returncode == 0
        path = WIDGETS.path_of("v1", NAMESPACES[0])
        late = stage.ask("POST", path, WIDGETS.body_of("v1", "w-late", {"token": "late"}))
        version = late["metadata"]["resourceVersion"]

        words = ("restore", str(backup), f"--store={stage.store}", AHEAD)
        refused = stage.restow(*words)
        assert (refused.returncode, "a backup needs an empty store" in refused.stderr) == (
            2,
            True,
        ), refused.stderr

        stage.etcd.etcdctl("del", "/", "--prefix")
        wait_for(
            lambda: all(is_refused(stage, each) for each in range(len(stage.ports))),
            "every server has found the store empty",
            log=lambda: stage.up.output,
        )
        stage.etcd.etcdctl("del", "/", "--prefix")  # writes until then, if any
        done = stage.restow(*words)
        assert done.returncode == 0, done.stderr
        stage.wait_ready()
        problems, objects = stage.compare_servers(ledger)
        assert not problems, "\n".join(problems)
        assert objects > len(stage.ports) * SIZES.ledger_writes // 2
        for server in range(len(stage.ports)):
            query = f"{path}?watch=true&timeoutSeconds=1&resourceVersion={version}"
            reply = stage.request("GET", query, server=server)
            assert json.loads(reply.body.splitlines()[0])["object"]["code"] == 410
            new = WIDGETS.body_of("v1", f"w-new-{server}", {"token": "new"})
            assert stage.request("POST", path, new, server=server).status == 201
