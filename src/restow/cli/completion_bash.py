"""Completion for bash: one function that walks the line, and tables of what may come where.

It needs bash 4.4 and nothing else, so not the package bash-completion. Not here: what there is to
complete (`tree`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from restow.cli.tree import CommandNode, Hint, Value

_WALK = """\
_restow() {
    # The line is split here, since bash itself also splits at '=' and ':'.
    local line=${COMP_LINE:0:COMP_POINT} at=restow count=0 awaiting='' hint='' prefix='' word
    local -a words=()
    read -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    local current=${words[-1]}
    for word in "${words[@]:1:${#words[@]}-2}"; do
        if [[ $awaiting ]]; then
            awaiting=''
        elif [[ $word == --*=* ]]; then
            :
        elif [[ $word == -* ]]; then
            if _restow_value "$at" "$word"; then awaiting=$word; fi
        elif _restow_leads "$at $word"; then
            at="$at $word" count=0
        else
            count=$((count + 1))
        fi
    done
    if [[ $awaiting ]]; then
        _restow_value "$at" "$awaiting"
    elif [[ $current == --*=* ]]; then
        _restow_value "$at" "${current%%=*}" || return 0
        [[ $COMP_WORDBREAKS == *=* ]] || prefix=${current%%=*}=
        current=${current#*=}
    elif [[ $current == -* ]]; then
        hint="words $(_restow_options "$at")"
    else
        _restow_argument "$at" "$count"
    fi
    COMPREPLY=()
    case $hint in
    'words '*) mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "${hint#words }" -- "$current") ;;
    files) _restow_files -f ;;
    folders) _restow_files -d ;;
    releases)
        _restow_files -f
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY \\
            < <(compgen -P "$prefix" -W "$_restow_releases" -- "$current")
        ;;
    esac
}

_restow_files() {
    compopt -o filenames 2> /dev/null  # fails where nobody completes, as in a test
    mapfile -t COMPREPLY < <(compgen -P "$prefix" "$1" -- "$current")
}
"""


def bash_script(tree: CommandNode, releases: Sequence[str]) -> str:
    """The whole script."""
    return "\n".join(_lines(tree, releases)) + "\n"


def _lines(tree: CommandNode, releases: Sequence[str]) -> Iterator[str]:
    nodes = list(tree.walk())
    yield "# Completes the words of restow in bash. Made by `restow completion bash`."
    yield ""
    yield _WALK
    yield f"_restow_releases={shlex.quote(' '.join(releases))}"
    yield ""
    yield "# Whether these words name a command, or a verb of one."
    yield "_restow_leads() {"
    yield "    case $1 in"
    yield from (f"    {shlex.quote(node.path)}) return 0 ;;" for node in nodes[1:])
    yield "    *) return 1 ;;"
    yield "    esac"
    yield "}"
    yield ""
    yield "_restow_options() {"
    yield "    case $1 in"
    for node in nodes:
        names = " ".join(name for option in node.options for name in option.names)
        yield f"    {shlex.quote(node.path)}) echo {shlex.quote(names)} ;;"
    yield "    esac"
    yield "}"
    yield ""
    yield "# What follows an option of a command; fails if nothing does."
    yield "_restow_value() {"
    yield "    case $1 in"
    for node in nodes:
        yield from _values(node)
    yield "    *) return 1 ;;"
    yield "    esac"
    yield "}"
    yield ""
    yield "# What stands at a place of its own: $2 such words of the command come before it."
    yield "_restow_argument() {"
    yield '    case "$1 $2" in'
    for node in nodes:
        yield from _places(node)
    yield '    *) hint="words $(_restow_options "$1")" ;;'
    yield "    esac"
    yield "}"
    yield ""
    yield "complete -F _restow restow"


def _values(node: CommandNode) -> Iterator[str]:
    by_hint: dict[str, list[str]] = {}
    for option in node.options:
        # A value that may be left out is not waited for.
        if option.value is not None and not option.value.optional:
            by_hint.setdefault(_hint(option.value), []).extend(option.names)
    if by_hint:
        yield f"    {shlex.quote(node.path)})"
        yield "        case $2 in"
        for hint, names in by_hint.items():
            yield f"        {' | '.join(names)}) hint={shlex.quote(hint)} ;;"
        yield "        *) return 1 ;;"
        yield "        esac"
        yield "        ;;"


def _places(node: CommandNode) -> Iterator[str]:
    if node.children:
        names = " ".join(child.words[-1] for child in node.children)
        yield f"    {shlex.quote(f'{node.path} 0')}) hint={shlex.quote(f'words {names}')} ;;"
    for index, argument in enumerate(node.arguments):
        if argument.value.hint is not Hint.NOTHING:
            place = shlex.quote(f"{node.path} ") + "*" if argument.value.many else ""
            place = place or shlex.quote(f"{node.path} {index}")
            yield f"    {place}) hint={shlex.quote(_hint(argument.value))} ;;"


def _hint(value: Value) -> str:
    return f"words {' '.join(value.words)}" if value.hint is Hint.WORDS else value.hint.value
