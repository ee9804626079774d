"""The map of the KEPs: every sentence has code and tests, and every anchor a sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.kep_map import (
    DATA,
    PAGE,
    ROOT,
    SOURCES,
    KepDataError,
    find_anchors,
    has_test,
    page,
    problems,
    read_data,
)

SENTENCES = 157
"""Normative sentences of the four documents, counted manually."""
TEST_FILE = "tests/unit/test_report.py"
CODE_FILE = f"{SOURCES}/report.py"

CODE = """
FIRST = 1
# KEP-2339 3.2: the name
NAME = "x"


class Report:
    # KEP-2339 3.3: a field
    entries: tuple[str, ...] = ()

    # KEP-2339 3.1: a function, above its decorator
    @staticmethod
    def write() -> None:
        def inner() -> None:
            # KEP-2339 3.1, 3.3: a line in a function
            print("KEP-2339 3.9: no comment")

        inner()
"""
SENTENCES_FILE = """
[[kep]]
id = "KEP-2339"
prefix = "3"
title = "a title"
source = "a source"

[[sentence]]
id = "3.1"
section = "First section"
text = "Servers report."
tests = ["tests/unit/test_report.py::test_write", "tests/scenarios/one.txt"]

[[sentence]]
id = "3.2"
section = "First section"
text = "The object has a name."
tests = ["tests/unit/test_report.py::test_name[x]"]

[[sentence]]
id = "3.3"
section = "Second section"
text = "It has entries."
untested = "a type says so"

[[sentence]]
id = "3.4"
section = "Second section"
text = "It may have more."
not_implemented = "nothing needs it"

[[difference]]
sentences = ["3.2"]
proposal = "a name"
restow = "another name"
why = "it is shorter"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a small project without violations."""
    files = {
        CODE_FILE: CODE,
        TEST_FILE: "def test_write(): ...\nasync def test_name(): ...\n",
        "tests/scenarios/one.txt": "",
        DATA: SENTENCES_FILE,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def _edit(project: Path, name: str, old: str, new: str) -> None:
    path = project / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


# The project itself.


def test_every_sentence_leads_to_code_and_tests() -> None:
    """Each sentence has an anchor or a reason, each anchor a sentence, and each test exists."""
    assert problems(ROOT) == []


def test_no_sentence_is_lost() -> None:
    """All sentences of the documents are on the list, numbered without gaps."""
    data = read_data(ROOT)
    assert len(data.sentences) == SENTENCES
    for kep in data.keps:
        numbers = [int(each.id.partition(".")[2]) for each in data.of_kep(kep)]
        assert numbers == list(range(1, len(numbers) + 1)), kep.id


def test_the_page_is_current() -> None:
    """The page is what the generator would write now."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(ROOT), "run `make reference`"


# Each kind of violation is found.


def test_a_correct_project_has_no_problems(project: Path) -> None:
    """The project that the tests below change is correct."""
    assert problems(project) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (CODE_FILE, "# KEP-2339 3.2: the name\n", "", "3.2: it has no anchor"),
        (CODE_FILE, "3.2: the name", "3.9: the name", "report.py:3: there is no sentence 3.9"),
        (CODE_FILE, "KEP-2339 3.2", "KEP-1201 3.2", "sentence 3.2 is of KEP-2339, not of KEP-1201"),
        (CODE_FILE, "3.2: the name", "3.4: the name", "sentence 3.4 has a reason to have no"),
        (CODE_FILE, "KEP-2339 3.2: the", "KEP-2339 the", "report.py:3: is no anchor"),
        (TEST_FILE, "test_write", "test_other", "3.1: the test tests/unit/test_report.py::test_w"),
        (TEST_FILE, "async def", "class X:\n    async def", "3.2: the test tests/unit/test_report"),
        (DATA, "scenarios/one.txt", "scenarios/two.txt", "3.1: the test tests/scenarios/two.txt"),
        (DATA, "scenarios/one.txt", "unit/test_report.py", "the test tests/unit/test_report.py do"),
        (DATA, 'untested = "a type says so"', "", "3.3: it has no test"),
        (DATA, "untested", 'tests = ["tests/scenarios/one.txt"]\nuntested', "3.3: it has tests, "),
        (DATA, 'id = "3.3"', 'id = "3.1"', "3.1: there are two sentences with this number"),
        (DATA, 'id = "3.4"', 'id = "5.4"', "5.4: no KEP has sentences with this number"),
        (DATA, "not_implemented", 'elsewhere = "x"\nnot_implemented', "3.4: several reasons"),
        (DATA, 'sentences = ["3.2"]', 'sentences = ["3.8"]', "sentence 3.8, which does not exist"),
        (DATA, 'sentences = ["3.2"]', "sentences = []", "belongs to no sentence: a name"),
    ],
)
def test_a_violation_is_found(project: Path, file: str, old: str, new: str, message: str) -> None:
    """A missing, unknown or malformed anchor, a missing test, and wrong data are named."""
    _edit(project, file, old, new)
    assert [each for each in problems(project) if message in each]


