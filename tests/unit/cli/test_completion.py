"""Shell completion: what real shells offer with the scripts that are generated from the parsers."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from restow.cli.completion import SHELLS, brief, make_script
from restow.cli.main import COMMANDS, main, make_whole_parser
from restow.kinds.releases import shipped_releases
from tools.command_tree import CommandNode, whole_tree

ASK = """\
source "$1"
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _restow
    (IFS=$'\\t'; printf '%s\\n' "${COMPREPLY[*]}")
done
"""
ASK_FISH = """\
source $argv[1]
for line in (cat)
    echo (complete -C "$line" | string replace -r '\\t.*' '' | string join '|')
end
"""
ASK_ZSH = "autoload -Uz compinit; compinit -u -D; source $1; print -r -- $_comps[restow]"


@pytest.fixture(scope="module")
def tree() -> CommandNode:
    return whole_tree(make_whole_parser())


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of each shell, as a file."""
    folder = tmp_path_factory.mktemp("scripts")
    found = {}
    for shell in SHELLS:
        found[shell] = folder / shell
        found[shell].write_text(make_script(make_whole_parser(), shell, shipped_releases()))
    return found


def offered(script: Path, lines: Sequence[str], folder: Path) -> list[list[str]]:
    """The completions of a real bash for each line."""
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-u", "-c", ASK, "bash", str(script)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=folder,
    )
    assert done.stderr == ""
    return [sorted(line.split("\t")) if line else [] for line in done.stdout.split("\n")[:-1]]


def test_bash_offers_every_command_verb_and_option(
    scripts: dict[str, Path], tree: CommandNode, tmp_path: Path
) -> None:
    """At each position bash offers exactly what the parser accepts there."""
    nodes = list(tree.walk())
    lines = [f"{node.path} -" for node in nodes]
    expected = [sorted(name for each in node.options for name in each.names) for node in nodes]
    for node in nodes:
        if node.children:
            lines.append(f"{node.path} ")
            expected.append(sorted(child.words[-1] for child in node.children))
    assert offered(scripts["bash"], lines, tmp_path) == expected


def test_bash_completes_arguments_of_options(scripts: dict[str, Path], tmp_path: Path) -> None:
    """Choices, files, directories and releases are offered where they apply, also after '='."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    answers = {
        "restow serve --coordination ": ["report", "vote"],
        "restow serve --coordination=v": ["vote"],
        "restow serve --data-dir f": ["folder"],
        "restow serve --data-dir=f": ["folder"],
        "restow serve --tls-cert-file f": ["file", "folder"],
        "restow serve --release x+": ["x+1", "x+2", "x+3"],
        "restow serve --bind ": [],
        "restow serve --bind=1": [],
        "restow serve --change-coordination-mode=": [],
        "restow backup fi": ["file"],
        "restow backup --store sqlite:store.db fi": ["file"],
        "restow completion z": ["zsh"],
        "restow store put --store sqlite:a=b /key value -o ": ["json", "text"],
        "restow store put --store memory: --if-a": ["--if-absent"],
        "restow census --list-stale --sn": ["--snapshot"],
        "restow census a\\ b --sn": ["--snapshot"],
        "restow nothing": [],
    }
    found = offered(scripts["bash"], list(answers), tmp_path)
    assert dict(zip(answers, found, strict=True)) == answers


def test_bash_keeps_the_option_where_it_is_one_word_with_its_value(
    scripts: dict[str, Path], tmp_path: Path
) -> None:
    """Where '=' does not break words, the completion replaces the whole word."""
    script = tmp_path / "script"
    script.write_text(f"COMP_WORDBREAKS=$' \\t\\n'\n{scripts['bash'].read_text()}")
    assert offered(script, ["restow serve --coordination=v"], tmp_path) == [["--coordination=vote"]]


def test_bash_offers_names_with_blanks(scripts: dict[str, Path], tmp_path: Path) -> None:
    """A file name with a blank is completed with a backslash."""
    (tmp_path / "a file").touch()
    assert offered(scripts["bash"], ["restow backup a\\ f"], tmp_path) == [["a file"]]


def test_zsh_has_every_word(scripts: dict[str, Path], tree: CommandNode, tmp_path: Path) -> None:
    """Each command has its options, and those with a value also accept it after '='. If zsh is
    installed, it loads the script."""
    text = scripts["zsh"].read_text()
    assert "if [[ $funcstack[1] != _restow ]]; then" in text  # otherwise `source` would call it
    for node in tree.walk():
        specs = zsh_specs(text, node)
        for option in node.options:
            for name in option.names:
                behind = "=[" if option.value is not None and not option.value.optional else "["
                wanted = f"{name}{behind}" if name.startswith("--") else f"{name}["
                found = [spec for spec in specs if re.search(rf"(^|[*)]){re.escape(wanted)}", spec)]
                assert len(found) == 1, (node.path, wanted)
                if option.excludes:
                    assert set(option.excludes) <= set(found[0][1:].partition(")")[0].split())
    if shutil.which("zsh") is not None:
        done = subprocess.run(
            ["zsh", "-f", "-c", ASK_ZSH, "zsh", str(scripts["zsh"])],
            check=True,
            timeout=60,
            capture_output=True,
            text=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert (done.stdout, done.stderr) == ("_shtab_restow\n", "")


def zsh_specs(text: str, node: CommandNode) -> list[str]:
    """The specifications of a command's options, unquoted, one for each name."""
    body = text.partition(f"\n_shtab_{'_'.join(node.words)}_options=(\n")[2].partition("\n)")[0]
    assert body
    found: list[str] = []
    for line in body.splitlines():
        # `{-o,--output=}"[…]"` is one specification for each name.
        names, braced, rest = (
            line.strip().removeprefix('"*"').removeprefix('"(- : *)"').partition("}")
        )
        each = names[1:].split(",") if names.startswith("{") and braced else [""]
        found += ["".join(shlex.split(f"{name}{rest if name else line}")) for name in each]
    return found


