"""The arguments of `restow up`, and those of `restow serve` for several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.cli.main import main
from restow.cli.up import overview_table, release_name
from restow.localcluster.messages import ProcessOverview, ProcessView


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("up", "--servers=0"), 2, "not a number from 1"),
        (("up", "--port=70000"), 2, "not a port number"),
        (("up", "--etcd-members=2"), 2, "invalid choice"),
        (("up", "--store=memory:"), 1, "its own store"),
        (
            ("up", "--release=nonsense"),
            1,
            "unknown release 'nonsense': use a file, or one of builtin, ",
        ),
        (("up", "--etcd-members=3"), 1, "requires --store etcd"),
        (("serve", "--workers=0"), 2, "not a number from 1"),
        (("serve", "--workers=2", "--store=memory:"), 2, "its own store"),
        (("serve", "--workers=2", "--front-port=0"), 2, "cannot be used with --front-port"),
        (("serve", "--front-fds=three"), 2, "not a list of file descriptors"),
        (("serve", "--front-bind=127.0.0.1"), 2, "--front-bind: requires --front-port"),
    ],
)
def test_conflicting_options_are_rejected(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """Each error is reported before anything is started, with its reason."""
    command = [words[0], f"--data-dir={tmp_path / 'd'}", *words[1:]]
    try:
        found = main(command)
    except SystemExit as error:
        found = int(str(error.code))
    assert found == code
    assert said in capsys.readouterr().err


def test_a_release_file_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers may be started in another directory, so the absolute path is stored."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("release: mine\n")
    assert release_name("mine.yaml") == str(tmp_path / "mine.yaml")
    assert release_name("x+1") == "x+1"


def test_the_table_has_a_row_for_each_process() -> None:
    """Every process is shown, even with missing details."""
    overview = ProcessOverview(
        pid=1,
        data_dir="d",
        kubeconfig="k",
        front_url="https://127.0.0.1:6443",
        store="sqlite",
        is_ready=False,
        processes=(
            ProcessView(name="etcd-0", state="ready", pid=5),
            ProcessView(name="server-0", state="restarting", note="ended", restarts=2, index=0),
        ),
    )
    table = overview_table(overview)
    assert table.row_count == 2
    assert [str(cell) for cell in table.columns[5].cells] == ["", "ended, restarts: 2"]
