"""Reads files that flags name; errors name the flag and the file.

These files decide which clients are trusted, so a file that other users may write is refused.
Not here: the use of the files, and when they are reloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from restow.apimachinery.certificates import read_pem
from restow.apiserver.certificates import PkiError
from restow.httpserver import TlsError
from restow.storage.private_files import FileExposed, read_kept

FILE_BYTES_MAX: Final = 1024 * 1024
"""Limit of each file: four times the size of a bundle of all public CAs."""


class OptionRefused(PkiError, ValueError):
    """A file named by a flag that cannot be used. Names the flag, the file and the problem."""


@contextmanager
def named(flag: str, path: Path) -> Iterator[None]:
    """Add the flag and the file to errors raised within."""
    try:
        yield
    except OptionRefused:
        raise
    except (OSError, PkiError, TlsError, ValueError) as error:
        text = str(error)
        if isinstance(error, OSError) and not isinstance(error, FileExposed):
            text = f"cannot be read: {error.strerror or error}"
        place = flag if str(path) in text else f"{flag} {path}"
        raise OptionRefused(f"{place}: {text}") from error


def read_option(flag: str, path: Path, *, is_secret: bool = False) -> bytes:
    """Read the file of a flag, which others may not write, nor read if it is a secret.

    Blocks. Raises OptionRefused.
    """
    with named(flag, path):
        return read_kept(path, bytes_max=FILE_BYTES_MAX, is_secret=is_secret)


def read_authorities(flag: str, path: Path) -> bytes:
    """Read a file that must contain certificates in PEM form."""
    pem = read_option(flag, path)
    with named(flag, path):
        check_authorities(pem)
    return pem


def check_authorities(pem: bytes) -> None:
    """Raise PkiError for a text without certificates."""
    try:
        read_pem(pem)
    except ValueError:
        # Not the library's message, which refers to its FAQ.
        raise PkiError("contains no certificate in PEM form") from None
