"""Set-up of `.venv`: two levels, each installed once, and again after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import python_environment as environment

EDITABLE = "editable"


class Recorder:
    """A fake of pip and venv that can fail."""

    def __init__(self, folder: Path) -> None:
        self.done: list[str] = []
        self.fails_at = ""
        self._venv = folder / ".venv"

    def make(self) -> None:
        self._venv.mkdir(exist_ok=True)
        self.done.append("venv")

    def pip(self, *arguments: str) -> None:
        step = EDITABLE if "--editable" in arguments else Path(arguments[-1]).name
        if step == self.fails_at:
            raise environment.SetupError("interrupted")
        self.done.append(step)

    def set_up(self, level: str) -> list[str]:
        """Returns the steps of one run."""
        self.done.clear()
        environment.bring_up_to_date(level)
        return list(self.done)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    locks = {level: tmp_path / path.name for level, path in environment.LOCKS.items()}
    for path in (*locks.values(), tmp_path / "pyproject.toml"):
        path.write_text(path.name)
    made = Recorder(tmp_path)
    monkeypatch.setattr(environment, "LOCKS", locks)
    monkeypatch.setattr(environment, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "stamp.json")
    monkeypatch.setattr(environment, "_make_empty_venv", made.make)
    monkeypatch.setattr(environment, "_pip", made.pip)
    return made


RUN = ["venv", "requirements-run.lock", EDITABLE]
TEST = ["venv", "requirements.lock", EDITABLE]


def test_running_needs_its_own_lock_only(recorder: Recorder) -> None:
    """`make up` installs the packages for running, once."""
    assert recorder.set_up("run") == RUN
    assert recorder.set_up("run") == []


def test_tests_add_the_rest(recorder: Recorder) -> None:
    """`make test` completes the environment of `make up`, which then finds all its packages."""
    recorder.set_up("run")
    assert recorder.set_up("test") == ["requirements.lock"]
    assert recorder.set_up("test") == []
    assert recorder.set_up("run") == []


def test_tests_first(recorder: Recorder) -> None:
    """In an empty environment, `make test` installs the whole lock at once."""
    assert recorder.set_up("test") == TEST
    assert recorder.set_up("run") == []


@pytest.mark.parametrize("first", ["run", "test"])
def test_a_changed_project_is_installed_again(recorder: Recorder, first: str) -> None:
    """Only its metadata: the packages stay, also those of a higher level."""
    recorder.set_up(first)
    environment.PROJECT.write_text("changed")
    assert recorder.set_up("run") == [EDITABLE]
    assert recorder.set_up(first) == []


def test_a_changed_lock_starts_from_nothing(recorder: Recorder) -> None:
    """Packages that were removed from a lock are not kept; a run installs only the packages it
    needs."""
    recorder.set_up("test")
    environment.LOCKS["test"].write_text("changed")
    assert recorder.set_up("run") == RUN
    environment.LOCKS["run"].write_text("changed")
    assert recorder.set_up("test") == TEST


@pytest.mark.parametrize("step", ["requirements.lock", EDITABLE])
def test_an_interrupted_run_is_repeated(recorder: Recorder, step: str) -> None:
    """After any interruption, the next run starts with an empty environment."""
    recorder.set_up("run")
    environment.PROJECT.write_text("changed")
    recorder.fails_at = step
    with pytest.raises(environment.SetupError):
        recorder.set_up("test")
    recorder.fails_at = ""
    assert recorder.set_up("test") == TEST


def test_a_stamp_that_cannot_be_read(recorder: Recorder) -> None:
    """From an earlier release, or truncated: everything is installed again."""
    recorder.set_up("run")
    environment.STAMP.write_text('{"lock": "of an earlier release"}')
    assert recorder.set_up("run") == RUN
    environment.STAMP.write_text("{")
    assert recorder.set_up("run") == RUN
