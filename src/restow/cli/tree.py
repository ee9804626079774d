"""The command line as plain values: every command with its options, read from the real parsers.

The reference of commands is made from it, so it cannot differ from what is accepted. Nothing here
parses a line or prints, and no command is described by hand.

Not here: shell completion, which is made from the parsers themselves (`completion`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_DEFAULT: Final = re.compile(r"(?:^|; )default(?:: | (?=\d))(.+)$")
_EXIT_CODES: Final = re.compile(r"^Exit codes: (.+?)\.?\s*(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_EXIT_CODE: Final = re.compile(r"(?:^|[,;] )(\d{1,3}) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Something that is written behind an option, or by itself."""

    name: str
    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A word with a dash."""

    names: tuple[str, ...]
    value: Value | None
    about: str
    default: str
    required: bool
    repeated: bool
    excludes: tuple[str, ...]
    """Options that cannot stand beside it."""
    alternative: bool
    """Whether it or one of those must be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A word without a dash, at its place."""

    value: Value
    about: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Options that belong together; those without a title are the command's own."""

    title: str
    about: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNode:
    """A command, or a verb of one, or `restow` itself."""

    words: tuple[str, ...]
    summary: str
    text: str
    """What stands below the options in its help."""
    exit_codes: tuple[tuple[int, str], ...]
    arguments: tuple[Argument, ...]
    groups: tuple[OptionGroup, ...]
    children: tuple[CommandNode, ...]

    @property
    def path(self) -> str:
        return " ".join(self.words)

    @property
    def options(self) -> tuple[Option, ...]:
        return tuple(option for group in self.groups for option in group.options)

    def walk(self) -> Iterable[CommandNode]:
        """Itself, and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def whole_tree(parser: argparse.ArgumentParser) -> CommandNode:
    """`restow` with all its commands, from a parser that has the arguments of each."""
    return _node(parser, (parser.prog,), summary=parser.description or "")


def _node(parser: argparse.ArgumentParser, words: tuple[str, ...], *, summary: str) -> CommandNode:
    excluding = _excluding(parser)
    groups: list[OptionGroup] = []
    arguments: list[Argument] = []
    children: list[CommandNode] = []
    unnamed = (parser._positionals, parser._optionals)  # noqa: SLF001 - argparse tells nobody
    for found in parser._action_groups:  # noqa: SLF001
        options: list[Option] = []
        for action in found._group_actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                children += _children(action, words)
            elif action.option_strings:
                options.append(_option(parser, action, excluding.get(action.dest, ((), False))))
            else:
                arguments.append(_argument(parser, action))
        if options:
            title = "" if found in unnamed else found.title or ""
            groups.append(
                OptionGroup(title=title, about=found.description or "", options=(*options,))
            )
    text = (parser.epilog or "").strip("\n")
    return CommandNode(
        words=words,
        summary=summary,
        text=text,
        exit_codes=_exit_codes(text),
        arguments=tuple(arguments),
        groups=tuple(groups),
        children=tuple(children),
    )


def _children(action: Any, words: tuple[str, ...]) -> list[CommandNode]:
    summaries = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
    return [
        _node(parser, (*words, name), summary=summaries.get(name, ""))
        for name, parser in action.choices.items()
    ]


def _excluding(parser: argparse.ArgumentParser) -> dict[str, tuple[tuple[str, ...], bool]]:
    """For each option the others of which only one may be given, and whether one must be."""
    found: dict[str, tuple[tuple[str, ...], bool]] = {}
    for group in parser._mutually_exclusive_groups:  # noqa: SLF001
        actions = group._group_actions  # noqa: SLF001
        for action in actions:
            others = (
                name for each in actions if each is not action for name in each.option_strings
            )
            found[action.dest] = tuple(others), group.required
    return found


def _option(
    parser: argparse.ArgumentParser,
    action: argparse.Action,
    excluding: tuple[tuple[str, ...], bool],
) -> Option:
    about, default = _texts(parser, action)
    takes = action.nargs != 0
    return Option(
        names=tuple(action.option_strings),
        value=_value(action, default_name=action.dest.upper()) if takes else None,
        about=about,
        default=default if takes else "",
        required=action.required,
        repeated=isinstance(action, argparse._AppendAction),  # noqa: SLF001
        excludes=excluding[0],
        alternative=excluding[1],
    )


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    about, default = _texts(parser, action)
    return Argument(
        value=_value(action, default_name=action.dest.upper()), about=about, default=default
    )


def _value(action: argparse.Action, *, default_name: str) -> Value:
    words = [str(choice) for choice in action.choices or ()]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    name = metavar or "|".join(words) or default_name
    return Value(
        name=name,
        optional=action.nargs in ("?", "*"),
        many=action.nargs in ("*", "+"),
    )


def _texts(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """What the help says, and the default, which most helps say in their own words."""
    about = ""
    if action.help:
        about = parser._get_formatter()._expand_help(action)  # noqa: SLF001
    said = _DEFAULT.search(about)
    if said is not None:
        return about[: said.start()], said[1]
    return about, _shown(action.default)


def _shown(default: object) -> str:
    if default is None or default in ("", [], (), False) or default is argparse.SUPPRESS:
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _exit_codes(text: str) -> tuple[tuple[int, str], ...]:
    found = _EXIT_CODES.search(text)
    if found is None:
        return ()
    parts = _EXIT_CODE.split(" ".join(found[1].split()))[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return tuple(sorted((int(code), meaning) for code, meaning in pairs))
