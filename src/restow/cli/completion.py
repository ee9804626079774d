"""`restow completion`: print a shell script that completes commands, options, choices and files.

shtab generates the script from the parsers of the commands. Added here: completion of values,
short descriptions, and corrections for bash and zsh. The script is self-contained: completing a
word starts no Python and contacts no cluster.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from restow.kinds.releases import shipped_releases

SHELLS: Final = ("bash", "fish", "zsh")
BRIEF_CHARACTERS_MAX: Final = 72

EPILOG = """\
For the current shell only:

  source <(restow completion bash)        the same for zsh, after compinit
  restow completion fish | source

For every new shell; generate it again after an upgrade of restow:

  restow completion bash > ~/.local/share/bash-completion/completions/restow
  restow completion zsh > ~/.zfunc/_restow                 with ~/.zfunc in $fpath before compinit
  restow completion fish > ~/.config/fish/completions/restow.fish

Exit codes: 0 done, 2 wrong usage.
"""

# bash also splits the line at '=' and ':', which restow does not: `--store sqlite:store.db` is two
# words for restow and four for bash. This function splits the line as restow does, and passes an
# option and its value to shtab's function as two words.
_BASH: Final = """
_restow() {
    local line=${COMP_LINE:0:COMP_POINT} prefix='' word
    local -a words=() COMP_WORDS=()
    read -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    for word in "${words[@]}"; do
        if [[ $word == --*=* ]]; then
            COMP_WORDS+=("${word%%=*}" "${word#*=}")
        else
            COMP_WORDS+=("$word")
        fi
    done
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _shtab_restow
    # Without '=' among the word breaks, readline replaces the whole word.
    if [[ $word == --*=* && $COMP_WORDBREAKS != *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]/#/${word%%=*}=}")
    fi
}
complete -F _restow restow
"""
_BASH_FILES: Final = """
_restow_files() { compgen -f -- "$1"; }
_restow_directories() { compgen -d -- "$1"; }
_restow_release_files() { compgen -f -- "$1"; compgen -W "$_restow_releases" -- "$1"; }
"""
_ZSH_FILES: Final = """
_restow_release_files() {
    _alternative 'releases:release:compadd -a _restow_releases' 'files:file:_files'
}
"""
# What fish offers for an unknown command. Its path function handles neither '~' nor '\\ '.
_FISH_FILES: Final = """
function __restow_files
    complete -C "'' "(commandline -ct)
end
"""
# shtab checks for `eval`; this also allows `source`, and autoloading as `_restow`.
_ZSH_LOADED: Final = "$zsh_eval_context[-1] == eval", "$funcstack[1] != _restow"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell to generate the script for")


def run(arguments: argparse.Namespace) -> int:
    print(make_script(arguments.make_whole_parser(), arguments.shell, shipped_releases()), end="")
    return 0


def make_script(parser: argparse.ArgumentParser, shell: str, releases: Sequence[str]) -> str:
    """Generate the script for a shell. The parser is modified, and unusable afterwards."""
    import shtab

    # Parsers can share an action, which is prepared once.
    actions = {
        id(action): (action, each)
        for each in _every_parser(parser)
        for action in each._actions  # noqa: SLF001 - argparse has no public access to them
    }
    excluded = _exclusive_options(parser)
    for key, (action, each) in actions.items():
        _prepare(action, each, shell=shell, releases=releases)
        if shell == "zsh":
            _prepare_for_zsh(action, excluded=excluded.get(key, ()))
    names = " ".join(releases)
    preamble = {
        "bash": f"_restow_releases='{names}'{_BASH_FILES}",
        "fish": _FISH_FILES,
        "zsh": f"_restow_releases=({names}){_ZSH_FILES}",
    }
    script = shtab.complete(parser, shell, preamble=preamble[shell])
    if shell == "zsh":
        script = script.replace(*_ZSH_LOADED)
    return f"{script}\n{_BASH}" if shell == "bash" else script


def brief(text: str) -> str:
    """The first clause of a help text, short enough for a completion list."""
    first = re.split(r"; |\. ", text, maxsplit=1)[0].rstrip(".")
    if len(first) > BRIEF_CHARACTERS_MAX:
        first = f"{first[: BRIEF_CHARACTERS_MAX - 1].rpartition(' ')[0].rstrip(',:')}…"
    return first


def _every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from _every_parser(below)


def _prepare(
    action: Any, parser: argparse.ArgumentParser, *, shell: str, releases: Sequence[str]
) -> None:
    """Shorten the help text, and set how the value is completed."""
    if action.help and action.help != argparse.SUPPRESS:
        about = parser._get_formatter()._expand_help(action)  # noqa: SLF001
        action.help = brief(about).replace("%", "%%")
    if action.option_strings and action.nargs in ("?", "*"):
        action.nargs = 0  # do not require a value that is optional
    if action.nargs == 0 or action.choices:
        return
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    found: dict[str, str] | None = None
    if name in ("RELEASE", "NAME|FILE") or "--release" in action.option_strings:
        fish = f"{' '.join(releases)} (__restow_files)"
        found = {"bash": "_restow_release_files", "zsh": "_restow_release_files", "fish": fish}
    elif name == "DIR":
        fish = "(__fish_complete_directories)"
        found = {"bash": "_restow_directories", "zsh": "_files -/", "fish": fish}
    elif name == "FILE" or action.type is Path:
        fish = "(__restow_files)"
        found = {"bash": "_restow_files", "zsh": "_files", "fish": fish}
    if found is not None:
        action.complete = {shell: found[shell]}


def _exclusive_options(parser: argparse.ArgumentParser) -> dict[int, tuple[str, ...]]:
    """For each action, the options that exclude each other."""
    return {
        id(action): tuple(name for other in group._group_actions for name in other.option_strings)  # noqa: SLF001
        for each in _every_parser(parser)
        for group in each._mutually_exclusive_groups  # noqa: SLF001
        for action in group._group_actions  # noqa: SLF001
    }


def _prepare_for_zsh(action: argparse.Action, *, excluded: Sequence[str]) -> None:
    """Write a long option as a specification of `_arguments`: `--name=` also takes its value
    after '=', and names in parentheses are not offered after it."""
    takes = action.nargs != 0
    names = [
        f"{name}=" if takes and name.startswith("--") else name for name in action.option_strings
    ]
    if excluded and len(names) == 1:
        names = [f"({' '.join(excluded)}){names[0]}"]
    action.option_strings = names
