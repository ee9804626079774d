"""`restow backup`: write the whole store into one file, while servers run.

The work is in `restow.storage.backup`; this module has the arguments and the output.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from restow.aio import Runtime
from restow.cli.hints import Hints
from restow.cli.output import fail
from restow.cli.store_arguments import add_store, chosen_store, progress_line, size_text
from restow.localcluster.errors import ClusterRefused
from restow.storage.backup import BACKUP_FORMS, Backup, write_backup
from restow.storage.errors import OpenRefused, StorageError

_fail = partial(fail, "backup")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TERMINATED = 128 + signal.SIGTERM
STDOUT: Final = Path("-")

EPILOG = """\
  restow backup /var/backups/restow-1.backup
  restow backup monday.backup --data-dir /var/lib/restow
  restow backup - | ssh HOST 'cat > monday.backup'
  restow backup monday.backup --store 'etcds://HOST:2379?ca=ca.crt&cert=client.crt&key=client.key'

The file holds the state of the store at one revision; servers can write meanwhile. It is verified
before it gets its name, and only its owner can read it: it contains every Secret. The keys and
certificates of a cluster are not in the store: keep a copy of DIR/pki too.

FILE is a regular file or does not exist yet; devices, pipes, symbolic links and directories are
refused. With - the backup goes to standard output, which must not be a terminal. It is first
written and verified in the directory for temporary files ($TMPDIR), which needs enough free space.

  restow restore FILE --data-dir NEW     restores it into a new store
  restow census --snapshot FILE          counts its objects by stored version

Exit codes: 0 done, 1 the backup failed and no file was written, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="file to write; - writes to standard output"
    )
    add_store(parser, forms=BACKUP_FORMS)
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    if arguments.file == STDOUT and sys.stdout.isatty():
        return _fail("-: standard output is a terminal; redirect it, or name a file", EXIT_USAGE)
    try:
        address = chosen_store(arguments)
    except (OpenRefused, ClusterRefused) as error:
        return _fail(error, EXIT_USAGE)
    try:
        with ExitStack() as stack:
            path = stack.enter_context(_destination(arguments.file))
            backup = asyncio.run(_back_up(arguments, address, path))
            if arguments.file == STDOUT:
                _send(path)
    except BrokenPipeError:
        raise
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except OpenRefused as error:
        return _fail(error, EXIT_USAGE)
    except (StorageError, OSError) as error:
        return _fail(Hints.of(arguments).failure(error, address), EXIT_FAILED)
    # Standard output may contain the backup itself.
    report = sys.stderr if arguments.file == STDOUT else sys.stdout
    if arguments.output == "json":
        print(orjson.dumps(_fields(backup, arguments.file)).decode(), file=report)
    else:
        what = "a copy of SQLite" if backup.form == "sqlite" else "a snapshot of etcd"
        size = size_text(backup.size)
        text = f"{arguments.file}: {what} at revision {backup.revision}, {size}, verified"
        print(text, file=report)
    report.flush()
    return 0


@contextmanager
def _destination(file: Path) -> Iterator[Path]:
    """Yield the path to write: the file or, for standard output, a private temporary file."""
    if file != STDOUT:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="restow-backup-") as directory:
        yield Path(directory) / "backup"


def _send(path: Path) -> None:
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


async def _back_up(arguments: argparse.Namespace, address: str, path: Path) -> Backup:
    stop_on_signal()
    with progress_line("copying") as on_progress:
        return await write_backup(
            address,
            path,
            Runtime.system(),
            overwrite=arguments.overwrite,
            on_progress=on_progress,
        )


def stop_on_signal() -> None:
    """Cancel this task on SIGINT or SIGTERM, so that temporary files are removed.

    SIGINT is set explicitly because a shell ignores it in processes that it starts in background.
    """
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _fields(backup: Backup, file: Path) -> dict[str, object]:
    return {
        "file": str(file),
        "form": backup.form,
        "revision": backup.revision,
        "bytes": backup.size,
    }
