"""An aggregated server with a store of its own: it reports to the main servers what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from restow.testing.aggregated_process import AggregatedProcess
from restow.testing.child_process import ProcessFailed
from restow.testing.server_process import ServerProcess
from tests.e2e.aggregated.stage import (
    ask,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    until,
)

GROUP: Final = "own.example.com"


def test_life_with_a_store_of_its_own(main: ServerProcess, tmp_path: Path) -> None:
    """Its entry is reported with the store it is in, goes when it stops, and its objects stay."""
    behind = AggregatedProcess(
        tmp_path / "one", main=main, kinds=kinds_file(tmp_path, "v1", group=GROUP)
    )
    with behind:
        until(lambda: is_available(main, group=GROUP))
        assert ask(main, "POST", parts_path(group=GROUP), part("a", group=GROUP))[0] == 201
        path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{GROUP}.parts"
        _, report = ask(main, "GET", path)
        assert "coordination.restow.dev/stores" in report["metadata"]["annotations"]
        assert list(entries(main, group=GROUP).values()) == [f"{GROUP}/v1"]
        assert behind.stop() == 0
        until(lambda: not entries(main, group=GROUP))
        behind.start()
        until(lambda: is_available(main, group=GROUP))
        assert ask(main, "GET", parts_path(name="a", group=GROUP))[0] == 200


def test_what_cannot_work_is_refused(main: ServerProcess, tmp_path: Path) -> None:
    """Kinds that nobody could serve, and keys that differ from those of the peers, end the start
    with a sentence that says why."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: ConfigMap\napiVersion: v1\n")
    with pytest.raises(ProcessFailed, match="ConfigMap of v1 is no CustomResourceDefinition"):
        AggregatedProcess(tmp_path / "wrong", main=main, kinds=wrong).start()
    kinds = kinds_file(tmp_path, "v1", group="other.example.com")
    component = ("--component", "others")
    one = AggregatedProcess(
        tmp_path / "others", main=main, kinds=kinds, store=main.store, arguments=component
    )
    with one:
        stranger = AggregatedProcess(
            tmp_path / "stranger", main=main, kinds=kinds, store=main.store, arguments=component
        )
        with pytest.raises(ProcessFailed, match="component others with other keys use this store"):
            stranger.start()
