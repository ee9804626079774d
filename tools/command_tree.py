"""The command line as data: every command with its options, read from the parsers.

The command reference is generated from it, so it always matches the parsers. Nothing here parses
arguments or prints.

Not here: shell completion, which is generated from the parsers directly (`completion`).
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
    """The value of an option, or a positional value."""

    name: str
    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, with its help text and constraints."""

    names: tuple[str, ...]
    value: Value | None
    about: str
    default: str
    required: bool
    repeated: bool
    excludes: tuple[str, ...]
    """Options that cannot be combined with it."""
    alternative: bool
    """Whether it or one of `excludes` is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A positional argument."""

    value: Value
    about: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """A titled group of options; the group without a title has the ungrouped options."""

    title: str
    about: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNode:
    """A command, a verb of one, or `restow` itself."""

    words: tuple[str, ...]
    summary: str
    text: str
    """The text below the options in its help."""
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
        """Itself and all its descendants."""
        yield self
        for child in self.children:
            yield from child.walk()


def whole_tree(parser: argparse.ArgumentParser) -> CommandNode:
    """The tree of `restow`, from a parser that has the arguments of every command."""
    return _node(parser, (parser.prog,), summary=parser.description or "")


def _node(parser: argparse.ArgumentParser, words: tuple[str, ...], *, summary: str) -> CommandNode:
    excluding = _excluding(parser)
    groups: list[OptionGroup] = []
    arguments: list[Argument] = []
    children: list[CommandNode] = []
    unnamed = (parser._positionals, parser._optionals)  # noqa: SLF001 - argparse has no public access
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
    """For each option the others it excludes, and whether one of them is required."""
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
    """The help text, and the default, which most help texts contain."""
    about = ""
    if action.help:
        about = parser._get_formatter()._expand_help(action)  # noqa: SLF001
    stated = _DEFAULT.search(about)
    if stated is not None:
        return about[: stated.start()], stated[1]
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
