"""Which release is meant: a file, or a name that comes with restow. Loads nothing of a server."""

from __future__ import annotations

from pathlib import Path

from restow.kinds.releases import (
    Release,
    default_release,
    load_release,
    shipped_release,
    shipped_releases,
)


def find_release(wanted: Path | None) -> Release:
    """A file, or the name of a release that comes with restow. Raises `ReleaseError`."""
    if wanted is None:
        return default_release()
    if str(wanted) in ("builtin", *shipped_releases()) and not wanted.exists():
        return shipped_release(str(wanted))
    return load_release(wanted)
