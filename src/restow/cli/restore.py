"""`restow restore`: restore a backup (SQLite or etcd) into a new store (SQLite or etcd).

The work is in `restow.storage.restore`; this module has the arguments and the output.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson

from restow.aio import Runtime
from restow.census.tally import Opener
from restow.cli.argument_types import whole_number
from restow.cli.backup import EXIT_TERMINATED, stop_on_signal
from restow.cli.census import opener_of
from restow.cli.hints import Hints
from restow.cli.output import fail
from restow.cli.store_arguments import DATA_DIR_DEFAULT, add_store, chosen_store, progress_line
from restow.encryption.decryption import key_named_in
from restow.localcluster.commands import option_value
from restow.localcluster.errors import ClusterRefused, ClusterRuns
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked
from restow.localcluster.release_files import release_label, release_of, releases_in_use
from restow.localcluster.restore_record import (
    UNREADABLE_SHOWN_MAX,
    BackupReport,
    RestoreRecord,
    judge_backup,
    write_record,
)
from restow.localcluster.state import ClusterState, read_state
from restow.storage.errors import CannotOpen, OpenRefused, StorageError
from restow.storage.private_files import make_data_directory
from restow.storage.restore import (
    AHEAD_ETCD,
    AHEAD_MAX,
    AHEAD_SQLITE,
    RAISE_MAX,
    RESTORE_FORMS,
    Restored,
    restore_backup,
)

_fail = partial(fail, "restore")
EXIT_FAILED = 1
EXIT_USAGE = 2

EPILOG = f"""\
  restow restore monday.backup --data-dir /var/lib/restow-new
  restow restore monday.backup --store etcd://127.0.0.1:2379
  restow restore etcd-snapshot.db --data-dir /var/lib/restow-new

The target store must not exist, or be empty. Stop all servers first.

Servers may have written after the backup was taken, and clients may have seen that. So the store
starts above the backup's revision by --ahead, every object gets a new resourceVersion, and clients
with an old one get 410 and list again. For SQLite this costs nothing. For etcd it takes one write
per revision, at most {RAISE_MAX:,} of them; for more, and for a snapshot of etcd, use

  etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted --data-dir DIR

The command prints the releases that can read the backup, among those that the cluster in DIR has
used and those shipped with restow. The next `restow up --data-dir DIR` starts with the printed
release, or with the one given by --release.

An interrupted restore leaves no SQLite store. For etcd, the same command resumes it; no server
starts on that etcd before it is complete.

