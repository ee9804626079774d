"""Optional dependencies: the hint for an ImportError."""

from __future__ import annotations

import sys

import pytest

from restow.aio.extras import EXTRAS, missing_extra, require_extra

HINT = "needs the extra 'etcd': pip install 'restow[etcd]'"


@pytest.mark.parametrize("name", ["grpc", "grpc.aio", "google", "google.protobuf"])
def test_a_library_of_an_extra_is_recognised(name: str) -> None:
    """The library itself, a part of it, or its namespace package."""
    assert missing_extra(ModuleNotFoundError("missing", name=name)) == HINT


def test_the_cause_of_an_error_is_found() -> None:
    """Also when tasks fail as a group, or another error was raised from it."""
    error = ModuleNotFoundError("missing", name="grpc")
    outer = RuntimeError("no store")
    outer.__cause__ = error
    assert missing_extra(outer) == HINT
    assert missing_extra(ExceptionGroup("tasks", [ValueError("other"), outer])) == HINT


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("missing", name="restow.nonsense"),
        ModuleNotFoundError("missing"),
        ImportError("broken", name="grpc"),
        ValueError("odd"),
    ],
    ids=repr,
)
def test_other_errors_are_no_missing_extra(error: Exception) -> None:
    """A library that is installed and broken keeps its traceback, and so does a bug of ours."""
    assert missing_extra(error) == ""


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_required(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are installed here; without one of its libraries an extra is missing."""
    require_extra(extra)
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)
    with pytest.raises(ModuleNotFoundError) as raised:
        require_extra(extra)
    assert f"restow[{extra}]" in missing_extra(raised.value)
