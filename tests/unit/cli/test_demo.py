"""`restow demo`: output, checks, history and directories.

`tests/e2e/demo` runs the whole demo.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from restow.aio import Runtime, SeededRandomness
from restow.cli import demo
from restow.cli.demo_narrator import Narrator
from restow.cli.demo_stage import StoryFailed
from restow.cli.demo_story import SERVERS, Plot, check_nothing_narrowed, matches
from restow.cli.demo_view import (
    HASHES,
    DemoState,
    MigrationHistory,
    Observer,
    ServerRow,
)
from restow.cli.main import main
from restow.client import ApiClient, read_kubeconfig
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.migration.migration_objects import MIGRATION_APIS
from restow.migration.migration_values import MigrationPhase
from restow.migration.overview_reader import migration_seen
from tests.support.server_process import ServerProcess

MIXED = DemoState(
    servers=(
        ServerRow(0, "ready", "x+2", "v2"),
        ServerRow(1, "starting", "x+2", ""),
        ServerRow(2, "ready", "x+1", "v1"),
    ),
    persisted=("v1", "v2"),
)


def request(name: str, *, resource: str = "widgets", **status: Any) -> dict[str, Any]:
    group = "example.com" if resource == "widgets" else "apps"
    return {
        "apiVersion": "migration.k8s.io/v1alpha1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "version": "v1", "resource": resource}},
        "status": status,
    }


def test_output_lines_have_stable_forms() -> None:
    """Without a terminal the output is lines of known forms, without colors or wrapping."""
    file = io.StringIO()
    console = Console(file=file, width=1_000, highlight=False, markup=False)
    narrator = Narrator(is_plain=True, console=console)
    narrator.step(3, 8, "A title")
    narrator.command("restow up")
    with narrator.watching(lambda: MIXED):
        narrator.refresh()
    narrator.census(Counter(v2=1_500, v1=2))
    narrator.census(Counter())
    narrator.check("it is so")
    narrator.why("because")
    narrator.link("dashboard", "https://there/" + "a" * 1_200)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "",
        "[3/8] A title",
        "  $ restow up",
        "  SERVER  STATE     RELEASE  WRITES",
        "  0       ready     x+2      v2",
        "  1       starting  x+2      –",
        "  2       ready     x+1      v1",
        "  agreed on: nothing; may be stored as: v1, v2; migration: none",
        "  census: 2 as v1, 1,500 as v2",
        "  census: no objects",
        "  ok: it is so",
        "  why: because",
        "  dashboard: https://there/" + "a" * 1_200,
    ]


def test_a_terminal_shows_the_board_while_it_waits() -> None:
    """Each change is drawn, and the last state stays."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, highlight=False, markup=False)
    narrator = Narrator(is_plain=False, console=console)
    boards = iter([DemoState(agreed="v1"), DemoState(agreed="v2"), DemoState(agreed="v3"), MIXED])
    with narrator.watching(lambda: next(boards, MIXED)):
        narrator.refresh()
    said = file.getvalue()
    assert "v2" in said
    assert said.rstrip().endswith("migration: none")


def test_a_migration_is_told_in_words() -> None:
    """The state has the progress of the migration, or why it ended."""
    conditions = [{"type": "Failed", "status": "True", "message": "the servers do not agree"}]
    seen = migration_seen(request("one", conditions=conditions))
    file = io.StringIO()
    narrator = Narrator(is_plain=True, console=Console(file=file, width=200))
    narrator.board(DemoState(agreed="v2", persisted=("v1",), migration=seen))
    assert "migration: Failed (the servers do not agree)" in file.getvalue()
    assert "migration one Failed" in str(DemoState(migration=seen))


@pytest.mark.parametrize(
    "other", [{"writes": ("v2", "v2", "v2")}, {"agreed": "v2"}, {"persisted": {"v2"}}]
)
def test_each_part_of_a_board_is_compared(other: dict[str, Any]) -> None:
    """A state that differs in any field does not match."""
    right: dict[str, Any] = {"writes": ("v2", "", "v1"), "agreed": "", "persisted": {"v1", "v2"}}
    assert matches(MIXED, **right)
    assert matches(MIXED, **(right | {"persisted": None}))
    assert not matches(MIXED, **(right | other))


def test_narrowing_is_noticed_wherever_it_was() -> None:
    """A version that was removed and added again is detected."""
    check_nothing_narrowed([])
    check_nothing_narrowed([("v1",), ("v1", "v2"), ("v1", "v2")])
    with pytest.raises(StoryFailed, match="persisted versions shrank from v1, v2 to v2 too early"):
        check_nothing_narrowed([("v1", "v2"), ("v2",), ("v2", "v1")])


