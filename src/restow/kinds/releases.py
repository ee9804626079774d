"""Releases: the shipped ones, and those in files.

A release is a YAML file. Parsing checks everything that does not depend on a server, and each error
has the file, the line, and what to do. docs/reference/releases.md describes the format.

Not here: the values of a release (`release_values`), and their use in a server (`restow.registry`).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from restow.kinds.builtin import all_kinds
from restow.kinds.release_values import (
    Release,
    ReleaseError,
    ReleaseKind,
    ReleaseVersion,
    builtin_release_kind,
)

__all__ = [
    "Release",
    "ReleaseError",
    "ReleaseKind",
    "ReleaseVersion",
    "default_release",
    "load_release",
    "shipped_release",
    "shipped_releases",
]

DEFAULT_NAME: Final = "builtin"
FILE_SIZE_MAX: Final = 4 * 1024 * 1024
_SUFFIX: Final = ".yaml"


@cache
def default_release() -> Release:
    """Return the release with all built-in kinds."""
    return Release(DEFAULT_NAME, tuple(builtin_release_kind(kind) for kind in all_kinds()))


def load_release(path: str | Path) -> Release:
    """Load a release from a file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_release(data, str(path))


def parse_release(data: bytes, source: str) -> Release:
    """Parse a release from the bytes of a file; `source` is its name in errors."""
    # Only files need YAML, whose library takes longer to load than this module.
    from restow.kinds.release_reader import read_release  # noqa: PLC0415

    if len(data) > FILE_SIZE_MAX:
        raise ReleaseError(f"{source}: is larger than {FILE_SIZE_MAX} bytes")
    return read_release(data, source)


def shipped_releases() -> tuple[str, ...]:
    """Return the names of the shipped releases, in order."""
    # KEP-1201 0.16: releases x to x+3 support the versions of the KEP's table
    folder = resources.files("restow.kinds") / "releases"
    return tuple(
        sorted(
            each.name.removesuffix(_SUFFIX) for each in folder.iterdir() if _is_release(each.name)
        )
    )


def shipped_release(name: str) -> Release:
    """Return one of the shipped releases, or the default one."""
    if name == DEFAULT_NAME:
        return default_release()
    if name not in shipped_releases():
        known = ", ".join((DEFAULT_NAME, *shipped_releases()))
        raise ReleaseError(f"unknown release {name!r}; shipped releases: {known}")
    file = resources.files("restow.kinds") / "releases" / f"{name}{_SUFFIX}"
    return parse_release(file.read_bytes(), f"{name}{_SUFFIX}")


def _is_release(name: str) -> bool:
    return name.endswith(_SUFFIX)
