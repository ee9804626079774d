"""The `restow` command: a table of commands, and the one that was asked for.

A command is a module with two functions: `add_arguments` and `run`. It is imported only when it
is called. A command whose libraries are not installed names the extra that installs them.
"""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class CommandModule(Protocol):
    """What the module of a command has. Its `EPILOG`, if it has one, ends the help text."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


class Command(NamedTuple):
    """A row of the table."""

    name: str
    summary: str


COMMANDS = (
    Command("backup", "write the whole store into one file"),
    Command("census", "count what a store really holds, by version"),
    Command("completion", "print a script that completes words"),
    Command("controllers", "run trigger and migrator"),
    Command("demo", "tell and check a rolling upgrade on real servers"),
    Command("doctor", "look for what is wrong with a cluster"),
    Command("migrate", "rewrite what is stored in another version"),
    Command("preflight", "say whether a release is safe to go to"),
    Command("restore", "make a new store from a backup"),
    Command("serve", "run one API server"),
    Command("status", "show what is stored how, and what runs"),
    Command("store", "put, get, list and watch keys of a store"),
    Command("up", "run a whole cluster on this machine"),
    Command("upgrade", "roll the servers of a cluster to a release"),
    Command("version", "say which restow this is"),
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
    for name in parsers:
        try:
            _load(name, parsers[name])
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
        module = _load(called, parsers[called])  # may take a second, in which Ctrl-C may come
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal may not know every letter.
            sys.stdout.reconfigure(errors="backslashreplace")
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
        print(f"restow {called} {advice}", file=sys.stderr)
        return EXIT_USAGE


def _load(name: str, parser: argparse.ArgumentParser) -> CommandModule:
    """Import the module of a command, and let it fill its parser."""
    module = cast(CommandModule, importlib.import_module(f"restow.cli.{name}"))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = getattr(module, "EPILOG", None)
    module.add_arguments(parser)
    return module


def _called(words: Sequence[str]) -> str | None:
    """Find the command among the words: the first that is no option."""
    name = next((word for word in words if not word.startswith("-")), None)
    return name if any(command.name == name for command in COMMANDS) else None


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
