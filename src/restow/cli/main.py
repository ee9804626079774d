"""The `restow` command: a table of commands, and the one that was asked for.

A command is a module with two functions: `add_arguments` and `run`. It is imported only when it
is called. A command whose libraries are not installed names the extra that installs them.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class CommandModule(Protocol):
    """What the module of a command has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row of the table."""

    name: str
    summary: str
    load: Callable[[], CommandModule]


def _backup() -> CommandModule:
    from restow.cli import backup

    return backup


def _census() -> CommandModule:
    from restow.cli import census

    return census


def _completion() -> CommandModule:
    from restow.cli import completion

    return completion


def _controllers() -> CommandModule:
    from restow.cli import controllers

    return controllers


def _migrate() -> CommandModule:
    from restow.cli import migrate

    return migrate


def _demo() -> CommandModule:
    from restow.cli import demo

    return demo


def _doctor() -> CommandModule:
    from restow.cli import doctor

    return doctor


def _preflight() -> CommandModule:
    from restow.cli import preflight

    return preflight


def _restore() -> CommandModule:
    from restow.cli import restore

    return restore


def _serve() -> CommandModule:
    from restow.cli import serve

    return serve


def _status() -> CommandModule:
    from restow.cli import status

    return status


def _store() -> CommandModule:
    from restow.cli import store

    return store


def _up() -> CommandModule:
    from restow.cli import up

    return up


def _upgrade() -> CommandModule:
    from restow.cli import upgrade

    return upgrade


def _version() -> CommandModule:
    from restow.cli import version

    return version


COMMANDS = (
    Command(name="backup", summary="write the whole store into one file", load=_backup),
    Command(name="census", summary="count what a store really holds, by version", load=_census),
    Command(name="completion", summary="print a script that completes words", load=_completion),
    Command(name="controllers", summary="run trigger and migrator", load=_controllers),
    Command(name="demo", summary="tell and check a rolling upgrade on real servers", load=_demo),
    Command(name="doctor", summary="look for what is wrong with a cluster", load=_doctor),
    Command(name="migrate", summary="rewrite what is stored in another version", load=_migrate),
    Command(name="preflight", summary="say whether a release is safe to go to", load=_preflight),
    Command(name="restore", summary="make a new store from a backup", load=_restore),
    Command(name="serve", summary="run one API server", load=_serve),
    Command(name="status", summary="show what is stored how, and what runs", load=_status),
    Command(name="store", summary="put, get, list and watch keys of a store", load=_store),
    Command(name="up", summary="run a whole cluster on this machine", load=_up),
    Command(name="upgrade", summary="roll the servers of a cluster to a release", load=_upgrade),
    Command(name="version", summary="say which restow this is", load=_version),
)


class _Parser(argparse.ArgumentParser):
    """Refuses words that it does not know itself, so that the usage shown is that of the command.

    Otherwise they are handed up to the parser of the whole line, which knows no options.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the line, and an empty one for each command, which its module fills."""
    parser = _Parser(
        prog="restow",
        description="A Kubernetes-style API server that knows the storage version of every object.",
    )
    places = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    parsers: dict[str, argparse.ArgumentParser] = {
        command.name: places.add_parser(
            command.name, help=command.summary, description=_sentence(command.summary)
        )
        for command in COMMANDS
    }
    return parser, parsers


def make_whole_parser() -> argparse.ArgumentParser:
    """A parser with the arguments of all commands. Loads the module of each: it takes a moment.

    A command that needs an extra which is not installed has no arguments here.
    """
    from restow.aio.extras import missing_extra

    parser, parsers = make_parser()
    for command in COMMANDS:
        try:
            command.load().add_arguments(parsers[command.name])
        except ModuleNotFoundError as error:
            if not missing_extra(error):
                raise
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser, parsers = make_parser()
    called = _called(words)
    if called is None:
        parser.parse_args(words)  # --help and unknown commands end here
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        module = called.load()  # may take a second, in which one may think better of it
        module.add_arguments(parsers[called.name])
        arguments = parser.parse_args(words)
        arguments.words = tuple(words)  # for a command that starts others like itself
        arguments.make_whole_parser = make_whole_parser  # for the command that lists them all
        return module.run(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has left, as in `restow ... | head`. Let the last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except Exception as error:
        from restow.aio.extras import missing_extra

        if not (advice := missing_extra(error)):
            raise
        print(f"restow {called.name} {advice}", file=sys.stderr)
        return EXIT_USAGE


def _called(words: Sequence[str]) -> Command | None:
    """Find the command among the words: the first that is no option."""
    name = next((word for word in words if not word.startswith("-")), None)
    return next((command for command in COMMANDS if command.name == name), None)


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
