"""The verbs of `restow store`, as functions of an open store and the arguments.

They print text, or one JSON object per line with `-o json`; values that are not text are escaped.
Not here: opening and closing a store.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from restow.aio import RandomIds, SystemRandomness
from restow.cli.output import fail
from restow.cli.untrusted_text import shown
from restow.storage.errors import Compacted, StorageClosed
from restow.storage.identity import accept
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Event,
    Guard,
    Item,
    Key,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Unknown,
    Watch,
    Write,
)

EXIT_REFUSED = 1
EXIT_USAGE = 2
LINE_CHARACTERS_MAX = 120
USERS_SHOWN_MAX = 3

Act = Callable[[Storage, argparse.Namespace], Awaitable[int]]


def add_verbs(places: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add a parser for each verb, with its function as `act`."""

    def add(name: str, act: Act, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = places.add_parser(name, parents=parents, help=text)
        parser.set_defaults(act=act)
        parser.add_argument("-o", dest="output", choices=["text", "json"], default="text")
        return parser

    put = add("put", _put, "set the value of a key")
    put.add_argument("key")
    put.add_argument("value", help="'-' reads it from standard input")
    _add_guards(put)
    _add_yes(put)
    delete = add("delete", _delete, "remove a key")
    delete.add_argument("key")
    _add_guards(delete)
    _add_yes(delete)
    get = add("get", _get, "print the value of a key")
    get.add_argument("key")
    get.add_argument("--raw", action="store_true", help="print the exact bytes, without a newline")
    _add_revision(get)
    listing = add("list", _list, "print keys and values in order")
    listing.add_argument("prefix", nargs="?", default="/")
    listing.add_argument("--start", default="", metavar="KEY", help="first key")
    listing.add_argument("--limit", type=_whole_number, default=0, metavar="N")
    _add_revision(listing)
    watch = add("watch", _watch, "print changes as they happen")
    watch.add_argument("prefix", nargs="?", default="/")
    watch.add_argument("--after", type=_whole_number, metavar="REVISION", help="default: now")
    watch.add_argument("--events", type=_positive, metavar="N", help="exit after N events")
    compact = add("compact", _compact, "discard superseded values up to a revision")
    compact.add_argument("revision", type=_whole_number)
    accepting = add("accept", _accept, "let servers use this store instead of the previous one")
    _add_yes(accepting)
    add("info", _info, "print the revision and the number of keys")


async def show_changes(watch: Watch, *, as_json: bool, events_max: int | None = None) -> int:
    """Print the events of a watch until `events_max` is reached, or it is closed."""
    shown = 0
    try:
        async for batch in watch:
            for event in batch.events:
                _print_event(event, as_json=as_json)
                shown += 1
                if shown == events_max:
                    return 0
    except StorageClosed:
        return 0
    return 0


async def _put(storage: Storage, arguments: argparse.Namespace) -> int:
    if (code := await _refused(arguments)) is not None:
        return code
    value = sys.stdin.buffer.read() if arguments.value == "-" else _as_bytes(arguments.value)
    return await _commit(storage, arguments, Put(Key(arguments.key), value))


async def _delete(storage: Storage, arguments: argparse.Namespace) -> int:
    if (code := await _refused(arguments)) is not None:
        return code
    return await _commit(storage, arguments, Delete(Key(arguments.key)))


async def _refused(arguments: argparse.Namespace) -> int | None:
    """Ask for confirmation if servers use the store; the exit code if denied, else None.

    `arguments.users` finds the users of the store.
    """
    if arguments.yes or not (users := await arguments.users()):
        return None
    more = f" and {len(users) - USERS_SHOWN_MAX} more" * (len(users) > USERS_SHOWN_MAX)
    print(
        f"restow store: in use by {', '.join(users[:USERS_SHOWN_MAX])}{more}: this write is not"
        " validated by the API servers, and a value that they cannot read makes every list of its"
        " resource fail; use kubectl instead if possible",
        file=sys.stderr,
    )
    return _confirmed(f"{arguments.verb} {arguments.key}? [y/N] ")


def _confirmed(question: str) -> int | None:
    """Ask on the terminal; the exit code if the answer is no, else None."""
    if not sys.stdin.isatty():
        return fail("store", "standard input is not a terminal: confirm with --yes", EXIT_USAGE)
    try:
        answer = input(question)  # blocking is fine: no other task runs
    except EOFError:  # Ctrl-D
        print()
        return EXIT_REFUSED
    return None if answer.strip().lower() in ("y", "yes") else EXIT_REFUSED


async def _commit(storage: Storage, arguments: argparse.Namespace, write: Write) -> int:
    guards: list[Guard] = []
    if arguments.if_absent:
        guards.append(Absent(write.key))
    if arguments.if_revision is not None:
        guards.append(RevisionIs(write.key, Revision(arguments.if_revision)))
    match await storage.commit(Transaction(tuple(guards), (write,))):
        case Done(revision):
            print(f'{{"revision":{revision}}}' if _as_json(arguments) else f"revision {revision}")
            return 0
        case Refused(guard, current, _):
            held = f"it is at revision {current.revision}" if current else "it does not exist"
            return _fail(f"refused: the precondition on {guard.key} failed: {held}")
        case Unknown(reason):
            return _fail(f"unknown whether it was committed: {reason}; read the key to check")


async def _get(storage: Storage, arguments: argparse.Namespace) -> int:
    item = await storage.get(Key(arguments.key), revision=arguments.at)
    if item is None:
        return _fail(f"{arguments.key} does not exist")
    if _as_json(arguments):
        _print_json(_item_fields(item))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(item.value if arguments.raw else item.value + b"\n")
    return 0


async def _list(storage: Storage, arguments: argparse.Namespace) -> int:
    span = Span.of_prefix(arguments.prefix).starting_at(arguments.start)
    page = await storage.range(span, limit=arguments.limit, revision=arguments.at, with_total=True)
    for item in page.items:
        if _as_json(arguments):
            _print_json(_item_fields(item))
        else:
            print(f"{item.revision:>8}  {item.key}  {_shown(item.value)}")
    if not _as_json(arguments):
        print(f"{len(page.items)} of {page.total} at revision {page.revision}")
    return 0


async def _watch(storage: Storage, arguments: argparse.Namespace) -> int:
    after = await storage.revision() if arguments.after is None else Revision(arguments.after)
    watch = storage.watch(Span.of_prefix(arguments.prefix), after=after)
    try:
        return await show_changes(watch, as_json=_as_json(arguments), events_max=arguments.events)
    except Compacted as error:
        return _fail(f"{error}; use --after {error.compacted} or later")
    finally:
        await watch.close()


async def _compact(storage: Storage, arguments: argparse.Namespace) -> int:
    await storage.compact(Revision(arguments.revision))
    print(f"compacted at revision {arguments.revision}")
    return 0


async def _accept(storage: Storage, arguments: argparse.Namespace) -> int:
    """Give the store a new identity, which servers accept instead of the recorded one."""
    revision = await storage.revision()
    print(
        f"restow store: servers that have recorded another state of this store will use it at"
        f" revision {revision:,}; writes that it does not contain are lost",
        file=sys.stderr,
    )
    if not arguments.yes and (code := _confirmed("accept this store? [y/N] ")) is not None:
        return code
    record_id = await accept(storage, RandomIds(SystemRandomness()))
    if _as_json(arguments):
        _print_json({"identity": record_id, "revision": await storage.revision()})
    else:
        print(f"accepted: identity {record_id}")
    return 0


async def _info(storage: Storage, arguments: argparse.Namespace) -> int:
    revision, keys = await storage.revision(), await storage.count(Span.of_prefix("/"))
    if _as_json(arguments):
        _print_json({"revision": revision, "keys": keys})
    else:
        print(f"revision {revision}, {keys} keys")
    return 0


def _add_guards(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--if-absent", action="store_true", help="only if the key does not exist")
    parser.add_argument(
        "--if-revision",
        type=_whole_number,
        metavar="N",
        help="only if it was last written at revision N",
    )


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="skip the confirmation if API servers use the store",
    )


def _add_revision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", type=_positive, metavar="REVISION", help="read at this revision")


def _whole_number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _positive(text: str) -> int:
    if (number := _whole_number(text)) == 0:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        value = None if event.value is None else _text(event.value)
        _print_json({"key": event.key, "revision": event.revision, "value": value})
        return
    if event.value is None:
        what, value = "deleted", ""
    else:
        what, value = ("changed" if event.previous else "created"), _shown(event.value)
    print(f"{event.revision:>8}  {what}  {event.key}  {value}".rstrip(), flush=True)


def _item_fields(item: Item) -> dict[str, object]:
    return {
        "key": item.key,
        "revision": item.revision,
        "created": item.created,
        "value": _text(item.value),
    }


def _print_json(fields: dict[str, object]) -> None:
    print(orjson.dumps(fields).decode(), flush=True)


def _as_json(arguments: argparse.Namespace) -> bool:
    return bool(arguments.output == "json")


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _shown(value: bytes) -> str:
    """The value on one line, truncated if long."""
    text = shown(_text(value[: 4 * LINE_CHARACTERS_MAX]))
    return text if len(text) <= LINE_CHARACTERS_MAX else text[: LINE_CHARACTERS_MAX - 1] + "…"


def _fail(text: str) -> int:
    return fail("store", text, EXIT_REFUSED)