Exit codes: 0 done, 1 the restore failed, 2 wrong usage, or the store is not empty.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup to read")
    add_store(parser, forms=RESTORE_FORMS)
    parser.add_argument(
        "--ahead",
        type=whole_number(1, AHEAD_MAX),
        metavar="N",
        help="start this many revisions above the backup: more than were written after it;"
        f" default: {AHEAD_SQLITE:,} for SQLite, {AHEAD_ETCD:,} for etcd",
    )
    parser.add_argument(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="the servers' file: decrypts values, to find the releases that can read them;"
        " default: the one of the cluster in DIR",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    layout = None if arguments.store is not None else Layout(arguments.data_dir or DATA_DIR_DEFAULT)
    try:
        with ExitStack() as undo:
            if layout is not None:
                make_data_directory(layout.data_dir)
                undo.enter_context(locked(layout))
            address = chosen_store(arguments)
            state = None if layout is None else read_state(layout.state)
            keys = _Keys()
            restored, report = asyncio.run(_restore(arguments, address, layout, state, keys))
            if layout is not None:
                write_record(
                    layout,
                    RestoreRecord(
                        release=report.chosen,
                        backup_revision=restored.backup_revision,
                        revision=restored.revision,
                    ),
                )
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except (OpenRefused, ClusterRefused, ClusterRuns) as error:
        return _fail(error, EXIT_USAGE)
    except (StorageError, OSError) as error:
        return _fail(error, EXIT_FAILED)
    if arguments.output == "json":
        print(orjson.dumps(_fields(restored, report, address, keys)).decode())
    else:
        print(
            f"{address}: {restored.keys:,} keys of revision {restored.backup_revision}, now at"
            f" revision {restored.revision}"
        )
        if restored.left_out:
            print(
                f"left out: {restored.left_out:,} keys of other programs, which restow cannot store"
            )
        for line in _next_steps(report, layout, state, address, keys):
            print(line)
    sys.stdout.flush()
    return 0


@dataclass(slots=True)
class _Keys:
    """The encryption keys that decrypt the values of the backup."""

    file: Path | None = None
    """None if there is no file, or it cannot be used."""
    problem: str = ""
    """Why the file of the cluster's servers cannot be used."""
    others: set[str] = field(default_factory=set)
    """Names of keys that are in the file, but do not decrypt a value that names them."""

    def note(self, value: bytes, error: CannotOpen) -> None:
        if error.tried:
            self.others.add(key_named_in(value))


def _sealed_lines(report: BackupReport, keys: _Keys) -> Iterator[str]:
    """The keys that are missing, with the number of their values."""
    for name, count in report.sealed.items():
        values = f"{count:,} {'value is' if count == 1 else 'values are'} encrypted with {name}"
        if keys.file is None:
            yield (
                f"{values}: pass the servers' file with --encryption-provider-config to find the"
                f" releases that can read them{keys.problem and f' ({keys.problem})'}"
            )
        elif name in keys.others:
            yield (
                f"{values}: {keys.file} has another secret for this key, or the values were changed"
                " or moved"
            )
        else:
            yield f"{values}, which {keys.file} does not contain"


def _next_steps(
    report: BackupReport,
    layout: Layout | None,
    state: ClusterState | None,
    address: str,
    keys: _Keys,
) -> Iterator[str]:
    """The releases that can read the backup, and the commands that start a cluster on it."""
    files = state.release_files if state is not None else {}
    yield from _sealed_lines(report, keys)
    for release in releases_in_use(state) if state is not None else ():
        if problems := report.unreadable.get(release):
            yield (
                f"release {release_label(release, files)}, which the servers ran last, cannot read"
                f" the backup: {'; '.join(problems[:UNREADABLE_SHOWN_MAX])}"
            )
    chosen = report.chosen
    if chosen is None:
        yield "no known release can read the backup: use the release that wrote it"
    else:
        name = release_label(chosen, files)
        reason = ", which ran when it was taken," if _ran(report, chosen) else ""
        if report.sealed:
            yield (
                f"release {name}{reason} can read the other values; it is unknown which release can"
                " read the encrypted ones"
            )
        else:
            yield f"release {name}{reason} can read the backup"
    if report.sealed and keys.file is not None:
        yield (
            f"next: add {', '.join(report.sealed)} to {keys.file}, with the secret that was used"
            " when the backup was taken; without it servers do not start on this store"
        )
    option = f" --release {chosen or 'RELEASE'}"
    if layout is None:
        yield (
            "next: copy the directory pki of the cluster to DIR/pki, then: restow up --data-dir DIR"
            f" --store {address}{option}"
        )
        return
    if not layout.pki.exists():
        yield (
            f"next: copy the directory pki of the cluster to {layout.pki} (cp -a); its servers need"
            " the same keys to use the store"
        )
    # The next start takes the release from the record.
    command = Hints(data_dir=layout.data_dir).command("up")
    yield f"next: {command}{'' if chosen else option}"


def _ran(report: BackupReport, release: str) -> bool:
    return release_of(release).name in report.running


async def _restore(
    arguments: argparse.Namespace,
    address: str,
    layout: Layout | None,
    state: ClusterState | None,
    keys: _Keys,
) -> tuple[Restored, BackupReport]:
    stop_on_signal()
    async with AsyncExitStack() as undo:
        opener = await _opener(arguments.encryption_provider_config, state, undo, keys)
        with progress_line("writing") as on_progress:
            restored = await restore_backup(
                arguments.file,
                address,
                Runtime.system(),
                ahead=arguments.ahead,
                on_progress=on_progress,
            )
        report = await judge_backup(arguments.file, layout, state=state, opener=opener)
    return restored, report


async def _opener(
    given: Path | None, state: ClusterState | None, undo: AsyncExitStack, keys: _Keys
) -> Opener | None:
    """Decrypt values with the given keys, or else with those of the cluster's servers."""
    if given is not None:
        keys.file = given
        return await opener_of(given, undo, on_sealed=keys.note)
    words = state.server_options if state is not None else ()
    if path := option_value(words, "--encryption-provider-config"):
        try:
            opener = await opener_of(Path(path), undo, on_sealed=keys.note)
        except (StorageError, OSError) as error:  # the values are reported as not decrypted
            keys.problem = f"the file of the cluster in DIR cannot be used: {error}"
            return None
        keys.file = Path(path)
        return opener
    return None


def _fields(
    restored: Restored, report: BackupReport, address: str, keys: _Keys
) -> dict[str, object]:
    return {
        "store": address,
        "keys": restored.keys,
        "leftOut": restored.left_out,
        "backupRevision": restored.backup_revision,
        "revision": restored.revision,
        "release": report.chosen,
        "readableReleases": report.readable,
        "notDecrypted": report.not_decrypted,
        "missingKeys": [
            {"key": name, "values": count, "hasAnotherSecret": name in keys.others}
            for name, count in report.sealed.items()
        ],
    }
