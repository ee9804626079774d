"""`restow serve`: arguments become options, and conflicting ones give one error line."""

import argparse
import os
from pathlib import Path

import pytest

from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.options import CoordinationOptions, ServeOptions
from restow.cli import serve
from restow.cli.main import main
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked


def options(*words: str) -> ServeOptions:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return serve._options(parser.parse_args(words))


def test_defaults() -> None:
    """Omitted arguments have the defaults of the options."""
    found = options()
    assert found == ServeOptions(data_dir=found.data_dir)
    assert found.coordination == CoordinationOptions()
    assert found.identity_lease_duration_seconds == 15
    assert found.identity_lease_renew_interval_seconds == 5


def test_words() -> None:
    """Each argument sets its option."""
    found = options(
        *("--coordination", "vote", "--guarantee", "loose", "--loose-bound-seconds", "30"),
        *("--vote-bootstrap", "force", "--change-coordination-mode"),
        *("--identity-lease-duration-seconds", "3", "--livez-grace-period", "2m"),
        *("--identity-lease-renew-interval-seconds", "0.5"),
        *("--feature-gates", "StorageVersionHash=false", "--feature-gates=APIServerIdentity=true"),
    )
    assert found.coordination == CoordinationOptions(
        mode="vote",
        guarantee="loose",
        loose_bound_seconds=30,
        vote_bootstrap="force",
        change_mode=True,
    )
    assert found.identity_lease_duration_seconds == 3
    assert found.identity_lease_renew_interval_seconds == 0.5
    assert found.livez_grace_seconds == 120
    assert found.feature_gates == FeatureGates(storage_version_hash=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--feature-gates Nothing=true", "unknown feature gate 'Nothing'; known gates: API"),
        ("--feature-gates StorageVersionAPI=maybe", "is set to 'maybe', which is neither true"),
        ("--feature-gates APIServerIdentity=false", "StorageVersionAPI needs APIServerIdentity"),
        (
            "--coordination vote --feature-gates StorageVersionAPI=false",
            "--coordination vote needs the feature gate StorageVersionAPI",
        ),
        ("--guarantee strict", "--guarantee: requires --coordination vote"),
        ("--vote-bootstrap wait", "--vote-bootstrap: requires --coordination vote"),
        ("--loose-bound-seconds 5", "--loose-bound-seconds: requires --coordination vote"),
        (
            "--coordination vote --loose-bound-seconds 5",
            "--loose-bound-seconds requires --guarantee loose",
        ),
        (
            "--coordination vote --guarantee loose --loose-bound-seconds -5",
            "--loose-bound-seconds -5 is not above 0",
        ),
        ("--identity-lease-renew-interval-seconds 7.5", "less than half of --identity-lease-"),
        ("--identity-lease-duration-seconds 0", "0 is not between 1 and 86400"),
    ],
)
def test_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Conflicting arguments: one line with the reason, before anything is opened."""
    assert main(["serve", "--data-dir", "/nonexistent/d", *words.split()]) == serve.EXIT_USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("restow serve: ")
    assert said in line


@pytest.mark.parametrize(
    "words",
    [
        "--event-ttl nan",
        "--event-ttl inf",
        "--livez-grace-period 0",
        "--identity-lease-duration-seconds 1.5",
        "--identity-lease-duration-seconds 9999999999",
        "--identity-lease-renew-interval-seconds often",
        "--identity-lease-renew-interval-seconds nan",
        "--coordination none",
        "--guarantee some",
    ],
)
def test_no_such_value(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid value is named together with its flag."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *words.split()])
    assert caught.value.code == serve.EXIT_USAGE
    last = capsys.readouterr().err.splitlines()[-1]
    assert all(repr(word) in last or word in last for word in words.split())


def test_the_kubeconfig_of_a_running_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server must not overwrite it, whichever flag selects it."""
    layout = Layout(tmp_path)
    with locked(layout):
        for words in (
            ["--data-dir", str(tmp_path)],
            ["--data-dir", str(tmp_path / "other"), "--kubeconfig", str(layout.kubeconfig)],
            ["--data-dir", str(tmp_path), "--workers", "2"],
        ):
            assert main(["serve", *words]) == 1
            err = capsys.readouterr().err
            assert f"`restow up` runs a cluster in {tmp_path} (process {os.getpid()})" in err
            assert "another --data-dir" in err
        assert not layout.kubeconfig.exists()
