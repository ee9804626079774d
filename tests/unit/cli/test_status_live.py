"""`restow status -w`: what is drawn when, and a real server that is restarted meanwhile."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import pytest
from rich.console import Console

from restow.cli.hints import Hints
from restow.cli.main import main
from restow.cli.status_live import STALE, Blocks, Records, Screen, most_urgent
from restow.migration.overview_values import (
    ClusterOverview,
    Hash,
    ResourceSeen,
    ResourceStatus,
    ServerSeen,
)
from tests.support.server_process import ServerProcess

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
WAIT_SECONDS_MAX: Final = 90.0


def resource(name: str, verdict: ResourceStatus = ResourceStatus.OK) -> ResourceSeen:
    return ResourceSeen(resource=name, written=Hash("h", "v1"), verdict=verdict)


def view(*resources: ResourceSeen, seconds: int = 0) -> ClusterOverview:
    """A cluster whose only server renews its lease all the time."""
    moment = NOW + timedelta(seconds=seconds)
    server = ServerSeen(id="apiserver-a", host="one", renewed=moment, is_live=True)
    return ClusterOverview("https://there", moment, resources=list(resources), servers=[server])


def test_problems_come_first() -> None:
    """If not all resources fit, those that are ok are omitted first."""
    found = [
        resource("a"),
        resource("b", ResourceStatus.TO_MIGRATE),
        resource("c", ResourceStatus.DISAGREEING),
    ]
    assert [each.resource for each in most_urgent(found, 2)] == ["c", "b"]
    assert [each.resource for each in most_urgent(found, 9)] == ["c", "b", "a"]


def printing() -> tuple[Blocks, io.StringIO]:
    file = io.StringIO()
    return Blocks(Hints(), Console(file=file, width=200, highlight=False, markup=False)), file


def test_a_block_for_each_change_and_no_other() -> None:
    """A renewed lease is not a change; a finished migration is."""
    blocks, file = printing()
    for seconds in range(5):
        blocks.show(view(resource("pods"), seconds=seconds))
    assert file.getvalue().count("---") == 1
    blocks.show(view(resource("pods", ResourceStatus.MIGRATING), seconds=9))
    said = file.getvalue()
    assert said.count("---") == 2
    assert "--- 2026-01-01T12:00:09Z\n" in said


def test_that_it_is_up_to_date_again_is_said() -> None:
    """After a break, the next block says that it is up to date again."""
    blocks, file = printing()
    blocks.show(view(resource("pods")))
    broken = view(resource("pods"))
    broken.notes.append(f"{STALE} since then, trying again: connection refused")
    blocks.show(broken)
    blocks.show(view(resource("pods")))
    said = file.getvalue()
    assert said.count(f"note: {STALE}") == 1
    assert said.count("up to date again") == 1


def test_records_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With -o json each change is one line of JSON."""
    records = Records()
    for verdict in (ResourceStatus.OK, ResourceStatus.OK, ResourceStatus.MIGRATING):
        records.show(view(resource("pods", verdict)))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["resources"][0]["verdict"] for line in lines] == ["ok", "migrating"]


@pytest.mark.parametrize(("height", "shown_min"), [(200, 40), (30, 15), (5, 3)])
def test_a_screen_omits_resources_that_do_not_fit(height: int, shown_min: int) -> None:
    """As many resources as fit, always the summary, and the number of omitted ones."""
    file = io.StringIO()
    console = Console(file=file, width=100, height=height, force_terminal=True, no_color=True)
    screen = Screen(Hints(), console)
    found = [resource(f"kind-{number:02d}") for number in range(39)]
    text = screen._fitted(view(*found, resource("late", ResourceStatus.DISAGREEING))).plain
    screen.close()
    lines = text.splitlines()
    shown = sum(line.startswith(("kind-", "late")) for line in lines)
    assert shown >= shown_min
    assert any(line.startswith("late") for line in lines)
    assert "40 resources of https://there: 39 ok, 1 disagreeing" in text
    assert (f"… and {40 - shown} more" in text) == (shown < 40)
    if shown > 3:
        assert len(lines) < height


def test_colours_are_not_needed() -> None:
    """Without colors the text is the same."""
    file = io.StringIO()
    console = Console(file=file, width=100, height=50, force_terminal=True, no_color=True)
    screen = Screen(Hints(), console)
    screen.show(view(resource("pods", ResourceStatus.DISAGREEING)))
    screen.close()
    assert "disagreeing" in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()


class Watching:
    """A process of `restow status -w` and its output."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "restow", "status", "-w", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_for(self, is_so: Callable[[str], bool], what: str) -> None:
        """Wait until the output fulfills a condition."""
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so(self.output):
            assert time.monotonic() < deadline, f"{what} was not printed:\n{self.output}"
            if select.select([file], [], [], 0.2)[0]:
                data = os.read(file, 65_536)
                assert data, f"it has ended:\n{self.output}"
                self.output += data.decode()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(WAIT_SECONDS_MAX)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A real server that can be stopped and started again."""
    with ServerProcess(tmp_path / "server") as running:
        yield running


def ask_for_migration(server: ServerProcess) -> None:
    request = {
        "apiVersion": "migration.k8s.io/v1alpha1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": "by-hand"},
        "spec": {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
    }
    assert server.request("POST", MIGRATIONS, request)[0] == 201


def test_it_follows_a_server_through_its_restart(server: ServerProcess) -> None:
    """A change is shown without a request, a stop is reported, and the next start is detected."""
    words = ("deploy", "--kubeconfig", str(server.kubeconfig), "--interval", "0.1")
    with Watching(*words) as watching:
        watching.wait_for(lambda said: "1 to migrate" in said, "the first block")
        ask_for_migration(server)
        watching.wait_for(lambda said: "by-hand" in said, "the request")
        first = server.pid
        server.stop()
        watching.wait_for(lambda said: f"note: {STALE}" in said, "that nobody answers")
        server.start()
        assert server.pid != first
        watching.wait_for(
            lambda said: "by-hand" in said.partition("up to date again")[2],
            "the request, found again",
        )
        assert watching.stop() == 0


def test_json_by_the_line(server: ServerProcess) -> None:
    """-w -o json is a stream of complete objects."""
    words = ("deploy", "-o", "json", "--kubeconfig", str(server.kubeconfig))
    with Watching(*words) as watching:
        watching.wait_for(lambda said: said.count("\n") == 1, "the first object")
        ask_for_migration(server)
        watching.wait_for(lambda said: "by-hand" in said.rpartition("\n")[0], "the request")
        found = [json.loads(line) for line in watching.output.splitlines()]
        assert found[0]["migrations"] == []
        assert found[-1]["migrations"][0]["status"] == "Pending"
        assert watching.stop() == 0


def test_errors(tmp_path: Path, server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors at the start end it at once, as without -w."""
    kubeconfig = str(server.kubeconfig)
    assert main(["status", "-w", "--kubeconfig", kubeconfig, "deploymens"]) == 2
    assert "did you mean deployment" in capsys.readouterr().err
    assert main(["status", "--interval", "3", "--kubeconfig", kubeconfig]) == 2
    assert "requires -w" in capsys.readouterr().err
    gone = tmp_path / "kubeconfig"
    gone.write_text(server.kubeconfig.read_text().replace(f":{server.port}", ":1"))
    assert main(["status", "-w", "--kubeconfig", str(gone)]) == 1
    assert "connection refused" in capsys.readouterr().err
    for text in ("0", "nan", "often", "99999"):
        with pytest.raises(SystemExit):
            main(["status", "-w", "--interval", text])
        assert "not a number of seconds" in capsys.readouterr().err
