"""Which release is meant: a file, or a name that comes with restow. Loads nothing of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from restow.kinds.releases import (
    Release,
    ReleaseError,
    default_release,
    load_release,
    shipped_release,
    shipped_releases,
)

_FILE_ENDS: Final = (".yaml", ".yml", ".json")
"""What ends so is taken for a file, even if it is not there; a dot alone tells nothing (1.27)."""


def find_release(wanted: Path | None) -> Release:
    """A file, or the name of a release that comes with restow. Raises `ReleaseError`."""
    if wanted is None:
        return default_release()
    if str(wanted) in ("builtin", *shipped_releases()) and not wanted.exists():
        return shipped_release(str(wanted))
    if str(wanted) == wanted.name and wanted.suffix not in _FILE_ENDS and not wanted.exists():
        names = ", ".join(("builtin", *shipped_releases()))
        raise ReleaseError(f"no release {str(wanted)!r} is known: give a file, or one of {names}")
    return load_release(wanted)