@pytest.mark.parametrize("name", [CODE_FILE, TEST_FILE])
def test_a_removed_file_is_found(project: Path, name: str) -> None:
    """Without a file, its anchors and tests are missing."""
    (project / name).unlink()
    assert problems(project)


def test_an_unknown_field_is_found(project: Path) -> None:
    """A misspelled field of the data is an error, not ignored."""
    _edit(project, DATA, "untested", "not_tested")
    with pytest.raises(KepDataError, match="not_tested"):
        problems(project)


@pytest.mark.parametrize(
    "change",
    [
        lambda project: _edit(project, CODE_FILE, "def write", "def store"),
        lambda project: _edit(project, DATA, "Servers report.", "Servers report first."),
        lambda project: _edit(project, DATA, "one.txt", "one.txt"),
    ],
    ids=["a renamed symbol", "another text", "nothing"],
)
def test_the_page_follows_sources_and_data(
    project: Path, change: Callable[[Path], None], request: pytest.FixtureRequest
) -> None:
    """The page differs if and only if a symbol or the data has changed."""
    before = page(project)
    change(project)
    assert (page(project) == before) is ("nothing" in request.node.name)


def test_a_moved_line_does_not_change_the_page(project: Path) -> None:
    """The page has symbols and no line numbers: lines above an anchor do not matter."""
    before = page(project)
    _edit(project, CODE_FILE, "FIRST = 1", "FIRST = 1\nSECOND = 2")
    assert page(project) == before


# Parts.


def test_the_symbol_of_an_anchor_encloses_the_line_below_it(project: Path) -> None:
    """Classes, fields, functions and constants are named; nested functions are not."""
    anchors, malformed = find_anchors(project)
    assert malformed == []
    assert [(each.sentences, each.name) for each in anchors] == [
        (("3.2",), "report.py::NAME"),
        (("3.3",), "report.py::Report.entries"),
        (("3.1",), "report.py::Report.write"),
        (("3.1", "3.3"), "report.py::Report.write"),
    ]


def test_test_functions_and_scenarios_are_tests(project: Path) -> None:
    """A function named test_ in a file of the tests, or a scenario; parameters are ignored."""
    assert has_test(project, f"{TEST_FILE}::test_write[a-b]")
    assert has_test(project, "tests/scenarios/one.txt")
    for missing in (TEST_FILE, f"{TEST_FILE}::write", f"{TEST_FILE}::test_wr", CODE_FILE):
        assert not has_test(project, missing)


def test_the_page_shows_code_tests_and_reasons(project: Path) -> None:
    """A row names the symbol and the test; exceptions and differences have their own lists."""
    text = page(project)
    link = f"[`report.py::Report.write`](../{SOURCES}/report.py)"
    test = f"[`{TEST_FILE}::test_write`](../{TEST_FILE})"
    row = next(line for line in text.splitlines() if line.startswith("| 3.1 | Servers report."))
    assert link in row
    assert test in row
    assert "| 3.2 | The object has a name. *Differs.* |" in text
    assert "| 3.4 | It may have more. | not implemented: nothing needs it | – |" in text
    assert "| 3.2 | a name | another name | it is shorter |" in text
    assert "| 3.3 | It has entries. | a type says so |" in text
    assert "4 sentences: 2 are implemented as they are written, 1 differ on purpose" in text
