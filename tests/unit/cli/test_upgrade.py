"""`restow upgrade`: the confirmation before an upgrade."""

import pytest

from restow.cli.upgrade import _is_confirmed, report_nothing_to_do
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.localcluster.rolling_upgrade import Step

STEPS = [Step(0, "x", "x+1"), Step(1, "x", "x+1")]


@pytest.mark.parametrize(
    ("answer", "is_yes"),
    [("y", True), (" YES ", True), ("", False), ("n", False), ("yess", False), (None, False)],
)
def test_only_a_yes_is_one(
    answer: str | None,
    is_yes: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The steps are printed; Ctrl-D counts as no."""

    def reply(_question: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", reply)
    assert _is_confirmed(STEPS) is is_yes
    assert "server 1: x -> x+1" in capsys.readouterr().out


@pytest.mark.parametrize(("state", "code"), [("ready", 0), ("not ready", 1), ("starting", 1)])
def test_nothing_to_do_is_said_of_servers_that_run(
    state: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that has the release but is not ready is named, and the exit code is 1."""
    processes = tuple(
        ProcessView(name=f"server-{index}", state=each, index=index, release="x", note="why")
        for index, each in enumerate((state, "ready"))
    )
    overview = ProcessOverview(
        pid=1,
        data_dir="/d",
        kubeconfig="",
        front_url="",
        store="sqlite",
        is_ready=False,
        processes=processes,
    )
    assert report_nothing_to_do(overview, server=None) == code
    told = capsys.readouterr()
    assert ("already run this release" in told.out) is (code == 0)
    assert (f"server 0 is not ready ({state}: why, release x)" in told.err) is (code == 1)
    assert report_nothing_to_do(overview, server=1) == 0
