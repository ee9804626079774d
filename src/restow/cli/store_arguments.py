"""Arguments that select the store of a cluster: by its address, or by the data directory.

Shared by all commands with a store; also their progress bar. Not here: opening a store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from restow.cli.argument_types import directory
from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.localcluster.layout import Layout

DATA_DIR_DEFAULT = Path(".restow")
DAMAGED_ADVICE = (
    "stop all servers, move the damaged store away, and restore the last backup: restow restore"
    " FILE"
)


def add_store(parser: argparse.ArgumentParser, *, forms: str) -> None:
    place = parser.add_mutually_exclusive_group()
    add_data_dir(place)
    place.add_argument("--store", metavar="ADDRESS", help=forms)
    add_etcd_files(parser)


def add_data_dir(place: argparse._ActionsContainer) -> None:
    place.add_argument(
        "--data-dir",
        type=directory,
        metavar="DIR",
        help=f"the store of the cluster in this directory; default: {DATA_DIR_DEFAULT}",
    )


def chosen_store(arguments: argparse.Namespace) -> str:
    """The address of the selected store.

    Raises ClusterRefused if the cluster state cannot be read, `OpenRefused` if certificate files
    are given for a store that is not etcd over TLS.
    """
    if arguments.store is not None:
        return with_etcd_files(str(arguments.store), arguments)
    return with_etcd_files(store_of(arguments.data_dir or DATA_DIR_DEFAULT), arguments)


def store_of(data_dir: Path) -> str:
    """The store of a cluster: as `restow up` recorded it, or the file of `restow serve`."""
    # Imported here: they import a whole server, which is an extra that API commands do not need.
    from restow.localcluster.cluster_plan import OWN_ETCD, STORE_DEFAULT
    from restow.localcluster.etcd import store_address
    from restow.localcluster.state import read_state

    layout = Layout(data_dir)
    state = read_state(layout.state)
    if state is None or state.store == STORE_DEFAULT:
        return f"sqlite:{layout.store}"
    return store_address(state.etcd, layout) if state.store == OWN_ETCD else state.store


@contextmanager
def progress_line(word: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; it is removed at the end."""
    columns = (TextColumn(word), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def size_text(size: int) -> str:
    """Format a number of bytes."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable: the last unit has no limit")
