"""`restow census`: count the stored objects by version and encryption key.

It reads the raw store, bypassing all API servers, and changes nothing. The counting is in
`restow.census`; this module has the arguments, the table and the JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from restow.aio import Runtime
from restow.apis.encryption_keys import IDENTITY
from restow.census import (
    SOURCE_FORMS,
    Census,
    CensusVerdict,
    ResourceCount,
    ResourceSelection,
    Row,
    Stored,
    count_key,
    open_source,
    take_census,
)
from restow.census.resource_names import PREFIX_DEFAULT, canonical, is_builtin
from restow.census.tally import SAMPLES_DEFAULT, SAMPLES_MAX, Opener
from restow.cli import census_key
from restow.cli.argument_types import whole_number
from restow.cli.etcd_files import add_etcd_files
from restow.cli.event_loop import run_async
from restow.cli.hints import Hints
from restow.cli.output import fail, print_json
from restow.cli.store_arguments import add_data_dir, chosen_store
from restow.cli.untrusted_text import shown
from restow.encryption.decryption import open_value
from restow.encryption.key_reload import ReloadedKeys
from restow.localcluster.errors import ClusterRefused
from restow.storage.errors import CannotOpen, OpenRefused, StorageError
from restow.storage.interface import Key

LISTED_DEFAULT = 100
WIDTH_OF_FILES = 200

_fail = partial(fail, "census")
EXIT_UNAVAILABLE = 1
EXIT_USAGE = 2
EXIT_STALE = 3
EXIT_UNDECIDED = 4

EPILOG = f"""\
STORE is one of: {SOURCE_FORMS}

  restow census
  restow census deployments.apps --list-stale
  restow census --store etcd://127.0.0.1:2379 --target deployments.apps=v1
  restow census --store 'etcds://HOST:2379?ca=ca.crt&cert=client.crt&key=client.key' -o json
  restow census --snapshot backup.db secrets
  restow census --key aesgcm:key1
  restow census secrets --encryption-provider-config keys.yaml

An object is in an old version if its stored version differs from the target version. The target is
read from the store: from a StorageVersion (the version that all servers write), from a CRD, or from
a StorageState. --target sets it where the store has none, and takes precedence.

The store is only read: a running etcd at one revision, a SQLite file while servers run, a snapshot
of `etcdctl snapshot save`, or a copied file. For encrypted objects the census shows the provider
and the key; to show their versions it needs --encryption-provider-config, the servers' file.

--key checks whether any value is still encrypted with one key, called key1, or aesgcm:key1, or
kms:PLUGIN:ID; identity means values that are not encrypted. Exit code 0 then means that no value
uses the key. Resources that are never encrypted are counted separately, unless they are named. Only
the newest value of each object is counted: older revisions, until they are compacted, and backups
may still need the key.

