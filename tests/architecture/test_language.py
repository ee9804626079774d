"""The words that the language guide replaces become fewer with time, and never more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACES: Final = ("src", "tests", "docs", "tools", "benchmarks", "examples", "deploy")
PAGES: Final = ("README.md", "CHANGELOG.md", "SECURITY.md", "Makefile")
ENDINGS: Final = frozenset({".py", ".md", ".html", ".js", ".css", ".yaml", ".txt"})
WORDS: Final = re.compile(
    r"\b(strangers?|whoever|nobody|anew|wish(es|ed)?|heed(s|ed)?|mend(s|ed)?|the dead|those who)\b",
    re.IGNORECASE,
)
COUNT_MAX: Final = 2324
"""Lower it when there are fewer."""


def test_replaced_words_become_fewer() -> None:
    """Identifiers, comments, messages and documents use the terms of the field."""
    files = [ROOT / name for name in PAGES]
    for place in PLACES:
        files += [
            each
            for each in (ROOT / place).rglob("*")
            if each.suffix in ENDINGS and "node_modules" not in each.parts
        ]
    count = sum(
        len(WORDS.findall(each.read_text(encoding="utf-8")))
        for each in files
        if each != Path(__file__)
    )
    assert count <= COUNT_MAX, f"{count} words that the language guide replaces, {COUNT_MAX} before"
