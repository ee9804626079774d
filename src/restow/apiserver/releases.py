"""Resolves `--release`: a file, or the name of a shipped release. Imports no server modules."""

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
"""A value with such a suffix is a file name, even if no such file exists; others, such as `1.27`,
may be a release name."""


def find_release(wanted: Path | None) -> Release:
    """Return a release from a file, or a shipped one by name. Raises `ReleaseError`."""
    if wanted is None:
        return default_release()
    if str(wanted) in ("builtin", *shipped_releases()) and not wanted.exists():
        return shipped_release(str(wanted))
    if str(wanted) == wanted.name and wanted.suffix not in _FILE_ENDS and not wanted.exists():
        names = ", ".join(("builtin", *shipped_releases()))
        raise ReleaseError(f"unknown release {str(wanted)!r}: use a file, or one of {names}")
    return load_release(wanted)
