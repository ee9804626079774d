"""`restow store`: put, get, list and watch keys of a store of any driver.

This module has the arguments, the shell, and `up`. The verbs are in `store_verbs`. It works on raw
keys below the API, and does not interpret values.
"""

import argparse
import asyncio
import shlex
import signal
import sys
from functools import partial
from pathlib import Path

from restow.aio import Runtime
from restow.cli import store_verbs as verbs
from restow.cli.argument_types import directory
from restow.cli.event_loop import run_async
from restow.cli.hints import Hints
from restow.cli.live_servers import live_servers, local_supervisor
from restow.cli.output import fail
from restow.cli.store_arguments import DATA_DIR_DEFAULT, add_store, chosen_store
from restow.localcluster.errors import ClusterRefused
from restow.storage.deleted_log import check_deleted_log
from restow.storage.drivers import ADDRESS_FORMS, open_storage, place_name
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged, Unavailable
from restow.storage.interface import Span, Storage
from restow.storage.private_files import make_data_directory
from restow.storage.store_mark import MARK_NAME, read_checked

STORE_DEFAULT = f"sqlite:{DATA_DIR_DEFAULT / 'store.db'}"
PROMPT = "store> "
_fail = partial(fail, "store")
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
CREATING = frozenset({"put", "shell", "up"})
"""Verbs that create the file of SQLite if it does not exist."""

EPILOG = f"""\
Addresses of stores: {ADDRESS_FORMS}

  restow store put /greeting hello
  restow store get /greeting
  restow store list /
  restow store watch / --after 1
  restow store shell --store memory:

If API servers use the store, put and delete ask for confirmation; without a terminal they need
--yes. Values are not validated, and servers may be unable to read them. Only put, shell and up
create a file that does not exist.

Exit codes: 0 done, 1 not found or refused, 2 wrong usage or not confirmed, 3 the store cannot be
used.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    places = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    add_store(common, forms=ADDRESS_FORMS)
    verbs.add_verbs(places, [common])
    places.add_parser(
        "shell", parents=[common], help="run several verbs on one open store, one per line"
    ).set_defaults(act=_shell)
    up = places.add_parser("up", help="open the embedded store and show its changes")
    up.add_argument("--data-dir", type=directory, default=Path(".restow"), metavar="DIR")
    up.set_defaults(act=_up)


def run(arguments: argparse.Namespace) -> int:
    hints = Hints.of(arguments)
    try:
        if arguments.verb == "up":
            data_dir: Path = arguments.data_dir
            make_data_directory(data_dir)
            arguments.store = f"sqlite:{data_dir / 'store.db'}"
        else:
            if arguments.store is None and arguments.data_dir is None:
                arguments.data_dir = DATA_DIR_DEFAULT
            arguments.store = chosen_store(arguments)
        if arguments.store.startswith("sqlite:"):
            _check_file(arguments.store, arguments.verb, arguments.data_dir)
        code = run_async(_with_store(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(error, EXIT_UNAVAILABLE)
    except ClusterRefused as error:
        return _fail(error, EXIT_USAGE)
    except (StoreDamaged, Unavailable) as error:
        return _fail(hints.failure(error, arguments.store), EXIT_UNAVAILABLE)
    except StorageError as error:
        return _fail(error, EXIT_USAGE)


def _check_file(address: str, verb: str, data_dir: Path | None) -> None:
    """Refuse a file that is missing, or that opening it would damage, as `restow serve` does.

    The mark of the servers is in `data_dir`; without it, beside the file. Raises `OpenRefused`.
    """
    name = place_name(address)
    path, resolved = (Path(each.partition(":")[2]) for each in (address, name))
    if verb not in CREATING and not path.exists():
        if verb == "accept":
            raise OpenRefused(
                f"{path} does not exist, so it cannot be accepted: put the store back, or"
                " restore a backup with `restow restore`"
            )
        raise OpenRefused(f"{path} does not exist: use the path of an existing store")
    for place in {path.parent, resolved.parent} if data_dir is None else {data_dir}:
        read_checked(place / MARK_NAME, name)
    check_deleted_log(path)


async def _with_store(arguments: argparse.Namespace) -> int:
    address: str = arguments.store
    if address == STORE_DEFAULT:
        make_data_directory(DATA_DIR_DEFAULT)
    runtime = Runtime.system()
    storage = await open_storage(address, runtime)
    supervisor = local_supervisor(address, arguments.data_dir)

    async def users() -> list[str]:
        """The other users of the store: servers, and `restow up`."""
        found = [] if supervisor is None else [f"`restow up` (process {supervisor})"]
        return found + await live_servers(storage, runtime.clock.wall())

    arguments.users = users
    try:
        code: int = await arguments.act(storage, arguments)
        return code
    finally:
        await storage.close()


async def _up(storage: Storage, arguments: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    revision = await storage.revision()
    print(f"ready: {arguments.store} at revision {revision}. In another terminal:")
    print(f"  restow store put /greeting hello --store {arguments.store}")
    print("Changes are shown here. Ctrl-C stops.", flush=True)
    watch = storage.watch(Span.of_prefix("/"), after=revision)
    async with asyncio.TaskGroup() as group:
        shown = group.create_task(verbs.show_changes(watch, as_json=False), name="store-up/show")
        await stop.wait()
        await watch.close()
        shown.cancel()
    print("stopped")
    return 0


async def _shell(storage: Storage, arguments: argparse.Namespace) -> int:
    parser = argparse.ArgumentParser(prog="", add_help=False, exit_on_error=False)
    places = parser.add_subparsers(metavar="VERB", dest="verb", required=True)
    verbs.add_verbs(places, [])
    is_interactive = sys.stdin.isatty()
    code = 0
    while True:
        if is_interactive:
            print(PROMPT, end="", flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line or line.strip() in {"exit", "quit"}:
            return code if not is_interactive else 0
        if line.strip():
            given = argparse.Namespace(users=arguments.users)
            code = await _one_line(parser, storage, line, given)


async def _one_line(
    parser: argparse.ArgumentParser, storage: Storage, line: str, given: argparse.Namespace
) -> int:
    try:
        arguments = parser.parse_args(shlex.split(line), given)
        code: int = await arguments.act(storage, arguments)
        return code
    except (argparse.ArgumentError, ValueError) as error:
        return _fail(error, EXIT_USAGE)
    except SystemExit:
        return EXIT_USAGE  # argparse has printed the error
    except StorageError as error:
        return _fail(error, EXIT_UNAVAILABLE)
