"""Completion for zsh: a function for each command, with the specifications of `_arguments`.

The script can be sourced after `compinit`, or stand in `$fpath` as `_restow`. Not here: what there
is to complete (`tree`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from restow.cli.tree import Argument, CommandNode, Hint, Option, Value, brief

_END = """\
if [[ $funcstack[1] == _restow ]]; then
    _restow "$@"
else
    compdef _restow restow
fi"""


def zsh_script(tree: CommandNode, releases: Sequence[str]) -> str:
    """The whole script."""
    return "\n".join(_lines(tree, releases)) + "\n"


def _lines(tree: CommandNode, releases: Sequence[str]) -> Iterator[str]:
    yield "#compdef restow"
    yield "# Completes the words of restow in zsh. Made by `restow completion zsh`."
    yield ""
    yield "_restow_releases() {"
    yield f"    local -a names=({' '.join(map(_quoted, releases))})"
    yield "    _alternative 'releases:release:compadd -a names' 'files:file:_files'"
    yield "}"
    for node in tree.walk():
        yield ""
        yield from _parent(node) if node.children else _leaf(node)
    yield ""
    yield _END


def _leaf(node: CommandNode) -> Iterator[str]:
    yield f"{_function(node)}() {{"
    yield "    _arguments -s \\"
    yield " \\\n".join(f"        {spec}" for spec in _specs(node))
    yield "}"


def _parent(node: CommandNode) -> Iterator[str]:
    """A node whose next word is the name of another, which then sees only the words from there."""
    yield f"{_function(node)}() {{"
    yield "    local curcontext=$curcontext state line result=1"
    yield "    local -A opt_args"
    yield "    local -a names=("
    for child in node.children:
        yield f"        {_quoted(f'{child.words[-1]}:{_plain(brief(child.summary))}')}"
    yield "    )"
    yield "    _arguments -C \\"
    yield from (f"        {spec} \\" for spec in _specs(node))
    yield "        '1: :->name' '*:: :->rest' && result=0"
    yield "    case $state in"
    yield "    name) _describe -t commands 'command' names && result=0 ;;"
    yield "    rest)"
    yield "        case $words[1] in"
    yield from (
        f"        {child.words[-1]}) {_function(child)} && result=0 ;;" for child in node.children
    )
    yield "        esac"
    yield "        ;;"
    yield "    esac"
    yield "    return result"
    yield "}"


def _function(node: CommandNode) -> str:
    return f"_{'_'.join(node.words)}"


def _specs(node: CommandNode) -> Iterator[str]:
    for option in node.options:
        yield from _option(option)
    for argument in node.arguments:
        yield _argument(argument)


def _option(option: Option) -> Iterator[str]:
    about = _plain(brief(option.about) or option.names[-1].lstrip("-"))
    others = [*option.names, *option.excludes]
    before = "*" if option.repeated else f"({' '.join(others)})"
    value = ""
    if option.value is not None:
        mark = "::" if option.value.optional else ":"
        value = f"{mark}{_plain(option.value.name)}:{_action(option.value)}"
    for name in option.names:
        joined = "=" if option.value is not None and name.startswith("--") else ""
        yield _quoted(f"{before}{name}{joined}[{about}]{value}")


def _argument(argument: Argument) -> str:
    value = argument.value
    place = "*:" if value.many else "::" if value.optional else ":"
    return _quoted(f"{place}{_plain(value.name)}:{_action(value)}")


def _action(value: Value) -> str:
    match value.hint:
        case Hint.WORDS:
            return f"({' '.join(value.words)})"
        case Hint.FILES:
            return "_files"
        case Hint.FOLDERS:
            return "_files -/"
        case Hint.RELEASES:
            return "_restow_releases"
        case Hint.NOTHING:
            return " "


def _plain(text: str) -> str:
    """Text without a meaning inside a specification."""
    for character in "\\[]:":
        text = text.replace(character, f"\\{character}")
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"
