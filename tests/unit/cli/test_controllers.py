"""`restow controllers`: arguments and errors."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from restow.cli import controllers
from restow.cli.main import main
from restow.client import LeaderTiming
from restow.migration.crds import DEFINITIONS
from restow.migration.trigger.options import TriggerSource

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: there
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: there, context: {cluster: c, user: u}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig of a cluster that is not running."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    controllers.add_arguments(parser)
    return parser.parse_args(words)


def test_options_reach_the_parts() -> None:
    """Each argument becomes an option of trigger, migrator or process."""
    arguments = parse(
        *("--source", "discovery-ha", "--local-server", "--poll-seconds", "30"),
        *("--parallel", "7", "--in-flight-max", "9", "--rate", "100", "--only", "migrator"),
        *("--namespace", "here", "--no-leader-elect", "--bind", "::1", "--port", "0"),
        *("--page-objects", "33", "--lease-seconds", "30"),
    )
    parts = controllers._part_options(arguments, "host_7_uid")
    assert parts.names == ("migrator",)
    assert parts.trigger.source is TriggerSource.DISCOVERY_HA
    assert (parts.trigger.is_local, parts.trigger.reporter_id) == (True, "host_7_uid")
    assert parts.trigger.rules.poll_seconds == parts.trigger.rules.hold_seconds == 30
    assert parts.migrator.resources_at_once == 7
    assert parts.migrator.engine.patch.in_flight_max == 9
    engine = parts.migrator.engine
    assert engine.patch.objects_per_second == 100
    assert engine.page_limit_first == engine.page_limit_max == engine.patch.page_objects == 33
    options = controllers._process_options(arguments, "host_7_uid", host="host")
    assert (options.identity, options.is_identity_unique) == ("host_7_uid", True)
    assert options.reporter_id == parts.trigger.reporter_id
    assert (options.namespace, options.is_elected) == ("here", False)
    assert (options.bind, options.port) == ("::1", 0)
    assert options.timing == LeaderTiming(lease_seconds=30, renew_seconds=20, retry_seconds=4)


@pytest.mark.parametrize(
    "words",
    [
        ("--parallel", "0"),
        ("--parallel", "x"),
        ("--in-flight-max", "100000"),
        ("--rate", "-1"),
        ("--page-objects", "10001"),
        ("--lease-seconds", "2"),
        ("--rate", "nan"),
        ("--poll-seconds", "0"),
        ("--port", "70000"),
        ("--source", "guessing"),
        ("--only", "both"),
    ],
)
def test_wrong_words_are_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid value gives exit code 2, and is named."""
    with pytest.raises(SystemExit) as ended:
        main(["controllers", *words])
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dry-run",), "--dry-run requires --install"),
        (("--local-server",), "--local-server requires --source discovery-ha"),
        (("--kubeconfig", "nowhere"), "nowhere: no such file"),
        (("--context", "other"), "no context 'other'; available: there"),
    ],
)
def test_conflicting_options_are_usage_errors(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Conflicting options, a missing kubeconfig and an unknown context give exit code 2."""
    given = () if "--kubeconfig" in words else ("--kubeconfig", str(kubeconfig))
    assert main(["controllers", *given, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--install",)])
def test_a_server_that_is_not_there(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """A refused connection gives exit code 1, with the address and the next step."""
    assert main(["controllers", "--kubeconfig", str(kubeconfig), "--port", "0", *words]) == 1
    said = capsys.readouterr().err
    assert "restow controllers: http://127.0.0.1:1: connection refused. Check that" in said


def test_an_account_without_a_home(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a home directory, as in a container, there is no kubeconfig, which is reported."""
    monkeypatch.setattr(Path, "home", _no_home)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert main(["controllers"]) == 2
    assert "no such file; set KUBECONFIG or pass a kubeconfig" in capsys.readouterr().err


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_dry_run_prints_the_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    """It contacts no cluster, and kubectl can apply the output."""
    assert main(["controllers", "--install", "--dry-run"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == list(DEFINITIONS.values())
