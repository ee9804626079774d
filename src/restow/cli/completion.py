"""`restow completion`: a script that lets a shell complete commands, options, choices and files.

The script is made from the same parsers that read the line (`tree`), one writer for each shell. It
is complete in itself: nothing is asked of restow, and of no cluster, while somebody types.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from restow.cli.completion_bash import bash_script
from restow.cli.completion_fish import fish_script
from restow.cli.completion_zsh import zsh_script
from restow.cli.tree import CommandNode, whole_tree
from restow.kinds.releases import shipped_releases

Writer = Callable[[CommandNode, Sequence[str]], str]

SCRIPTS: Final[dict[str, Writer]] = {
    "bash": bash_script,
    "fish": fish_script,
    "zsh": zsh_script,
}

EPILOG = """\
For this shell only:

  source <(restow completion bash)        the same for zsh, after compinit
  restow completion fish | source

For every shell that starts from now on; make it again after an upgrade of restow:

  restow completion bash > ~/.local/share/bash-completion/completions/restow
  restow completion zsh > ~/.zfunc/_restow                 with ~/.zfunc in $fpath before compinit
  restow completion fish > ~/.config/fish/completions/restow.fish

Exit codes: 0 done, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell that shall read it")


def run(arguments: argparse.Namespace) -> int:
    tree = whole_tree(arguments.make_whole_parser())
    print(SCRIPTS[arguments.shell](tree, shipped_releases()), end="")
    return 0
