"""The content of the disk after a power cut, at any point of a `FaultyVfs`'s journal.

A write is durable once its file has been synced. Until then a cut may keep it, drop it, or keep
the first sectors of it, independently of other writes. Deleting or creating a file is durable once
the directory has been synced, which SQLite does with the first sync of a file it has created.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tests.support.faulty_vfs import (
    Deleted,
    Marked,
    Opened,
    Operation,
    Synced,
    SyncFailed,
    Truncated,
    Written,
)

SECTOR_BYTES: Final = 512


class Fate(Protocol):
    """Decides the fate of one write that was not synced."""

    def keeps(self, size: int) -> int:
        """How many of its bytes reach the disk; a deletion or a truncation has size 1."""


@dataclass(slots=True)
class _Change:
    what: Written | Truncated
    durable: bool = False
    doubtful: bool = False  # a sync of it has failed: no later one makes it durable


@dataclass(slots=True)
class _File:
    content: bytearray
    listed: bool  # whether its directory entry is durable
    changes: list[_Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.changes:
            change.durable = not change.doubtful
        settled = 0
        for change in self.changes:
            if not change.durable:
                break
            _apply(self.content, change.what, keep=None)
            settled += 1
        del self.changes[:settled]

    def sync_failed(self) -> None:
        for change in self.changes:
            change.doubtful = change.doubtful or not change.durable

    def after_cut(self, fate: Fate) -> bytes:
        content = bytearray(self.content)
        for change in self.changes:
            size = len(change.what.data) if isinstance(change.what, Written) else 1
            _apply(content, change.what, keep=None if change.durable else fate.keeps(size))
        return bytes(content)


class Disk:
    """The files of one directory, after the part of the journal that was played."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._ghosts: dict[str, _File] = {}  # deleted, but a cut could restore them

    def play(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._play(operation)

    def after_cut(self, fate: Fate) -> dict[str, bytes]:
        """The files, by name, after one possible cut at this point."""
        left = {
            name: file.after_cut(fate)
            for name, file in self._files.items()
            if file.listed or fate.keeps(1)
        }
        for name, file in self._ghosts.items():
            if name not in left and not fate.keeps(1):
                left[name] = file.after_cut(fate)
        return left

    def _play(self, operation: Operation) -> None:
        match operation:
            case Opened(file=name, content=content):
                # The driver creates the store file itself, and syncs its directory.
                listed = content is not None or not name.endswith(("-wal", "-journal"))
                self._files[name] = _File(bytearray(content or b""), listed)
            case Written(file=name) | Truncated(file=name):
                self._files[name].changes.append(_Change(operation))
            case Synced(file=name):
                self._files[name].sync()
                if not self._files[name].listed:
                    self._sync_directory()
            case SyncFailed(file=name):
                self._files[name].sync_failed()
            case Deleted(file=name, durable=durable):
                self._ghosts[name] = self._files.pop(name)
                if durable:
                    self._sync_directory()
            case Marked():
                pass

    def _sync_directory(self) -> None:
        self._ghosts.clear()
        for file in self._files.values():
            file.listed = True


class KeepAll:
    """No cut at all: the state after a killed process on a running machine."""

    def keeps(self, size: int) -> int:
        return size


class KeepNothing:
    """The hardest cut: only synced data survive."""

    def keeps(self, size: int) -> int:
        return 0


class Chance(Protocol):
    """The part of `restow.aio.Randomness` that a random cut needs."""

    def randrange(self, stop: int) -> int: ...


class KeepSome:
    """Any subset: each write is kept, dropped or torn between two sectors."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def keeps(self, size: int) -> int:
        match self._chance.randrange(3):
            case 0:
                return 0
            case 1:
                return size
            case _:
                sectors = -(-size // SECTOR_BYTES)
                return min(self._chance.randrange(sectors + 1) * SECTOR_BYTES, size)


class KeepFirst:
    """A prefix: the writes up to some point are kept, later ones dropped."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._over = False

    def keeps(self, size: int) -> int:
        self._over = self._over or self._chance.randrange(4) == 0
        return 0 if self._over else size


def write_image(files: dict[str, bytes], directory: Path) -> None:
    """Write the files after a cut to an empty directory."""
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def _apply(content: bytearray, change: Written | Truncated, *, keep: int | None) -> None:
    match change:
        case Written(offset=offset, data=data):
            kept = data if keep is None else data[:keep]
            if not kept:
                return
            if len(content) < offset:
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(kept)] = kept
        case Truncated(size=size):
            if keep == 0:
                return
            del content[size:]
            content.extend(bytes(size - len(content)))
