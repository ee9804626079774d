"""Writes `docs/kep-map.md`: each normative sentence of the KEPs, its code and its tests.

    python -m tools.kep_map                 # part of `make reference`

The sentences are in `docs/kep-sentences.toml`, paraphrased. The anchor of a sentence is a comment
above the line that implements it, with the number of the sentence:

    # KEP-2339 3.24: a server that crashes here has written nothing

The page lists each anchor by the symbol that encloses it, not by its line, so that it changes only
when the code moves. A sentence without an anchor needs a reason, and each sentence needs a test or
the reason why it has none. `problems` lists all violations.

Not here: which sentences there are, and why restow differs from some of them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = "docs/kep-sentences.toml"
PAGE: Final = "docs/kep-map.md"
SOURCES: Final = "src/restow"
SCENARIOS: Final = "tests/scenarios/"
"""Each file there is the test of one scenario."""
NOTICE: Final = (
    "<!-- Made by `make reference` from docs/kep-sentences.toml and the anchors in the sources."
    " Change those, not this page. -->"
)
DIFFERENCES: Final = "Where restow differs"
NONE: Final = "–"

_COMMENT: Final = re.compile(r"#\s*KEP-\d")
_ANCHOR: Final = re.compile(r"# (KEP-\d+) (\d+\.\d+(?:, \d+\.\d+)*): (\S.*)")


class KepDataError(Exception):
    """The file of the sentences is not what this program reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kep:
    """One proposal, and the number before the dot in the numbers of its sentences."""

    id: str
    prefix: str
    title: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One normative sentence. At most one of the reasons is given."""

    id: str
    section: str
    text: str
    tests: tuple[str, ...] = ()
    elsewhere: str = ""
    """The tests or documents that fulfil it instead of code."""
    not_implemented: str = ""
    not_applicable: str = ""
    untested: str = ""
    """Why it has no test."""

    @property
    def reason(self) -> str:
        """Why it has no anchor; empty: it needs one."""
        return self.elsewhere or self.not_implemented or self.not_applicable


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Sentences that restow fulfils in another way on purpose."""

    sentences: tuple[str, ...]
    proposal: str
    restow: str
    why: str


@dataclass(frozen=True, slots=True)
class KepData:
    """The content of `docs/kep-sentences.toml`."""

    keps: tuple[Kep, ...]
    sentences: tuple[Sentence, ...]
    differences: tuple[Difference, ...]

    def kep_of(self, sentence_id: str) -> Kep | None:
        prefix = sentence_id.partition(".")[0]
        return next((kep for kep in self.keps if kep.prefix == prefix), None)

    def of_kep(self, kep: Kep) -> list[Sentence]:
        return [each for each in self.sentences if self.kep_of(each.id) == kep]

    def differs(self) -> set[str]:
        """The numbers of the sentences that restow fulfils in another way."""
        return {each for difference in self.differences for each in difference.sentences}


class Anchor(NamedTuple):
    """A comment that names sentences, and the symbol that the line below it belongs to."""

    kep: str
    sentences: tuple[str, ...]
    path: str
    """Relative to `src/restow`."""
    line: int
    symbol: str

    @property
    def name(self) -> str:
        return f"{self.path}::{self.symbol}" if self.symbol else self.path


def main() -> None:
    found = problems(ROOT)
    if found:
        raise SystemExit("\n".join(found))
    (ROOT / PAGE).write_text(page(ROOT), encoding="utf-8")
    print(ROOT / PAGE)


# Input.


def read_data(root: Path) -> KepData:
    """Read the sentences. Raises `KepDataError`."""
    with (root / DATA).open("rb") as file:
        found = tomllib.load(file)
    return KepData(
        tuple(_made(Kep, each) for each in found.get("kep", ())),
        tuple(_made(Sentence, each) for each in found.get("sentence", ())),
        tuple(_made(Difference, each) for each in found.get("difference", ())),
    )


def _made(kind: Any, table: dict[str, Any]) -> Any:
    fields = {name: tuple(v) if isinstance(v, list) else v.strip() for name, v in table.items()}
    try:
        return kind(**fields)
    except TypeError as error:
        raise KepDataError(f"{DATA}: {table}: {error}") from error


