"""`restow status` on the command line: tables, JSON, notes, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from restow.cli import status_tables
from restow.cli.hints import Hints
from restow.cli.main import main
from restow.migration.overview_values import (
    ClusterOverview,
    Hash,
    LeaderSeen,
    MigrationRow,
    ResourceSeen,
    ResourceStatus,
    ServerSeen,
    agreement_of,
)
from tests.support.server_process import ServerProcess

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = "12,300 of about 20,000 objects, 4,100/s, 2 s left, 1 failed"
SUMMARY = "1 ok, 1 disagreeing, 1 unknown; migrations: 1 running, 1 failed, 5 succeeded"
MIGRATIONS = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"


def ago(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def migration(name: str, phase: str, **more: Any) -> MigrationRow:
    given: dict[str, Any] = {
        "api_version": "migration.k8s.io/v1alpha1",
        "resource": "pods",
        "is_proven": False,
        "message": "",
        "progress": {},
        "failed_objects": [],
        "created": ago(200),
        "finished": None,
    }
    return MigrationRow(name=name, phase=phase, **(given | more))


def view() -> ClusterOverview:
    """A cluster during an upgrade."""
    return ClusterOverview(
        server="https://there",
        moment=NOW,
        servers=[
            ServerSeen(id="apiserver-a", host="one", renewed=ago(2), is_live=True),
            ServerSeen(id="apiserver-b", host="", renewed=ago(99), is_live=False),
        ],
        resources=[
            ResourceSeen(
                resource="deployments.apps",
                written=Hash(""),
                persisted=(Hash("abc="), Hash("Unknown")),
                servers=(("a", "apps/v1"), ("b", "apps/v1beta1"), ("c", "apps/v1")),
                is_reported=True,
                verdict=ResourceStatus.DISAGREEING,
            ),
            ResourceSeen(
                resource="pods",
                written=Hash("h", "v1"),
                persisted=(Hash("h", "v1"),),
                servers=(("a", "v1"),),
                is_reported=True,
                verdict=ResourceStatus.OK,
            ),
            ResourceSeen(resource="widgets.example.com", written=Hash("xyz=")),
        ],
        migrations=[
            migration(
                "running",
                "Running",
                progress={
                    "scanned": 12_300,
                    "remaining": 7_700,
                    "objectsPerSecond": 4100.4,
                    "secondsLeft": 2,
                    "failed": 1,
                },
            ),
            migration(
                "failed",
                "Failed",
                message="1 object failed",
                finished=ago(50),
                failed_objects=[
                    {"namespace": "n", "name": "o", "reason": "Invalid", "message": "no\x1b[31m"}
                ],
            ),
            *(migration(f"done-{n}", "Succeeded", finished=ago(60 + n)) for n in range(5)),
        ],
        leaders=[
            LeaderSeen(
                name="restow-trigger", namespace="ns", holder="me", renewed=ago(1), is_live=True
            ),
            LeaderSeen(
                name="restow-migrator", namespace="ns", holder="", renewed=None, is_live=False
            ),
        ],
        notes=["something is missing"],
    )


def printed(width: int, seen: ClusterOverview | None = None) -> list[str]:
    console = Console(width=width, color_system=None, highlight=False, markup=False, record=True)
    with console.capture() as capture:
        status_tables.print_all(seen or view(), console, hints=Hints())
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_tables() -> None:
    """Servers, resources, migrations and leaders, in readable form."""
    assert printed(200) == [
        "SERVER HOST RENEWED",
        "apiserver-a one 2 s ago ok",
        "apiserver-b – 1 min 39 s ago expired",
        "",
        "RESOURCE STORAGE VERSION MAY BE STORED AS SERVERS",
        "deployments.apps – abc=, Unknown 2 apps/v1, 1 apps/v1beta1 disagreeing",
        "pods v1 v1 1 agrees ok",
        "widgets.example.com xyz= ? – unknown",
        "",
        "MIGRATION RESOURCE STATUS PROGRESS AGE",
        f"running pods Running {RUNNING} 3 min 20 s",
        "failed pods Failed 1 object failed 3 min 20 s",
        "done-0 pods Succeeded – 3 min 20 s",
        "done-1 pods Succeeded – 3 min 20 s",
        "done-2 pods Succeeded – 3 min 20 s",
        "failed in failed:",
        "n/o: Invalid: no·[31m",
        "",
        "CONTROLLER LEADER RENEWED",
        "ns/restow-trigger me 1 s ago ok",
        "ns/restow-migrator – – no leader",
        "",
        f"3 resources of https://there: {SUMMARY}",
        "note: something is missing",
    ]


def test_a_superseded_failure_is_only_counted() -> None:
    """A failure that a later migration superseded is not listed; JSON has it."""
    migrations = [
        migration("old", "Failed", is_superseded=True, failed_objects=[{"name": "o"}]),
        migration("new", "Succeeded"),
    ]
    seen = replace(view(), migrations=migrations)
    lines = printed(200, seen)
    assert not any(line.startswith(("old", "failed in old")) for line in lines)
    assert any("migrations: 1 succeeded, 1 superseded" in line for line in lines)
    fields = status_tables.fields_of(seen)["migrations"]
    assert [(each["name"], each["superseded"]) for each in fields] == [
        ("old", True),
        ("new", False),
    ]


def test_narrow_terminals_fold_and_lose_nothing() -> None:
    """On a narrow terminal no text is lost."""
    wide, narrow = ("".join(printed(width)).replace(" ", "") for width in (200, 60))
    assert sorted(wide) == sorted(narrow)


def test_json_has_everything() -> None:
    """JSON has the same content, with all migrations and all failed objects."""
    fields = json.loads(json.dumps(status_tables.fields_of(view())))
    assert fields["time"] == "2026-01-01T12:00:00Z"
    assert fields["resources"][1] == {
        "resource": "pods",
        "verdict": "ok",
        "remark": None,
        "written": {"hash": "h", "version": "v1"},
        "persisted": [{"hash": "h", "version": "v1"}],
        "heartbeatTime": None,
        "servers": [{"id": "a", "version": "v1"}],
        "components": [],
        "stores": [],
        "encryption": None,
    }
    assert len(fields["migrations"]) == 7
    assert fields["migrations"][1]["failedObjects"][0]["name"] == "o"
    assert fields["controllers"][0]["leader"] == "me"
    assert fields["notes"] == ["something is missing"]


def test_agreement_in_words() -> None:
    """One server agrees, several agree, and without reports it is unknown."""
    alone, together, unreported = view().resources[1], view().resources[0], view().resources[2]
    assert agreement_of(alone) == "1 agrees"
    assert agreement_of(together) == "2 apps/v1, 1 apps/v1beta1"
    assert agreement_of(unreported) == "–"
    assert agreement_of(replace(alone, components=("x",))) == "1 agrees (x)"
    assert agreement_of(replace(alone, stores=("0f",))) == "1 agrees (own store)"


def test_components_are_shown_where_there_are_some() -> None:
    """The column with the component exists only if there are aggregated servers."""
    assert not any("COMPONENT" in line for line in printed(200))
    seen = view()
    seen.servers.append(
        ServerSeen(id="c", host="", renewed=None, is_live=True, component="aggregated-x")
    )
    head, first, *others = printed(200, seen)
    assert head.split()[:2] == ["SERVER", "COMPONENT"]
    assert first.split()[:2] == ["apiserver-a", "kube-apiserver"]
    assert others[1].split()[:2] == ["c", "aggregated-x"]
    assert status_tables.fields_of(seen)["servers"][2]["component"] == "aggregated-x"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real server, with one migration that no controller runs."""
    with ServerProcess(tmp_path_factory.mktemp("status"), store="memory:") as running:
        request = {
            "apiVersion": "migration.k8s.io/v1alpha1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": "by-hand"},
            "spec": {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        }
        assert running.request("POST", MIGRATIONS, request)[0] == 201
        yield running


