"""Translation of apsw's errors into storage errors."""

import errno
import inspect

import apsw
import pytest

from restow.storage.errors import (
    Compacted,
    OpenRefused,
    StorageError,
    StoreDamaged,
    StoreFull,
    Unavailable,
)
from restow.storage.interface import Revision
from restow.storage.sqlite.errors import is_settled, translate

DOCUMENTED: dict[type[Exception], type[StorageError]] = {
    apsw.FullError: StoreFull,
    apsw.CorruptError: StoreDamaged,
    apsw.NotADBError: StoreDamaged,
    apsw.CantOpenError: OpenRefused,
    apsw.ReadOnlyError: OpenRefused,
    apsw.PermissionsError: OpenRefused,
}
FOREIGN = [
    value for _, value in inspect.getmembers(apsw, inspect.isclass) if issubclass(value, Exception)
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda kind: kind.__name__)
def test_every_apsw_error_is_translated(foreign: type[Exception]) -> None:
    """Each class of apsw has the documented meaning; those without one are Unavailable."""
    error = foreign("the text")
    translated = translate(error)
    assert type(translated) is DOCUMENTED.get(foreign, Unavailable)
    assert "the text" in str(translated)


def test_apsw_has_the_errors_that_we_know() -> None:
    """The list above is not empty by accident."""
    assert len(FOREIGN) > 25
    assert set(DOCUMENTED) <= set(FOREIGN)


@pytest.mark.parametrize(
    ("number", "meaning"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, Unavailable)],
)
def test_the_operating_system_s_errors(number: int, meaning: type[StorageError]) -> None:
    """A full disk is StoreFull, whatever reports it; other system errors are Unavailable."""
    assert type(translate(OSError(number, "said the kernel"))) is meaning


def test_our_own_errors_pass() -> None:
    """A storage error stays the same object."""
    error = Compacted(Revision(5))
    assert translate(error) is error


def test_settled_errors() -> None:
    """Only errors before the last write of a commit count as settled."""
    assert is_settled(apsw.FullError())
    assert is_settled(apsw.BusyError())
    assert not is_settled(apsw.IOError())
    assert not is_settled(apsw.InternalError())
