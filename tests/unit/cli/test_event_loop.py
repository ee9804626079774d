"""The event loop of a command: which errors are suppressed."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from restow.cli.event_loop import run_async


async def report(error: Exception) -> int:
    """Report an error as uvloop does."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Fatal error on SSL protocol", "exception": error}
    )
    return 7


def test_a_connection_that_ends_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Data that arrives on a connection while it is aborted is logged only at debug level."""
    caplog.set_level(logging.INFO)
    late = RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")
    assert run_async(report(late)) == 7
    assert not caplog.records


def test_any_other_error_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Any other error is logged with its traceback."""
    assert run_async(report(ValueError("odd"))) == 7
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_the_loop(has_uvloop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run on uvloop, and without the extra `server` on asyncio's loop."""
    if not has_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def module_of_loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run_async(module_of_loop()).startswith("uvloop" if has_uvloop else "asyncio")