def test_fish_has_every_word(scripts: dict[str, Path], tree: CommandNode, tmp_path: Path) -> None:
    """There is a rule for each option of each command; fish uses it if it is installed."""
    text = scripts["fish"].read_text()
    rules = [shlex.split(line) for line in text.splitlines() if line.startswith("complete ")]
    for node in tree.walk():
        condition = " ".join(["_shtab_restow_using", *node.words[1:]])
        of_node = [rule for rule in rules if rule[3:5] == ["-n", condition]]
        for option in node.options:
            words = [
                word
                for name in option.names
                for word in (("-l", name[2:]) if name.startswith("--") else ("-s", name[1:]))
            ]
            assert any(rule[5 : 5 + len(words)] == words for rule in of_node), (node.path, words)
    if shutil.which("fish") is not None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "a file").touch()
        answers = {
            "restow serve --guarantee ": "loose|strict",
            "restow serve --guarantee=l": "--guarantee=loose",
            "restow serve --data-dir f": "folder/",
            "restow serve --release x+": "x+1|x+2|x+3",
            "restow backup --store sqlite:store.db a\\ f": "a file",
            "restow census --list-stale --sn": "--snapshot",
        }
        done = subprocess.run(
            ["fish", "-c", ASK_FISH, "--", str(scripts["fish"])],
            check=True,
            timeout=60,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            input="".join(f"{line}\n" for line in answers),
            env={**os.environ, "HOME": str(tmp_path)},
        )
        found = ["|".join(sorted(line.split("|"))) for line in done.stdout.splitlines()]
        assert dict(zip(answers, found, strict=True)) == answers


def test_a_node_for_every_command(tree: CommandNode) -> None:
    """Each row of the table of commands is in the tree, with at least one option."""
    assert [child.words[-1] for child in tree.children] == [row.name for row in COMMANDS]
    assert all(any("--help" in option.names for option in node.options) for node in tree.walk())


def test_the_command(capsys: pytest.CaptureFixture[str], scripts: dict[str, Path]) -> None:
    """`restow completion bash` prints the script, and an unknown shell is named in the error."""
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"].read_text()
    with pytest.raises(SystemExit) as ended:
        main(["completion", "csh"])
    assert ended.value.code == 2
    assert "'csh'" in capsys.readouterr().err


def test_exit_codes_and_defaults_are_read_from_the_help(tree: CommandNode) -> None:
    """The tree has the exit codes of the help text, in order, and each default once."""
    nodes = {node.path: node for node in tree.walk()}
    assert [code for code, _ in nodes["restow census"].exit_codes] == [0, 1, 2, 3, 4]
    assert dict(nodes["restow doctor"].exit_codes)[2] == "errors, or wrong usage"
    options = {option.names[-1]: option for option in nodes["restow serve"].options}
    assert options["--compaction-interval"].default == "5m"
    assert "default" not in options["--compaction-interval"].about
    assert options["--log-format"].default == "text"
    assert options["--kubeconfig"].default == "DIR/kubeconfig"


def test_a_brief_text_ends_at_a_word() -> None:
    """The description of an option is its first clause, limited to one line."""
    assert brief("of the front port; default: --bind") == "of the front port"
    assert brief("Short. And more.") == "Short"
    assert brief("word " * 40).endswith("word…")
