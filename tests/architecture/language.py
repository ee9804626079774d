"""Finds the words that the language guide replaces. `python -m tests.architecture.language PATH...`

In sources and documents every text counts; in tests identifiers, comments and docstrings, since
a string there may be data.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PLACES: Final = ("src", "tests", "docs", "tools", "benchmarks", "examples", "deploy")
PAGES: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "pyproject.toml",
)
ENDINGS: Final = frozenset(
    {
        *(".py", ".md", ".html", ".js", ".css", ".toml", ".yaml", ".json", ".txt", ".service"),
        "",
    }
)
DATA: Final = ("tests/golden", "tests/data", "src/restow/kinds/data")

WORDS: Final = re.compile(
    r"\b(strangers?|whoever|whomever|nobody|anew|wish(es|ed|ing)?|heed(s|ed|ing|less)?"
    r"|mend(s|ed|ing)?|the dead|those who|the living|ballots?|roster|housekeeping|keepers?"
    r"|entrances?|doors?|pulse|seats?|outlets?|tid(y|ies|ied|ying)|sweeping|strays?|thereby"
    r"|work(s|ed|ing)? off|(take|takes|taking|took|taken) part|left behind|dear|ways in|sweeps?"
    r"|swept|what may be stored|written as"
    r"|of late|hence so|in the way|to be known|looking anew|slowest hundredth"
    r"|who has (not )?shown|believ(e|es|ed|ing)|breath)\b",
    re.IGNORECASE,
)
_TERM_WORDS_MAX: Final = 3
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_F_STRING_TEXT: Final = getattr(tokenize, "FSTRING_MIDDLE", None)
_F_STRING_ENDS: Final = frozenset(
    {getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)}
)
"""Python 3.12 and later have tokens for the parts of an f-string, which is one before."""

ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    # The name of the leader lock is part of a key in the store, which never changes.
    "src/restow/apiserver/aggregated.py": ("housekeeping",),
    "src/restow/controllers/manager.py": ("housekeeping",),
    # Former names, which the lists of changes quote.
    "CHANGELOG.md": ("`--list-left-behind` is now", "`WRITTEN AS` is"),
    # The name of a rule set of ruff.
    "pyproject.toml": ("flake8-tidy-imports",),
}
"""Exceptions, by path and the text of the line, each with its reason."""


class Finding(NamedTuple):
    """One word and its position."""

    path: str
    line: int
    word: str
    text: str


def find_words(path: Path) -> list[Finding]:
    """Returns the words of the list in one file."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    pieces = _python(text, name) if path.suffix == ".py" else _lines(text)
    allowed = ALLOWED.get(name, ())
    return [
        Finding(name, line, found.group(), piece.strip())
        for line, piece in ((0, path.stem), *pieces)
        for found in WORDS.finditer(_CAMEL.sub(" ", piece).replace("_", " "))
        if not any(each in piece for each in allowed)
    ]


def files_to_scan(*places: str) -> Iterator[Path]:
    """Returns all files of the project, or those under some paths."""
    for place in places or (*PLACES, *PAGES):
        path = ROOT / place
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            name = each.relative_to(ROOT).as_posix()
            is_text = each.is_file() and each.suffix in ENDINGS
            if is_text and "node_modules" not in each.parts and not name.startswith(DATA):
                yield each


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Returns each line with its number, and each term that continues on the next line."""
    before = ""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, line
        words = line.strip(" #").split()
        joined = f"{before} {' '.join(words[:_TERM_WORDS_MAX])}"
        for found in WORDS.finditer(joined):
            if found.start() < len(before) < found.end():
                yield number, found.group()
        before = " ".join(words[-_TERM_WORDS_MAX:])


def _python(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Names, comments and strings, of tests only the strings that are docstrings.

    Comments on consecutive lines are one text, and so are adjacent strings.
    """
    is_test = name.startswith("tests/")
    before = tokenize.NEWLINE
    kind, block = tokenize.NEWLINE, list[tuple[int, str]]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        token_type = tokenize.STRING if token.type == _F_STRING_TEXT else token.type
        is_comment = token_type == tokenize.COMMENT
        is_docstring = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        is_string = token_type == tokenize.STRING and (is_docstring or not is_test)
        if token.type == tokenize.NL or token.type in _F_STRING_ENDS:
            continue
        if token_type != kind:
            yield from _block(block)
            kind, block = token_type, []
        if is_comment or is_string:
            string = token.string.lstrip("rbfRBF").strip("\"'") if is_string else token.string
            begin = token.start[0]
            block += [(begin + row, line) for row, line in enumerate(string.split("\n"))]
        elif token.type == tokenize.NAME:
            yield token.start[0], token.string
        if not is_comment:
            before = token_type
    yield from _block(block)


def _block(block: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for row, piece in _lines("\n".join(line for _, line in block)):
        yield block[row - 1][0], piece


def main() -> int:
    """Prints the findings of the files on the command line, or of all files; 1 if there are any."""
    found = [each for path in files_to_scan(*sys.argv[1:]) for each in find_words(path)]
    for each in found:
        sys.stdout.write(f"{each.path}:{each.line}: {each.word}: {each.text[:120]}\n")
    sys.stdout.write(f"{len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