def test_deleted_and_failed_migrations_are_aborted() -> None:
    """A migration that was deleted or failed is aborted; one that ever succeeded is not."""
    found = request("one")
    assert not MigrationHistory("one", found).is_aborted
    assert MigrationHistory("one", found, is_deleted=True).is_aborted
    assert MigrationHistory(
        "one", found, phases={MigrationPhase.RUNNING, MigrationPhase.FAILED}
    ).is_aborted
    assert not MigrationHistory(
        "one", found, is_deleted=True, phases={MigrationPhase.SUCCEEDED}
    ).is_aborted
    assert not MigrationHistory("one", found, phases={MigrationPhase.SUCCEEDED}).is_proven


def test_a_seed_draws_the_same_plot() -> None:
    """A seed selects the same server each time."""
    drawn = [Plot.drawn(SeededRandomness(seed)) for seed in range(20)]
    assert drawn == [Plot.drawn(SeededRandomness(seed)) for seed in range(20)]
    assert {each.flaky for each in drawn} == set(range(SERVERS))
    assert Plot().flaky == SERVERS - 1


def test_a_temporary_directory_is_removed() -> None:
    """It is removed at the end, also after an error, unless it is to be kept."""
    with demo._directory(None, is_kept=False) as place:
        (place.path / "file").write_text("text")
    assert not place.path.exists()
    with pytest.raises(KeyboardInterrupt), demo._directory(None, is_kept=False) as place:
        raise KeyboardInterrupt
    assert not place.path.exists()
    with demo._directory(None, is_kept=True) as place:
        pass
    place.path.rmdir()


def test_a_directory_that_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A given directory is created and kept, and must be empty: no cluster is modified."""
    with demo._directory(tmp_path / "a" / "b", is_kept=False) as place:
        assert place.path.is_dir()
    assert place.path.is_dir()
    (tmp_path / "state.json").touch()
    assert main(["demo", "--data-dir", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    file = tmp_path / "state.json"
    with pytest.raises(ClusterRefused, match="cannot be used"), demo._directory(file, is_kept=True):
        pass


async def test_a_witness_forgets_nothing(tmp_path: Path) -> None:
    """On a real server: written versions, persisted versions, and migrations that were deleted."""
    with ServerProcess(tmp_path, store="memory:", arguments=("--release", "x+1")) as server:
        runtime = Runtime.system()
        config = read_kubeconfig([server.kubeconfig])
        async with (
            ApiClient.connect(config, runtime=runtime) as client,
            runtime.tasks("test") as tasks,
        ):
            observer = Observer(client)
            changes: list[None] = []
            await observer.start(tasks)
            observer.updated.subscribe(lambda: changes.append(None))
            process = ProcessView(
                name="server-0", state="ready", index=0, port=server.port, release="x+1"
            )
            overview = ProcessOverview(
                pid=1,
                data_dir="",
                kubeconfig="",
                front_url="",
                store="",
                is_ready=True,
                processes=(process,),
            )
            board = observer.board(overview)
            assert (board.writes, board.agreed) == (("v1",), "v1")
            assert board.persisted == ("Unknown", "v1")
            assert "widgets.example.com" in observer.unknown
            assert set(HASHES.values()) == {"v1", "v2"}

            async def until(condition: Any) -> None:
                async with asyncio.timeout(60):
                    while not condition():
                        await observer.changed()

            await client.create(MIGRATION_APIS[0], request("old"))
            await client.create(MIGRATION_APIS[0], request("another", resource="deployments"))
            await until(lambda: observer.new_migrations)
            observer.reset_view()
            assert observer.board(overview).migration is None
            await client.create(MIGRATION_APIS[0], request("new"))
            await until(lambda: observer.new_migrations)
            seen = observer.migrations[observer.new_migrations[0]]
            found = observer.board(overview).migration
            assert found is not None
            assert found.name == seen.name == "new"
            await client.delete(MIGRATION_APIS[0], "new")
            await until(lambda: seen.is_deleted)
            assert seen.is_aborted
            assert observer.board(overview).migration is None
            assert [each.name for each in observer.migrations.values()] == ["old", "new"]
            assert observer.is_migrating
            assert changes
            assert observer.persisted_seen == [("Unknown", "v1")]
            assert observer.new_states == []