def find_anchors(root: Path) -> tuple[list[Anchor], list[str]]:
    """Return the anchors in the sources, and a message for each that cannot be read."""
    anchors: list[Anchor] = []
    malformed: list[str] = []
    for path in sorted((root / SOURCES).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "KEP-" not in text:
            continue
        name = path.relative_to(root / SOURCES).as_posix()
        symbols = _Symbols(text)
        for line, comment in _comments(text):
            if _COMMENT.match(comment) is None:
                continue
            match = _ANCHOR.fullmatch(comment)
            if match is None:
                malformed.append(f"{SOURCES}/{name}:{line}: is no anchor: {comment}")
                continue
            kep, listed, _ = match.groups()
            symbol = symbols.at(_code_line(text, line))
            anchors.append(Anchor(kep, tuple(listed.split(", ")), name, line, symbol))
    return anchors, malformed


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """The comments that have a line of their own."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            yield token.start[0], token.string


def _code_line(text: str, line: int) -> int:
    """The first line below a comment that is code."""
    rest = enumerate(text.splitlines()[line:], start=line + 1)
    return next((n for n, each in rest if each.strip() and not each.strip().startswith("#")), line)


class _Symbols:
    """The symbols of a module, by line: classes, their functions and fields, and constants."""

    def __init__(self, text: str) -> None:
        self._spans: list[tuple[int, int, str]] = []
        self._add(ast.parse(text).body, "")

    def _add(self, body: Iterable[ast.stmt], outer: str) -> None:
        for node in body:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            for name in _names_of(node):
                self._spans.append((first, node.end_lineno or first, f"{outer}{name}"))
            if isinstance(node, ast.ClassDef):
                self._add(node.body, f"{outer}{node.name}.")

    def at(self, line: int) -> str:
        """The innermost symbol that a line belongs to; empty: none."""
        found = [each for each in self._spans if each[0] <= line <= each[1]]
        return max(found, default=(0, 0, ""))[2]


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)][:1]
        case ast.AnnAssign(target=ast.Name() as target):
            return [target.id]
        case _:
            return []


def has_test(root: Path, node_id: str) -> bool:
    """Whether a test exists: a function in a file, whatever its parameters, or a scenario."""
    name, _, function = node_id.partition("::")
    path = root / name
    if not name.startswith("tests/") or not path.is_file():
        return False
    if not function:
        return name.startswith(SCENARIOS) and path.suffix == ".txt"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    known = {node.name for node in body if isinstance(node, functions)}
    return function.startswith("test_") and function.partition("[")[0] in known


# Checks.


def problems(root: Path) -> list[str]:
    """All violations, but not whether the page is up to date."""
    data = read_data(root)
    anchors, found = find_anchors(root)
    found += _data_problems(data)
    found += _anchor_problems(data, anchors)
    tests = {test for each in data.sentences for test in each.tests}
    missing = {test for test in tests if not has_test(root, test)}
    for sentence in data.sentences:
        for test in sentence.tests:
            if test in missing:
                found.append(f"{sentence.id}: the test {test} does not exist")
    return found


def _data_problems(data: KepData) -> Iterator[str]:
    known: set[str] = set()
    for each in data.sentences:
        if each.id in known:
            yield f"{each.id}: there are two sentences with this number"
        known.add(each.id)
        if data.kep_of(each.id) is None:
            yield f"{each.id}: no KEP has sentences with this number"
        if sum(map(bool, (each.elsewhere, each.not_implemented, each.not_applicable))) > 1:
            yield f"{each.id}: several reasons are given why it has no anchor"
        has_code = not (each.not_implemented or each.not_applicable)
        if has_code and not each.tests and not each.untested:
            yield f"{each.id}: it has no test: name one, or say in `untested` why there is none"
        if each.tests and each.untested:
            yield f"{each.id}: it has tests, and says that it has none"
    for difference in data.differences:
        if not difference.sentences:
            yield f"a difference belongs to no sentence: {difference.proposal}"
        for name in difference.sentences:
            if name not in known:
                yield f"a difference belongs to sentence {name}, which does not exist"


def _anchor_problems(data: KepData, anchors: Iterable[Anchor]) -> Iterator[str]:
    known = {each.id: each for each in data.sentences}
    anchored: set[str] = set()
    for anchor in anchors:
        place = f"{SOURCES}/{anchor.path}:{anchor.line}"
        for name in anchor.sentences:
            anchored.add(name)
            kep = data.kep_of(name)
            if name not in known:
                yield f"{place}: there is no sentence {name}"
            elif kep is not None and kep.id != anchor.kep:
                yield f"{place}: sentence {name} is of {kep.id}, not of {anchor.kep}"
            elif known[name].reason:
                yield f"{place}: sentence {name} has a reason to have no anchor"
    for name, sentence in known.items():
        if name not in anchored and not sentence.reason:
            yield f"{name}: it has no anchor in {SOURCES}, and no reason: {sentence.text}"


# The page.


def page(root: Path) -> str:
    """The page as it should be."""
    data = read_data(root)
    anchors, _ = find_anchors(root)
    return "\n\n".join(_blocks(data, anchors)) + "\n"


def _blocks(data: KepData, anchors: list[Anchor]) -> Iterator[str]:
    yield "# KEPs, code and tests"
    yield NOTICE
    yield (
        "Use this page to find the code and the tests of a sentence of a KEP. It lists every"
        " normative sentence of four Kubernetes proposals, abridged, in their order."
    )
    rows = [
        [f"[{kep.id}](#{_slug(_title(kep))})", kep.title, kep.prefix, str(len(data.of_kep(kep)))]
        for kep in data.keps
    ]
    yield _table(["KEP", "title", "numbers begin with", "sentences"], rows)
    yield _counts(data)
    yield (
        "To find the code, search the sources for the number: `grep -rnE '# KEP.* 3\\.24[,:]' src`."
        " The comment is directly above the code. Several places may implement one sentence."
        f" *Differs* marks what restow does in [another way](#{_slug(DIFFERENCES)})."
    )
    for kep in data.keps:
        yield from _kep_blocks(kep, data, anchors)
    yield from _lists(data)
    yield f"## {DIFFERENCES}"
    yield (
        "The proposals are the specification. Where following one to the letter would lose data, or"
        " would cost more than it gives, restow does something else."
    )
    rows = [
        [", ".join(each.sentences), each.proposal, each.restow, each.why]
        for each in data.differences
    ]
    yield _table(["sentences", "the proposal", "restow", "why"], rows)


def _counts(data: KepData) -> str:
    missing = sum(bool(each.not_implemented) for each in data.sentences)
    without_use = sum(bool(each.not_applicable) for each in data.sentences)
    differing = sum(
        each.id in data.differs() and not (each.not_implemented or each.not_applicable)
        for each in data.sentences
    )
    rest = len(data.sentences) - missing - without_use - differing
    return (
        f"{len(data.sentences)} sentences: {rest} are implemented as they are written, {differing}"
        f" differ on purpose, {missing} are not implemented, {without_use} not applicable."
    )


def _title(kep: Kep) -> str:
    return f"{kep.id}: {kep.title}"


def _kep_blocks(kep: Kep, data: KepData, anchors: list[Anchor]) -> Iterator[str]:
    yield f"## {_title(kep)}"
    yield kep.source
    by_section: dict[str, list[Sentence]] = {}
    for each in data.of_kep(kep):
        by_section.setdefault(each.section, []).append(each)
    for section, sentences in by_section.items():
        yield f"### {section}"
        rows = [
            [each.id, _text(each, data), _code(each, anchors), _tests(each)] for each in sentences
        ]
        yield _table(["", "sentence", "code", "tests"], rows)


def _text(sentence: Sentence, data: KepData) -> str:
    return f"{sentence.text} *Differs.*" if sentence.id in data.differs() else sentence.text


def _code(sentence: Sentence, anchors: list[Anchor]) -> str:
    if sentence.not_implemented:
        return f"not implemented: {sentence.not_implemented}"
    if sentence.not_applicable:
        return f"not applicable: {sentence.not_applicable}"
    if sentence.elsewhere:
        return sentence.elsewhere
    found = {each.name: each.path for each in anchors if sentence.id in each.sentences}
    return ", ".join(f"[`{name}`](../{SOURCES}/{path})" for name, path in found.items())


def _tests(sentence: Sentence) -> str:
    links = [f"[`{each}`](../{each.partition('::')[0]})" for each in sentence.tests]
    none = f"none: {sentence.untested}" if sentence.untested else NONE
    return ", ".join(links) or none


def _lists(data: KepData) -> Iterator[str]:
    """The exceptions once more, so that they can be read without the rest."""
    missing = [each for each in data.sentences if each.not_implemented or each.not_applicable]
    yield "## Not implemented or not applicable"
    rows = [
        [each.id, each.text, each.not_implemented or f"not applicable: {each.not_applicable}"]
        for each in missing
    ]
    yield _table(["", "sentence", "reason"], rows)
    untested = [each for each in data.sentences if each.untested]
    if untested:
        yield "## Without a test"
        rows = [[each.id, each.text, each.untested] for each in untested]
        yield _table(["", "sentence", "reason"], rows)


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _slug(title: str) -> str:
    """The name that Markdown gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    main()
