"""`restow restore`: a backup of either form into a new store of either form.

The work is in `restow.storage.restore`; here are the words of the command.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import orjson

from restow.cli.argument_types import whole_number
from restow.cli.backup import EXIT_TERMINATED, stop_on_signal
from restow.cli.stores import DATA_DIR_DEFAULT, add_store, chosen_store, progress_line
from restow.cluster.errors import ClusterRefused
from restow.runtime import Runtime
from restow.storage.errors import OpenRefused, StorageError
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

EXIT_FAILED = 1
EXIT_USAGE = 2

EPILOG = f"""\
  restow restore monday.backup --data-dir /var/lib/restow-new
  restow restore monday.backup --store etcd://127.0.0.1:2379
  restow restore etcd-snapshot.db --data-dir /var/lib/restow-new

Only a store that is not there, or empty, is restored into. Stop all servers first.

Servers may have written after the backup was taken, and clients may have seen that. So the store
begins above the backup's revision by --ahead, every object gets a new resource version, and who
asks for an old one is told to list anew. For SQLite that costs nothing. etcd is raised by one write
for each revision, at most {RAISE_MAX:,} of them; for more, and for a snapshot of etcd, there is

  etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted --data-dir DIR

What was stopped leaves no SQLite store behind. For etcd, the same command goes on where it was; no
server starts on that etcd before it has ended.

Exit codes: 0 done, 1 it failed, 2 wrong usage, or the store is not empty.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup to read")
    add_store(parser, forms=RESTORE_FORMS)
    parser.add_argument(
        "--ahead",
        type=whole_number(1, AHEAD_MAX),
        metavar="N",
        help="begin so many revisions above the backup: more than were written after it was taken;"
        f" default: {AHEAD_SQLITE:,} for SQLite, {AHEAD_ETCD:,} for etcd",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    try:
        directory = arguments.data_dir or DATA_DIR_DEFAULT
        if arguments.store is None:
            make_data_directory(directory)
        address = chosen_store(arguments)
        restored = asyncio.run(_restore(arguments, address))
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except (OpenRefused, ClusterRefused) as error:
        return _say(error, EXIT_USAGE)
    except (StorageError, OSError) as error:
        return _say(error, EXIT_FAILED)
    if arguments.output == "json":
        print(orjson.dumps(_fields(restored, address)).decode())
    else:
        print(
            f"{address}: {restored.keys:,} keys of revision {restored.backup_revision}, now at"
            f" revision {restored.revision}"
        )
        if restored.left_out:
            print(f"left out: {restored.left_out:,} keys of others, which restow cannot hold")
        if arguments.store is None and not (directory / "pki").exists():
            print(
                f"before it is served: copy the directory pki of the cluster to {directory}; only"
                " with the same keys can its servers use the store",
                file=sys.stderr,
            )
    sys.stdout.flush()
    return 0


async def _restore(arguments: argparse.Namespace, address: str) -> Restored:
    stop_on_signal()
    with progress_line("writing") as on_progress:
        return await restore_backup(
            arguments.file,
            address,
            Runtime.system(),
            ahead=arguments.ahead,
            on_progress=on_progress,
        )


def _fields(restored: Restored, address: str) -> dict[str, object]:
    return {
        "store": address,
        "keys": restored.keys,
        "leftOut": restored.left_out,
        "backupRevision": restored.backup_revision,
        "revision": restored.revision,
    }


def _say(error: Exception, code: int) -> int:
    print(f"restow restore: {error}", file=sys.stderr)
    return code
