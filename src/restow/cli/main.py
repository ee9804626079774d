"""The `restow` command: the table of commands, and the dispatch to them.

A command is a module with two functions: `add_arguments` and `run`. It is imported only when it
is called. If its libraries are missing, the error names the extra that installs them.
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
    """The functions of a command module. An optional `EPILOG` ends the help text."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


class Command(NamedTuple):
    """One command of the table."""

    name: str
    summary: str


COMMANDS = (
    Command("backup", "write the whole store into one file"),
    Command("census", "count the stored objects by version and key"),
    Command("completion", "print a shell completion script"),
    Command("controllers", "run trigger and migrator"),
    Command("demo", "run a checked rolling upgrade on real servers"),
    Command("doctor", "check a cluster for problems"),
    Command("migrate", "rewrite objects stored in another version"),
    Command("preflight", "check whether a release is safe"),
    Command("restore", "create a new store from a backup"),
    Command("serve", "run one API server"),
    Command("status", "show storage versions, migrations, servers"),
    Command("store", "put, get, list and watch keys of a store"),
    Command("up", "run a cluster on this machine"),
    Command("upgrade", "upgrade the servers of a cluster to a release"),
    Command("version", "print the version of restow"),
)


class _Parser(argparse.ArgumentParser):
    """Rejects unknown arguments itself, so that the usage shown is that of the command.

    Otherwise argparse passes them to the top-level parser, which has no options.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The top-level parser, and an empty one for each command, filled by its module."""
    parser = _Parser(
        prog="restow",
        description="A Kubernetes-style API server that tracks every object's storage version.",
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
    """A parser with the arguments of all commands. It imports all their modules, which is slow.

    A command whose extra is not installed has no arguments here.
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
        module = _load(called, parsers[called])  # may take a second; Ctrl-C is possible
        if isinstance(sys.stdout, io.TextIOWrapper):
            # The encoding of a terminal may lack some characters.
            sys.stdout.reconfigure(errors="backslashreplace")
        arguments = parser.parse_args(words)
        arguments.words = tuple(words)  # for a command that starts workers like itself
        arguments.make_whole_parser = make_whole_parser  # for `completion`
        return module.run(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as in `restow ... | head`. Discard the last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except Exception as error:
        from restow.aio.extras import missing_extra

        if not (advice := missing_extra(error)):
            raise
        print(f"restow {called} {advice}", file=sys.stderr)
        return EXIT_USAGE


def _load(name: str, parser: argparse.ArgumentParser) -> CommandModule:
    """Import a command module, and let it add its arguments."""
    module = cast(CommandModule, importlib.import_module(f"restow.cli.{name}"))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = getattr(module, "EPILOG", None)
    module.add_arguments(parser)
    return module


def _called(words: Sequence[str]) -> str | None:
    """Find the command: the first word that is not an option."""
    name = next((word for word in words if not word.startswith("-")), None)
    return name if any(command.name == name for command in COMMANDS) else None


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
