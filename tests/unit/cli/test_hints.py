"""Hints: a printed command acts on the same cluster as the running command."""

import argparse
from pathlib import Path

import pytest

from restow.cli.hints import Hints
from restow.cli.main import main, make_whole_parser
from restow.cli.upgrade import _print_blockers, _print_paused
from restow.localcluster.rolling_upgrade import Step
from restow.migration.preflight import PreflightFinding, Reason

DEMO = Hints(data_dir=Path("demo"))
STORE = Hints(store=("--store", "etcd://127.0.0.1:2379"))
PRODUCTION = Hints(kubeconfig=Path("my config"), context="production", asks_api=True)


def test_commands_name_the_directory() -> None:
    """`--data-dir` is repeated; commands that use the API get the kubeconfig of the directory."""
    assert DEMO.command("upgrade", "--to", "x+2") == "restow upgrade --data-dir demo --to x+2"
    assert DEMO.command("census") == "restow census --data-dir demo"
    assert DEMO.command("migrate", "pods") == "restow migrate --kubeconfig demo/kubeconfig pods"
    assert DEMO.command("kubectl", "get", "cm") == "kubectl --kubeconfig demo/kubeconfig get cm"
    assert DEMO.command("doctor") == "restow doctor --data-dir demo"
    assert DEMO.command("store", "delete", "/a") == "restow store delete --data-dir demo /a"


def test_the_default_directory_is_not_repeated() -> None:
    """Only for commands that would otherwise use the cluster of $KUBECONFIG."""
    hints = Hints(data_dir=Path(".restow"))
    assert hints.command("upgrade", "--rollback") == "restow upgrade --rollback"
    assert hints.command("status") == "restow status --kubeconfig .restow/kubeconfig"


def test_commands_name_store_and_context() -> None:
    """Other flags that select a cluster are repeated too, quoted for a shell."""
    assert STORE.command("census") == "restow census --store etcd://127.0.0.1:2379"
    assert STORE.command("status") == "restow status"
    flags = "--kubeconfig 'my config' --context production"
    assert PRODUCTION.command("status", "-w") == f"restow status {flags} -w"
    assert PRODUCTION.command("census") == "restow census --store ADDRESS", "not that in .restow"


def test_commands_inside_an_advice() -> None:
    """Each command gets the flags, unless it has its own."""
    advice = "count with restow census, or: restow migrate pods; kubectl delete pods --all"
    assert DEMO.complete(advice) == (
        "count with restow census --data-dir demo, or: restow migrate --kubeconfig demo/kubeconfig"
        " pods; kubectl --kubeconfig demo/kubeconfig delete pods --all"
    )
    own = "restow census --store ADDRESS --key a; restow up --data-dir other; see restow store"
    assert DEMO.complete(own) == own
    assert Hints().complete(advice) == advice


def test_a_kubeconfig_in_a_data_directory(tmp_path: Path) -> None:
    """The store is in the directory of the kubeconfig, so census can be suggested."""
    arguments = argparse.Namespace(kubeconfig=tmp_path / "kubeconfig", context=None)
    assert Hints.of(arguments).data_dir is None
    (tmp_path / "pki").mkdir()
    (tmp_path / "store.db").touch()
    assert Hints.of(arguments).data_dir == tmp_path


def test_etcd_files_are_repeated() -> None:
    """An address with TLS needs its certificates in the next command as well."""
    arguments = argparse.Namespace(store="etcds://h:1", etcd_cafile=Path("ca.crt"))
    found = Hints.of(arguments).command("census")
    assert found == "restow census --store etcds://h:1 --etcd-cafile ca.crt"


def test_flags_are_accepted() -> None:
    """Every command accepts the flags that a hint adds."""
    parser = make_whole_parser()
    for line in (
        *(DEMO.command(name) for name in ("up", "serve", "census", "doctor", "status")),
        DEMO.command("upgrade", "--rollback"),
        DEMO.command("backup", "file"),
        DEMO.command("store", "list"),
        DEMO.command("controllers"),
        DEMO.command("migrate", "pods"),
        DEMO.command("preflight", "--to", "x"),
        Hints(kubeconfig=Path("a"), context="b").command("doctor"),
    ):
        parser.parse_args(line.split()[1:])


def test_upgrade_repeats_the_directory(capsys: pytest.CaptureFixture[str]) -> None:
    """The next step of a paused upgrade, and its advice, act on the same cluster."""
    _print_paused([Step(1, "x", "x+1")], DEMO, rollback=False)
    _print_paused([Step(1, "x", "x+1")], DEMO, rollback=True)
    blocker = PreflightFinding(
        reason=Reason.MIGRATING, what="a", why="b", advice="restow migrate pods"
    )
    _print_blockers(Step(1, "x", "x+1"), [blocker], DEMO)
    out, err = capsys.readouterr()
    assert "continue: restow upgrade --data-dir demo --to x+1 " in out
    assert "back: restow upgrade --data-dir demo --rollback" in out
    assert "continue: restow upgrade --data-dir demo --rollback" in out
    assert "restow migrate --kubeconfig demo/kubeconfig pods" in err


def test_doctor_repeats_its_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice of doctor can be run as printed, also from JSON."""
    assert main(["doctor", "--data-dir", str(tmp_path), "-o", "json"]) == 2
    assert f"--data-dir {tmp_path}" in capsys.readouterr().out


def test_the_beginning_of_a_message_is_no_command() -> None:
    """The start of an error message of another restow process is not changed."""
    text = "restow serve: the store is damaged; restow restore FILE"
    assert DEMO.complete(text) == (
        "restow serve: the store is damaged; restow restore --data-dir demo FILE"
    )
