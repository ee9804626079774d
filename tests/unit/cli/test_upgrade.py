"""`restow upgrade`: the question before anything is rolled."""

import pytest

from restow.cli.upgrade import _is_confirmed
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
    """What would be done is shown; no answer at all, which is Ctrl-D, is a no as well."""

    def reply(_question: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", reply)
    assert _is_confirmed(STEPS) is is_yes
    assert "server 1: x -> x+1" in capsys.readouterr().out
