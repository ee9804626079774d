"""Completion for fish: a function that says where on the line one is, and a rule for each word.

Not here: what there is to complete (`tree`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from restow.cli.tree import CommandNode, Hint, Option, Value, brief

_WALK = """\
# Says which command the words before the cursor have led to.
function __restow_at
    set -l words (commandline -opc)
    set -l at restow
    set -l awaiting 0
    set -e words[1]
    for word in $words
        if test $awaiting = 1
            set awaiting 0
        else if string match -q -- '-*' $word
            if contains -- "$at $word" $__restow_takes
                set awaiting 1
            end
        else if contains -- "$at $word" $__restow_nodes
            set at "$at $word"
        end
    end
    test "$at" = "$argv"
end
"""


def fish_script(tree: CommandNode, releases: Sequence[str]) -> str:
    """The whole script."""
    return "\n".join(_lines(tree, releases)) + "\n"


def _lines(tree: CommandNode, releases: Sequence[str]) -> Iterator[str]:
    nodes = list(tree.walk())
    yield "# Completes the words of restow in fish. Made by `restow completion fish`."
    yield ""
    yield _list("__restow_nodes", [node.path for node in nodes[1:]])
    yield ""
    yield "# Options that a value must follow."
    taking = [
        f"{node.path} {name}"
        for node in nodes
        for option in node.options
        if option.value is not None and not option.value.optional
        for name in option.names
    ]
    yield _list("__restow_takes", taking)
    yield ""
    yield _WALK
    yield "complete -c restow -f"
    for node in nodes:
        yield from _rules(node, releases)


def _list(name: str, values: Sequence[str]) -> str:
    return " \\\n    ".join([f"set -g {name}", *map(_quoted, values)])


def _rules(node: CommandNode, releases: Sequence[str]) -> Iterator[str]:
    begin = f"complete -c restow -n {_quoted(f'__restow_at {node.path}')}"
    for child in node.children:
        yield f"{begin} -a {child.words[-1]} -d {_quoted(brief(child.summary))}"
    for argument in node.arguments:
        offered = _offered(argument.value, releases)
        if offered:
            yield f"{begin} {offered}"
    for option in node.options:
        yield f"{begin} {_option(option, releases)}"


def _option(option: Option, releases: Sequence[str]) -> str:
    parts = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.value is not None and not option.value.optional:
        with_files = option.value.hint in (Hint.FILES, Hint.RELEASES)
        parts += ["-r" if with_files else "-x", _offered(option.value, releases)]
    if option.about:
        parts.append(f"-d {_quoted(brief(option.about))}")
    return " ".join(part for part in parts if part)


def _offered(value: Value, releases: Sequence[str]) -> str:
    match value.hint:
        case Hint.WORDS:
            return f"-a {_quoted(' '.join(value.words))}"
        case Hint.FILES:
            return "-F"
        case Hint.FOLDERS:
            return "-a '(__fish_complete_directories)'"
        case Hint.RELEASES:
            return f"-F -a {_quoted(' '.join(releases))}"
        case Hint.NOTHING:
            return ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
