"""The table of errors quotes the program: each listed message exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "errors.md"
ANYTHING = "…"
BESIDE = ("restow ", "last ", "/", "--")
"""Beginnings of text that accompanies a message (a command, a path) and is not one."""
PART_LENGTH_MIN = 3
"""Shorter pieces between two placeholders are found everywhere, and prove nothing."""


def _program_texts() -> str:
    """Returns all strings in the program; f-strings are split at their placeholders."""
    found: list[str] = []
    for path in sorted((ROOT / "src" / "restow").rglob("*.py")):
        tree = ast.parse(path.read_text())
        found += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    return "\0".join(found)


def _quoted() -> list[str]:
    """Returns the text between backticks in the first column."""
    rows = re.findall(r"^\| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    found = (text for row in rows for text in re.findall(r"`([^`]+)`", row))
    return [text for text in found if not text.startswith(BESIDE)]


def _parts(quoted: str) -> list[str]:
    parts = (part.strip() for part in quoted.split(ANYTHING))
    return [part for part in parts if len(part) >= PART_LENGTH_MIN]


PROGRAM = _program_texts()


@pytest.mark.parametrize("quoted", _quoted())
def test_an_error_that_is_explained_exists(quoted: str) -> None:
    """Each piece of a quoted message is a piece of a text in the program."""
    assert _parts(quoted), f"{quoted!r} says too little to be found"
    assert [part for part in _parts(quoted) if part not in PROGRAM] == []


def test_an_invented_error_is_found() -> None:
    """The check finds a message that does not exist."""
    assert "the flux capacitor is empty" not in PROGRAM
    assert len(_quoted()) > 50
