"""Release files of a cluster, kept by content: `DIR/releases/<sha256>.yaml`.

Servers run from the copy, so a change of the original has no effect until `restow upgrade`. Two
releases are the same if and only if their copies have the same path. A release that is shipped with
restow is kept by its name.

Not here: the content of a release (`restow.kinds.releases`), and the release of each server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from restow.aio import read_regular_file
from restow.apiserver.pki import write_secret
from restow.apiserver.releases import find_release
from restow.kinds.releases import (
    DEFAULT_NAME,
    FILE_SIZE_MAX,
    Release,
    ReleaseError,
    parse_release,
)
from restow.localcluster.layout import Layout
from restow.localcluster.state import ClusterState

DIGEST_CHARACTERS_SHOWN: Final = 12
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def release_of(name: str) -> Release:
    """The release with this name or path. Raises ReleaseError."""
    return find_release(None if name == DEFAULT_NAME else Path(name))


def keep_release(name: str, layout: Layout) -> str:
    """Copy a release file into the data directory; return the path of the copy.

    The name of a shipped release is returned unchanged. Raises ReleaseError.
    """
    path = Path(name)
    if not path.is_absolute():
        release_of(name)
        return name
    if path.parent == layout.releases and digest_of(name) is not None:
        _read_copy(path)
        return name
    data = _read(path)
    parse_release(data, name)
    copy = layout.releases / f"{_sha256(data)}.yaml"
    put_copy(copy, data)
    return str(copy)


def with_file(files: Mapping[str, str], release: str, file: str | None) -> dict[str, str]:
    """The original files of kept releases, with the one of this release added."""
    digest = digest_of(release)
    if digest is None or file is None or digest_of(file) is not None:
        return dict(files)
    return {**files, digest: file}


def put_copy(copy: Path, data: bytes) -> None:
    """Write a copy, unless it exists and is intact. Raises ReleaseError."""
    try:
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (copy.is_file() and _sha256(copy.read_bytes()) == copy.stem):
            write_secret(copy, data)
    except OSError as error:
        raise ReleaseError(f"{copy} cannot be written: {error.strerror}") from error


def read_copies(state: ClusterState) -> dict[str, bytes]:
    """The content of each kept release that a server runs or can be rolled back to."""
    found: dict[str, bytes] = {}
    for name in _names(state):
        if digest_of(name) is not None:
            with suppress(ReleaseError):
                found[name] = _read_copy(Path(name))
    return found


def settle_releases(state: ClusterState, layout: Layout) -> ClusterState:
    """The state with every release file kept by content. Raises ReleaseError.

    A state of an earlier restow contains the original paths; they are copied now. Copies are
    looked up in this data directory, which may have been moved, and restored from an unchanged
    original.
    """
    files = dict(state.release_files)
    servers = tuple(
        msgspec.structs.replace(each, release=_settled(each.release, files, layout))
        for each in state.servers
    )
    upgrade = state.upgrade
    if upgrade is not None:
        # A missing file prevents a rollback, but no start.
        upgrade = msgspec.structs.replace(
            upgrade,
            target=_settled_if_there(upgrade.target, files, layout),
            origins=tuple(_settled_if_there(each, files, layout) for each in upgrade.origins),
        )
    return msgspec.structs.replace(state, servers=servers, upgrade=upgrade, release_files=files)


def original_notice(release: str, files: Mapping[str, str]) -> str:
    """A notice if the original of a kept release has changed or is missing; else empty."""
    digest = digest_of(release)
    original = files.get(digest or "")
    if digest is None or original is None:
        return ""
    with suppress(ReleaseError):
        if _sha256(_read(Path(original))) == digest:
            return ""
        return (
            f"release file {original} has changed; the servers still run the previous content, kept"
            f" as {release}. To upgrade them to the new content: restow upgrade --to {original}"
        )
    return f"release file {original} cannot be read; the servers run its content, kept as {release}"


def has_copies(state: ClusterState) -> bool:
    """Whether a server runs, or can be rolled back to, a release that is kept as a file."""
    return any(digest_of(name) is not None for name in _names(state))


def copy_problem(release: str, files: Mapping[str, str]) -> str:
    """Why no server can start with a kept release, with the remedy; empty if it can.

    A damaged copy can be restored from an unchanged original.
    """
    if digest_of(release) is None:
        return ""
    try:
        _read_copy(Path(release), files)
    except ReleaseError as error:
        return str(error) if _original_of(release, files) is None else ""
    return ""


def restore_copy(release: str, files: Mapping[str, str]) -> None:
    """Restore the damaged or missing copy of a kept release. Raises ReleaseError."""
    if digest_of(release) is None:
        return
    try:
        _read_copy(Path(release), files)
    except ReleaseError:
        original = _original_of(release, files)
        if original is None:
            raise
        put_copy(Path(release), _read(Path(original)))


def rollback_notices(state: ClusterState) -> Iterator[str]:
    """Notices about releases before the last upgrade that no server can start with."""
    in_use = releases_in_use(state)
    origins = state.upgrade.origins if state.upgrade is not None else ()
    for release in dict.fromkeys(origins):
        if release not in in_use and (problem := copy_problem(release, state.release_files)):
            yield f"a rollback of the last upgrade is not possible: {problem}"


def at_layout(state: ClusterState, layout: Layout) -> ClusterState:
    """The state with the paths of kept releases in this data directory, which may have moved."""

    def moved(name: str) -> str:
        digest = digest_of(name)
        return name if digest is None else str(layout.releases / f"{digest}.yaml")

    upgrade = state.upgrade
    if upgrade is not None:
        origins = tuple(moved(each) for each in upgrade.origins)
        upgrade = msgspec.structs.replace(upgrade, target=moved(upgrade.target), origins=origins)
    servers = tuple(
        msgspec.structs.replace(each, release=moved(each.release)) for each in state.servers
    )
    return msgspec.structs.replace(state, servers=servers, upgrade=upgrade)


def release_label(release: str, files: Mapping[str, str]) -> str:
    """The display name of a release: its name, or the file with the start of its SHA-256."""
    digest = digest_of(release)
    if digest is None:
        return release
    original = Path(files[digest]).name if digest in files else release
    return f"{original} (sha256 {digest[:DIGEST_CHARACTERS_SHOWN]})"


def digest_of(release: str) -> str | None:
    """The SHA-256 in the path of a kept release; None for all others."""
    path = Path(release)
    is_copy = path.parent.name == "releases" and _DIGEST.fullmatch(path.stem) is not None
    return path.stem if is_copy else None


def releases_in_use(state: ClusterState) -> list[str]:
    """The releases of the servers, without duplicates."""
    return sorted({server.release for server in state.servers})


def _names(state: ClusterState) -> set[str]:
    origins = state.upgrade.origins if state.upgrade is not None else ()
    return {*(server.release for server in state.servers), *origins}


def _settled(name: str, files: dict[str, str], layout: Layout) -> str:
    digest = digest_of(name)
    if digest is None:
        kept = keep_release(name, layout)
        files.update(with_file(files, kept, name))
        return kept
    copy = layout.releases / f"{digest}.yaml"
    restore_copy(str(copy), files)
    return str(copy)


def _settled_if_there(name: str, files: dict[str, str], layout: Layout) -> str:
    try:
        return _settled(name, files, layout)
    except ReleaseError:
        return name


def _original_of(release: str, files: Mapping[str, str]) -> str | None:
    """The original file of a release, if it is unchanged."""
    original = files.get(digest_of(release) or "")
    return None if original is None or original_notice(release, files) else original


def _read_copy(copy: Path, files: Mapping[str, str] = MappingProxyType({})) -> bytes:
    origin = f", as it was copied from {files[copy.stem]}" if copy.stem in files else ""
    remedy = f"restore the file with the SHA-256 in its name{origin}"
    try:
        data = _read(copy)
    except ReleaseError as error:
        raise ReleaseError(f"{error}: {remedy}") from error
    if _sha256(data) != copy.stem:
        raise ReleaseError(f"{copy}: this copy of a release file was changed: {remedy}")
    return data


def _read(path: Path) -> bytes:
    try:
        return read_regular_file(path, bytes_max=FILE_SIZE_MAX)
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read: {error.strerror}") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