def run(server: ServerProcess, *words: str) -> int:
    return main(["status", "--kubeconfig", str(server.kubeconfig), *words])


def test_a_real_server(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """A new cluster: one server, everything to migrate, no controllers, exit code 0."""
    assert run(server) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert ["configmaps", "v1", "Unknown,", "v1", "1", "agrees", "to", "migrate"] in rows
    assert any(row[:3] == ["by-hand", "deployments.apps", "Pending"] for row in rows)
    assert "no controllers run" in said
    assert "note:" not in said


def test_some_resources_as_json(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Resources are named as in kubectl, and -o json prints one object."""
    assert run(server, "deploy", "events.events.k8s.io", "-o", "json") == 0
    fields = json.loads(capsys.readouterr().out)
    found = {each["resource"]: each for each in fields["resources"]}
    assert found["deployments.apps"]["verdict"] == "migrating"
    assert found["deployments.apps"]["written"]["version"] == "apps/v1"
    # Events of both API groups are stored as one resource.
    assert found["events.events.k8s.io"]["written"]["version"] == "v1"
    assert [each["status"] for each in fields["migrations"]] == ["Pending"]
    assert fields["servers"][0]["live"] is True


def test_errors(server: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An unknown resource is wrong usage, an unreachable server is a failure."""
    assert run(server, "deploymens") == 2
    assert "did you mean deployment" in capsys.readouterr().err
    assert main(["status", "--kubeconfig", str(tmp_path / "none")]) == 2
    gone = tmp_path / "kubeconfig"
    text = server.kubeconfig.read_text().replace(f":{server.port}", ":1")
    gone.write_text(text)
    assert main(["status", "--kubeconfig", str(gone)]) == 1
    assert "connection refused" in capsys.readouterr().err
