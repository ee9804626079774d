"""Files and directories that only their owner may change: created, checked, and restricted.

A store holds every secret of a cluster, and write access to its files gives full control. So:

- A file that others may write is rejected, as it may have been changed already.
- A file that others may only read, and that this user owns, gets a stricter mode, which is logged:
  earlier releases left some files readable. (A key is different: it may have been copied, so
  `key_problem` rejects it.)
- A file that neither this user nor root owns is rejected, and so is a link of another user.

Files that an operator provides are read by `read_kept`: they decide about access, so a file that
others may write is rejected, and so is a secret that others may read. The check and the read use
the same open file.

Commands that only read change no mode: they only need `changeable_by_others`.

Not here: the meaning of the files. Access lists beyond the mode are not checked.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from restow.aio import FileRefused, read_regular_file
from restow.storage.errors import OpenRefused

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
WRITE_BY_OTHERS: Final = 0o022
"""The group counts as others: its members can change without notice."""
KEY_FORBIDDEN: Final = 0o027
"""For keys: no access for others, no write for the group; keys may be shared through a group."""

logger = logging.getLogger(__name__)


class FileExposed(FileRefused):
    """A file that others may change, or a secret that they may read. Its text names the file."""

    def __str__(self) -> str:
        return self.strerror or ""


def read_kept(
    path: Path,
    *,
    bytes_max: int,
    is_secret: bool = False,
    trusted: Collection[int] | None = None,
) -> bytes:
    """Read a file that only this user and root, or the `trusted` users, can change. Blocks.

    Raises OSError; FileExposed for one that others may write or, if it is a secret, read.
    """

    def check(status: os.stat_result) -> None:
        problem = _owner_problem(path, status, trusted) or _mode_problem(
            path, status, is_secret=is_secret
        )
        if problem is not None:
            raise FileExposed(errno.EACCES, problem, str(path))

    return read_regular_file(path, bytes_max=bytes_max, check=check)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, accessible to the owner only, whatever the umask.

    An existing directory is not changed; `secure` checks it.
    """
    missing: list[Path] = []
    for place in (path, *path.parents):
        if place.exists():
            break
        missing.append(place)
    for place in reversed(missing):
        try:
            place.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            continue  # another process created it concurrently, with its own mode
        place.chmod(DIRECTORY_MODE)
    if not path.is_dir():
        raise OpenRefused(f"{path} is not a directory: use another path")


def make_data_directory(path: Path) -> None:
    """Create the directory of a cluster, or check that no other user can write or read it.

    Raises OSError when the system does not permit it.
    """
    make_directory(path)
    secure(path)


def secure(path: Path) -> None:
    """Reject what others may change; remove read permission of others. Raises OSError."""
    problem = ownership_problem(path) or changeable_by_others(path)
    if problem is not None:
        raise OpenRefused(problem)
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    wanted = mode & ~0o077
    if mode == wanted:
        return
    if status.st_uid != os.geteuid():
        return  # root's, and not ours to change
    path.chmod(wanted)
    logger.warning("%s had mode %o, readable by other users: changed to %o", path, mode, wanted)


def ownership_problem(path: Path, trusted: Collection[int] | None = None) -> str | None:
    """Why the owner of a file is not trusted, or None. Default: this user and root are trusted."""
    return _owner_problem(path, path.stat(), trusted)


def _owner_problem(
    path: Path, target: os.stat_result, trusted: Collection[int] | None
) -> str | None:
    if trusted is None:
        trusted = (os.geteuid(), 0)
    link = path.lstat()
    if target.st_uid not in trusted:
        text = f"{path} belongs to another user (uid {target.st_uid})"
    elif link.st_uid not in trusted:
        text = f"{path} is a link of another user (uid {link.st_uid})"
    else:
        return None
    return f"{text}: use one of your own, or run as that user"


def changeable_by_others(path: Path) -> str | None:
    """Why others can change a file, or the contents of a directory; None if they cannot."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if not mode & WRITE_BY_OTHERS:
        return None
    if stat.S_ISDIR(status.st_mode):
        return (
            f"{path} has mode {mode:o}, so other users can change its contents:"
            f" chmod go-w {path}, or use a private directory in it"
        )
    return (
        f"{path} has mode {mode:o}, so other users can write it, and may have done so:"
        f" chmod go= {path} if you are sure of its contents"
    )


def links_problem(path: Path, links: int) -> str | None:
    """Why a file with so many hard links may not be used; None if it may."""
    if links == 1:
        return None
    return (
        f"{path} has {links} hard links: under another name it would have another write-ahead log,"
        " and servers would overwrite each other's writes. Find the other names with `find DIR"
        f" -xdev -samefile {path}` and remove them; copy a store with `restow backup`"
    )


def key_problem(path: Path) -> str | None:
    """Why a key is exposed to other users, or None. Raises OSError."""
    return ownership_problem(path) or _mode_problem(path, path.stat(), is_secret=True)


def _mode_problem(path: Path, status: os.stat_result, *, is_secret: bool) -> str | None:
    mode = stat.S_IMODE(status.st_mode)
    forbidden = KEY_FORBIDDEN if is_secret else WRITE_BY_OTHERS
    if not mode & forbidden:
        return None
    # Of root's file keep the permission by which we may have read it.
    is_own, is_directory = status.st_uid == os.geteuid(), stat.S_ISDIR(status.st_mode)
    safe = (0o700 if is_directory else 0o600) if is_own else mode & ~forbidden
    renew = ", and replace them if others may have read it" if is_secret else ""
    if mode & WRITE_BY_OTHERS and not is_directory:
        holder = "holds secrets and " if is_secret else ""
        return (
            f"{path} {holder}has mode {mode:o}, so other users can write it, and may have done so:"
            f" chmod {safe:o} {path} if you are sure of its contents{renew}"
        )
    return (
        f"{path} holds secrets, and its mode {mode:o} lets other users read it:"
        f" chmod {safe:o} {path}{renew}"
    )
