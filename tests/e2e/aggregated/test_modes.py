"""Aggregated servers with main servers that vote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.aggregated.history import Log, versions_in
from tests.e2e.aggregated.stage import (
    ask,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    until,
)
from tests.support.aggregated_process import AggregatedProcess
from tests.support.child_process import ProcessFailed
from tests.support.server_process import ServerProcess

GROUP: Final = "voting.example.com"
VOTE: Final = ("--coordination", "vote")


def test_votes_need_the_store_of_the_main_servers(tmp_path: Path) -> None:
    """Two releases on the main servers' store both write the selected version, and the other
    version only when the old release is gone; with a store of its own a voting server is refused
    by name, and so is one on the shared store that does not vote."""
    before, after = (kinds_file(tmp_path, each, group=GROUP) for each in ("v1", "v1beta1"))
    with ServerProcess(tmp_path / "main", arguments=VOTE) as main:
        alone = AggregatedProcess(tmp_path / "alone", main=main, kinds=before, arguments=VOTE)
        with pytest.raises(ProcessFailed, match="its own store coordinates in mode 'report'"):
            alone.start()
        old = AggregatedProcess(tmp_path / "old", main=main, kinds=before, store=main.store)
        with pytest.raises(ProcessFailed, match="but others run in strict"):
            old.start()
        old.arguments = VOTE
        with old:
            until(lambda: is_available(main, group=GROUP))
            _create(main, "a")
            with old.sibling(tmp_path / "new", kinds=after):
                assert set(entries(main, group=GROUP).values()) == {f"{GROUP}/v1"}
                _create(main, "b")
                assert set(versions_in(main.store, GROUP)) == {f"{GROUP}/v1"}
                assert old.stop() == 0
                until(lambda: [*entries(main, group=GROUP).values()] == [f"{GROUP}/v1beta1"])
                _create(main, "c")
                assert versions_in(main.store, GROUP) == {f"{GROUP}/v1": 2, f"{GROUP}/v1beta1": 1}
        assert Log.read(main.store, GROUP).broken == []


def _create(main: ServerProcess, name: str) -> None:
    body = part(name, group=GROUP)
    assert ask(main, "POST", parts_path(group=GROUP), body)[0] == 201
