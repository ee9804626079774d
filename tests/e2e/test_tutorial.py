"""Runs the commands of the tutorial and compares their output with the page."""

from pathlib import Path

import pytest

from tests.e2e.documents import (
    ROOT,
    Block,
    Foreground,
    Shell,
    behind_make,
    blocks_of,
    make_clone,
    missing,
)

pytestmark = pytest.mark.area("documents")

TUTORIAL = ROOT / "docs" / "tutorial.md"
SECONDS_MAX = 300
"""Some thirty commands on real processes; on an idle machine they take a tenth of it."""


@pytest.mark.timeout(SECONDS_MAX)
def test_the_tutorial(tmp_path: Path) -> None:
    """All commands, from the first to the last, print what the page shows."""
    first, *others = blocks_of(TUTORIAL)
    environment = make_clone(tmp_path)
    assert first.commands.startswith("make up")
    up = behind_make(first.commands.strip(), tmp_path, environment=environment)
    assert up == ".venv/bin/restow up --data-dir .restow --release x+1"
    with (
        Foreground(up, tmp_path, environment=environment) as cluster,
        Shell(tmp_path, environment=environment) as shell,
    ):
        cluster.wait_ready()
        assert missing(first.shown, cluster.output) == []
        *steps, clean_up = others
        for block in steps:
            shell.run(block)
        assert cluster.stop() == 0, cluster.output
        shell.run(clean_up)
    assert not (tmp_path / ".restow").exists()


def test_the_comparison_detects_differences() -> None:
    """Another word or another order is a difference; blanks and `…` are not."""
    printed = "NAME   AGE\n\x1b[1mone\x1b[0m    12 s\ntwo    3 s\n"
    assert missing(("NAME AGE", "…", "one …", "two … s"), printed) == []
    assert missing(("two …", "one …"), printed) == ["one …"]
    assert missing(("one",), printed) == ["one"]


def test_output_belongs_to_the_commands_before_it(tmp_path: Path) -> None:
    """A block of output belongs to the commands before it; blocks in other languages are
    ignored."""
    page = tmp_path / "page.md"
    page.write_text("```sh\na\n```\n\n```\nA\n```\n\n```yaml\ny\n```\n\n```sh\nb\n```\n")
    assert blocks_of(page) == [
        Block(commands="a\n", shown=("A",)),
        Block(commands="b\n", shown=()),
    ]