Exit codes: 0 no object is in an old version (with --key: no value uses the key), 3 objects are in
an old version (with --key: values use the key), 4 undecided (an object of a resource with a target
is encrypted or unreadable, or servers do not agree), 1 the store cannot be read, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "resources",
        nargs="*",
        metavar="RESOURCE",
        help="count only these: deployments.apps, pods, or a key prefix as shown; default: all",
    )
    place = parser.add_mutually_exclusive_group()
    add_data_dir(place)
    place.add_argument("--store", metavar="ADDRESS", help=SOURCE_FORMS)
    place.add_argument(
        "--snapshot",
        metavar="FILE",
        help="same as --store snapshot:FILE; a snapshot of etcd or a SQLite file",
    )
    add_etcd_files(parser)
    add(
        "--target",
        action="append",
        default=[],
        type=_target,
        metavar="RESOURCE=VERSION",
        help="target version of a resource, such as deployments.apps=v1 or"
        " ingresses.networking.k8s.io=networking.k8s.io/v1; may be repeated",
    )
    add(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="the servers' file: decrypts objects, so that their versions can be counted",
    )
    add(
        "--key",
        type=_key,
        metavar="NAME",
        help="check only whether any value uses this encryption key, such as aesgcm:key1",
    )
    add(
        "--list-stale",
        nargs="?",
        type=whole_number(1, SAMPLES_MAX, hint="; put resources before this option"),
        const=LISTED_DEFAULT,
        metavar="N",
        help="list the keys of objects in an old version, at most N per resource and version;"
        f" default for N: {LISTED_DEFAULT}",
    )
    add(
        "--prefix",
        default=PREFIX_DEFAULT,
        help=f"prefix of all keys of objects (--etcd-prefix); default: {PREFIX_DEFAULT}",
    )
    add("-o", "--output", choices=("table", "json"), default="table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.snapshot is not None:
        arguments.store = f"snapshot:{arguments.snapshot}"
    try:
        address = chosen_store(arguments)
    except (OpenRefused, ClusterRefused) as error:
        return _fail(error, EXIT_USAGE)
    if arguments.key is not None and arguments.target:
        return _fail("--target cannot be used with --key, which ignores versions", EXIT_USAGE)
    keys_file: Path | None = arguments.encryption_provider_config
    if keys_file is not None and arguments.prefix.strip("/") != PREFIX_DEFAULT.strip("/"):
        text = (
            "--encryption-provider-config cannot be used with --prefix: it configures keys by"
            " resource name"
        )
        return _fail(text, EXIT_USAGE)
    targets = {canonical(name): version for name, version in arguments.target}
    selection = ResourceSelection.of(arguments.resources)
    prefix = f"/{arguments.prefix.strip('/')}/"
    listed: int | None = arguments.list_stale
    try:
        census, known = run_async(
            _take(
                address,
                prefix=prefix,
                selection=selection,
                targets=targets,
                samples_max=max(listed or 0, SAMPLES_DEFAULT),
                keys_file=keys_file,
            )
        )
    except OpenRefused as error:
        return _fail(error, EXIT_USAGE)
    except (StorageError, OSError) as error:
        return _fail(Hints.of(arguments).failure(error, address), EXIT_UNAVAILABLE)
    for name in (*selection.names, *targets):
        if not (census.knows(name) or is_builtin(name)):
            return _fail(
                f"{name}: unknown resource: it is neither in this store nor built into restow",
                EXIT_USAGE,
            )
    if arguments.key is not None:
        return _report_key(census, arguments, known=known, address=address, prefix=prefix)
    if arguments.output == "json":
        print_json(_fields(census, address, prefix))
    else:
        _print_all(census, address=address, prefix=prefix, listed=listed, keys_file=keys_file)
    sys.stdout.flush()
    match census.verdict:
        case CensusVerdict.STALE:
            return EXIT_STALE
        case CensusVerdict.UNDECIDED:
            return EXIT_UNDECIDED
        case _:
            return 0


def _report_key(
    census: Census,
    arguments: argparse.Namespace,
    *,
    known: census_key.KnownKeys | None,
    address: str,
    prefix: str,
) -> int:
    """Print which values use a key; return the exit code. `known` are the keys that servers report.

    Like `restow preflight`, it does not count plaintext values of resources that are never
    encrypted, unless these resources were named.
    """

    def is_counted(resource: str) -> bool:
        if arguments.key != IDENTITY or arguments.resources or known is None:
            return True
        return not known.is_never_encrypted(resource)

    found = count_key(census, arguments.key, is_counted=is_counted)
    if arguments.output == "json":
        fields = census_key.fields_of(census, found, known=known, address=address, prefix=prefix)
        print_json(fields)
    else:
        width = None if sys.stdout.isatty() else WIDTH_OF_FILES
        console = Console(width=width, highlight=False, markup=False, emoji=False)
        is_listed = arguments.list_stale is not None
        census_key.print_key(
            console, census, found, known=known, address=address, is_listed=is_listed
        )
    sys.stdout.flush()
    codes = {"left": EXIT_STALE, "undecided": EXIT_UNDECIDED}
    return codes.get(census_key.verdict_of(found, known), 0)


async def _take(
    address: str,
    *,
    prefix: str,
    selection: ResourceSelection,
    targets: dict[str, str],
    samples_max: int,
    keys_file: Path | None,
) -> tuple[Census, census_key.KnownKeys | None]:
    """Take the census, and read the encryption keys that servers report in the store."""
    async with AsyncExitStack() as undo:
        opener = None if keys_file is None else await opener_of(keys_file, undo)
        source = await open_source(address, Runtime.system())
        undo.push_async_callback(source.close)
        total = None
        if sys.stderr.isatty():
            total = await source.count(selection.prefixes(prefix))
        with _progress(total) as on_progress:
            census = await take_census(
                source,
                prefix=prefix,
                selection=selection,
                arguments=targets,
                samples_max=samples_max,
                on_progress=on_progress,
                opener=opener,
            )
        return census, await census_key.read_known_keys(source, prefix=prefix)


async def opener_of(
    keys_file: Path,
    undo: AsyncExitStack,
    *,
    on_sealed: Callable[[bytes, CannotOpen], None] | None = None,
) -> Opener:
    """Return a function that decrypts values with the keys of a file. Raises OpenRefused; both this
    and the function raise Unavailable when a KMS plug-in does not respond.

    `on_sealed` is called with each value that no key decrypts, and the error.
    """
    keys = ReloadedKeys(str(keys_file), Runtime.system())
    undo.push_async_callback(keys.close)
    await keys.load()

    async def open_one(key: str, value: bytes) -> bytes | None:
        try:
            return (await open_value(keys, Key(key), value)).value
        except CannotOpen as error:
            if on_sealed is not None:
                on_sealed(value, error)
            return None

    return open_one


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; it is removed when all objects are read."""
    console = Console(stderr=True)
    columns = (
        TextColumn("reading"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("objects"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def _print_all(
    census: Census, *, address: str, prefix: str, listed: int | None, keys_file: Path | None
) -> None:
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    if not census.resources:
        console.print(f"no objects under {prefix} in {address}", soft_wrap=True)
    else:
        console.print(_table(census))
    for line in _summary(census, address):
        console.print(line, soft_wrap=True)
    if unopened := census.unopened:
        why = (
            "pass the servers' file with --encryption-provider-config to see their versions"
            if keys_file is None
            else f"no key of {keys_file} decrypts them"
        )
        console.print(f"not decrypted: {unopened:,} objects; {why}", soft_wrap=True)
    for resource, row in census.unreadable:
        _print_keys(console, f"unreadable, {resource}:", row)
    behind = [
        (each.resource, row)
        for each in census.resources
        for row in each.rows
        if row.verdict is CensusVerdict.STALE
    ]
    if listed is not None:
        for resource, row in behind:
            _print_keys(console, f"old version, {resource} in {row.stored.api_version}:", row)
    elif behind:
        console.print("list their keys with --list-stale")


def _table(census: Census) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("RESOURCE", "STORED VERSION", "FORM", "ENCRYPTION"):
        table.add_column(heading, overflow="fold")
    table.add_column("OBJECTS", justify="right", no_wrap=True)
    table.add_column("TARGET", overflow="fold")
    table.add_column("", no_wrap=True)
    for each in census.resources:
        for number, row in enumerate(each.rows):
            first = number == 0
            table.add_row(
                Text(_shown(each.resource) if first else ""),
                Text(_shown(row.stored.api_version) or "?"),
                Text(row.stored.form),
                Text(_encryption(row.stored)),
                Text(f"{row.objects:,}"),
                Text(_shown(str(each.target or "–")) if first else ""),
                _remark(row),
            )
    return table


def _encryption(stored: Stored) -> str:
    if stored.form != "encrypted":
        return "–"
    scheme = f" {stored.scheme}" if stored.provider == "kms" else ""
    key_id = f" key {stored.key_id}" if stored.key_id else ""
    return _shown(f"{stored.provider}{scheme} {stored.key}{key_id}")


def _remark(row: Row) -> Text:
    match row.verdict:
        case CensusVerdict.STALE:
            return Text("old version", style="red")
        case CensusVerdict.UNDECIDED:
            return Text("undecided", style="yellow")
        case CensusVerdict.RIGHT:
            return Text("ok", style="green")
        case CensusVerdict.NO_TARGET:
            return Text("")


def _summary(census: Census, address: str) -> Iterator[str]:
    many = len(census.resources)
    yield (
        f"{census.objects:,} objects of {many} resource{'s' * (many != 1)}"
        f" at revision {census.revision} of {address}"
    )
    judged = census.objects - census.of(CensusVerdict.NO_TARGET)
    match census.verdict:
        case CensusVerdict.STALE:
            yield f"in an old version: {census.of(CensusVerdict.STALE):,} objects"
        case CensusVerdict.UNDECIDED:
            right = census.of(CensusVerdict.RIGHT)
            yield f"in the target version: {right:,} of {judged:,} objects"
        case CensusVerdict.RIGHT:
            yield f"{judged:,} objects checked, all in the target version"
        case CensusVerdict.NO_TARGET if census.objects:
            yield "no target version is known for these objects: set one with --target"
        case CensusVerdict.NO_TARGET:
            pass
    if undecided := census.of(CensusVerdict.UNDECIDED):
        yield f"undecided: {undecided:,} objects, whose stored version or target is unknown"


def _print_keys(console: Console, title: str, row: Row) -> None:
    console.print(f"{_shown(title)} {row.objects:,}", soft_wrap=True)
    for key in row.keys:
        console.print(f"  {_shown(key)}", soft_wrap=True)
    if (more := row.objects - len(row.keys)) > 0:
        console.print(f"  … and {more:,} more")


def _fields(census: Census, address: str, prefix: str) -> dict[str, Any]:
    """The census as docs/reference/census.md describes it."""
    return {
        "store": address,
        "prefix": prefix,
        "revision": census.revision,
        "verdict": census.verdict.value,
        "objects": census.objects,
        "stale": census.of(CensusVerdict.STALE),
        "undecided": census.of(CensusVerdict.UNDECIDED),
        "unreadable": sum(row.objects for _, row in census.unreadable),
        "unopened": census.unopened,
        "resources": [_resource_fields(each) for each in census.resources],
    }


def _resource_fields(count: ResourceCount) -> dict[str, Any]:
    target = count.target
    return {
        "resource": _shown(count.resource),
        "objects": count.objects,
        "stale": count.of(CensusVerdict.STALE),
        "undecided": count.of(CensusVerdict.UNDECIDED),
        "target": target
        and {
            "source": target.source,
            "version": _shown(target.version),
            "hash": target.hash,
            "problem": target.problem,
        },
        "stored": [_row_fields(row) for row in count.rows],
    }


def _row_fields(row: Row) -> dict[str, Any]:
    stored = row.stored
    is_listed = row.verdict is CensusVerdict.STALE or stored.form == "unreadable"
    return {
        "form": stored.form,
        "apiVersion": stored.api_version,
        "kind": stored.kind,
        "encryption": {
            "provider": stored.provider,
            "scheme": stored.scheme,
            "key": stored.key,
            "keyID": stored.key_id,
        },
        "objects": row.objects,
        "verdict": row.verdict.value,
        "keys": [_shown(key) for key in row.keys] if is_listed else [],
    }


def _shown(text: str) -> str:
    """Escape text for output; bytes that are not UTF-8 are shown as backslash escapes."""
    return shown(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def _target(text: str) -> tuple[str, str]:
    name, _, version = text.partition("=")
    if not name or not version:
        raise argparse.ArgumentTypeError(f"{text!r} is not RESOURCE=VERSION")
    return name, version


def _key(text: str) -> str:
    if not text or text != text.strip() or text.startswith(":") or text.endswith(":"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a key name such as aesgcm:key1")
    return text
