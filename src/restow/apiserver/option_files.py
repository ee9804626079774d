"""Files that an operator has named by a flag: read with care, and refused by the name of the flag.

Whoever gets a refusal looks for the word that he has written, so each has it. These files decide
who comes in, so none is taken that others may write. Not here: what the files are for, and when
they are read again.
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
"""Of any of them; bundles of all authorities of the world have a quarter of it."""


class OptionRefused(PkiError, ValueError):
    """A file that was given and cannot be used. Names the flag, the file, and what is wrong."""


@contextmanager
def named(flag: str, path: Path) -> Iterator[None]:
    """Let what is refused within name the flag that has brought it, and the file."""
    try:
        yield
    except OptionRefused:
        raise
    except (OSError, PkiError, TlsError, ValueError) as error:
        text = str(error)
        if isinstance(error, OSError) and not isinstance(error, FileExposed):
            text = f"it cannot be read: {error.strerror or error}"
        place = flag if str(path) in text else f"{flag} {path}"
        raise OptionRefused(f"{place}: {text}") from error


def read_option(flag: str, path: Path, *, is_secret: bool = False) -> bytes:
    """What is in the file of a flag, which others may not write, nor read if it is a secret.

    It blocks. Raises OptionRefused.
    """
    with named(flag, path):
        return read_kept(path, bytes_max=FILE_BYTES_MAX, is_secret=is_secret)


def read_authorities(flag: str, path: Path) -> bytes:
    """The same for one that must hold certificates in PEM form."""
    pem = read_option(flag, path)
    with named(flag, path):
        check_authorities(pem)
    return pem


def check_authorities(pem: bytes) -> None:
    """Raises PkiError for what holds no certificate."""
    try:
        read_pem(pem)
    except ValueError:
        # Not the words of the library: they send people to its questions and answers.
        raise PkiError("it does not hold a certificate in PEM form") from None
