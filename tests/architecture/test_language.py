"""The sources, tests and documents use the field's terms instead of the words on the list."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.architecture import language
from tests.architecture.language import files_to_scan, find_words

LISTS: Final = (Path(__file__), Path(language.__file__))


def test_no_replaced_words() -> None:
    """No identifier, comment, message or document contains a word on the list."""
    found = [each for path in files_to_scan() if path not in LISTS for each in find_words(path)]
    assert not found, "\n".join(f"{each.path}:{each.line}: {each.word}" for each in found)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("src/a.py", "# a stranger\n", ["stranger"]),
        ("src/a.py", '"""Whoever asks."""\n', ["Whoever"]),
        ("src/a.py", 'log("nobody is there")\n', ["nobody"]),
        ("src/a.py", 'log(f"nobody is {x}")\n', ["nobody"]),
        ("src/a.py", "def tidyRoster(): ...\n", ["tidy", "Roster"]),
        ("src/a.py", "is_stray = 1\n", ["stray"]),
        ("tests/a.py", "def test_a_wish(): ...\n", ["wish"]),
        ("tests/a.py", 'def test():\n    """A wish."""\n', ["wish"]),
        ("tests/a.py", 'name = "nobody"\n', []),
        ("docs/a.md", "It is in\nthe way.\n", ["in the way"]),
        ("docs/a.md", "A client who has\nnot shown a token\n", ["who has not shown"]),
        ("docs/a.md", "A stranger\nis here\n", ["stranger"]),
        ("docs/a.md", "Doorstep, wishbone, mending-free.\n", ["mending"]),
        ("src/a.py", "# It is in\n# the way.\n", ["in the way"]),
        ("src/a.py", 'log(\n    "in the "\n    "way"\n)\n', ["in the way"]),
        ("tests/test_nobody.py", "", ["nobody"]),
        ("src/a.html", "<p>nobody</p>\n", ["nobody"]),
        ("src/a.py", "class HTTPStranger: ...\n", ["Stranger"]),
        ("src/a.py", 'log(f"{x} works off {y} by nobody")\n', ["works off", "nobody"]),
        ("src/a.py", 'log(\n    "in the "\n    f"way of {x}"\n)\n', ["in the way"]),
        ("src/a.py", "def take_part(): ...\n", ["take part"]),
        ("src/a.py", "LIST_LEFT_BEHIND = 1\n", ["LEFT BEHIND"]),
        ("src/a.py", "last_swept = dear\n", ["swept", "dear"]),
        ("deploy/a.service", "# Restarted by nobody\n", ["nobody"]),
        ("docs/a.json", '{"text": "written as v1"}\n', ["written as"]),
    ],
)
def test_words_are_found(
    name: str, text: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all kinds of text; strings of tests are data and do not count."""
    monkeypatch.setattr(language, "ROOT", tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [each.word for each in find_words(path)] == words


def test_exceptions_are_used() -> None:
    """Each allowed text is still in its file."""
    for name, texts in language.ALLOWED.items():
        content = (language.ROOT / name).read_text()
        assert [text for text in texts if text not in content] == [], name
