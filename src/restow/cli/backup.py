"""`restow backup`: the whole store in one file, while servers run.

The work is in `restow.storage.backup`; here are the words of the command.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import orjson

from restow.cli.stores import add_store, chosen_store, progress_line, size_text
from restow.cluster.errors import ClusterRefused
from restow.runtime import Runtime
from restow.storage.backup import BACKUP_FORMS, Backup, write_backup
from restow.storage.errors import OpenRefused, StorageError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TERMINATED = 128 + signal.SIGTERM

EPILOG = """\
  restow backup /var/backups/restow-1.backup
  restow backup monday.backup --data-dir /var/lib/restow
  restow backup monday.backup --store 'etcds://HOST:2379?ca=ca.crt&cert=client.crt&key=client.key'

The file shows the store at one revision, and servers go on writing meanwhile. It is checked before
it gets its name, and only its owner may read it: it holds every Secret. The keys and certificates
of a cluster are not in the store: keep a copy of DIR/pki too.

  restow restore FILE --data-dir NEW     makes a new store of it
  restow census --snapshot FILE          counts what is in it

Exit codes: 0 done, 1 it failed and there is no file, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup to write")
    add_store(parser, forms=BACKUP_FORMS)
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it is there")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    try:
        backup = asyncio.run(_back_up(arguments))
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except (OpenRefused, ClusterRefused) as error:
        return _say(error, EXIT_USAGE)
    except (StorageError, OSError) as error:
        return _say(error, EXIT_FAILED)
    if arguments.output == "json":
        print(orjson.dumps(_fields(backup)).decode())
    else:
        what = "a copy of SQLite" if backup.form == "sqlite" else "a snapshot of etcd"
        size = size_text(backup.size)
        print(f"{backup.path}: {what} at revision {backup.revision}, {size}, checked")
    sys.stdout.flush()
    return 0


async def _back_up(arguments: argparse.Namespace) -> Backup:
    stop_on_signal()
    with progress_line("copying") as on_progress:
        return await write_backup(
            chosen_store(arguments),
            arguments.file,
            Runtime.system(),
            overwrite=arguments.overwrite,
            on_progress=on_progress,
        )


def stop_on_signal() -> None:
    """End this task when the process is asked to end, so that it tidies up.

    Also by SIGINT, which whoever starts us in the background may have set to be ignored.
    """
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _fields(backup: Backup) -> dict[str, object]:
    return {
        "file": str(backup.path),
        "form": backup.form,
        "revision": backup.revision,
        "bytes": backup.size,
    }


def _say(error: Exception, code: int) -> int:
    print(f"restow backup: {error}", file=sys.stderr)
    return code
