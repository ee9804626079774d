"""The documents: the names in them exist, and their examples run."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "restow"
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
README_LINES_MAX = 120

# Created by set-up and runs, so absent from a clean clone.
MADE_LATER = (".restow", ".venv", "/")
# Named in a statement that it does not exist.
ABSENT_ON_PURPOSE = {"uv.lock"}

PATH = re.compile(r"[\w./-]+\.(?:py|pyi|md|toml|lock|ini|txt|yaml|yml|html|css|js|proto)|[\w.-]+/")
PATH_AND_NAME = re.compile(r"([\w./-]+\.py)::([\w.]+)")
DOTTED = re.compile(r"restow(?:\.\w+)+")

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def _without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _fences(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def _named(text: str) -> Iterator[str]:
    """Returns the text between backticks, and the files that a diagram names."""
    yield from re.findall(r"`([^`\n]+)`", _without_fences(text))
    for diagram in _fences(text, "mermaid"):
        yield from re.findall(r"[\w/]+\.py(?:::\w+)?", diagram)


def _find(path: str, *, document: Path) -> Path | None:
    places = (ROOT, PACKAGE, document.parent)
    return next((place / path for place in places if (place / path).exists()), None)


def _defines(module: Path, dotted: str) -> bool:
    """Returns whether a module defines a top-level name, or a member of such a class."""
    body = ast.parse(module.read_text()).body
    for name in dotted.split("."):
        for node in body:
            if name in _names_of(node):
                body = node.body if isinstance(node, ast.ClassDef) else []
                break
        else:
            return False
    return True


def _names_of(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name() as target):
            return {target.id}
        case ast.ImportFrom() | ast.Import():
            return {alias.asname or alias.name for alias in node.names}
        case _:
            return set()


def _resolves(dotted: str) -> bool:
    """Returns whether `restow.a.b.Name` is a module, or a name in one."""
    place, rest = PACKAGE, dotted.split(".")[1:]
    while rest and (place / rest[0]).is_dir():
        place, rest = place / rest[0], rest[1:]
    if rest and (place / f"{rest[0]}.py").exists():
        place, rest = place / f"{rest[0]}.py", rest[1:]
    module = place / "__init__.py" if place.is_dir() else place
    return not rest or _defines(module, ".".join(rest))


def _is_true(token: str, *, document: Path) -> bool:
    if token.startswith(MADE_LATER) or token in ABSENT_ON_PURPOSE:
        return True
    if match := PATH_AND_NAME.fullmatch(token):
        file = _find(match[1], document=document)
        return file is not None and _defines(file, match[2])
    if PATH.fullmatch(token):
        return _find(token, document=document) is not None
    if DOTTED.fullmatch(token):
        return _resolves(token)
    return True


@each_document
def test_names_in_a_document_exist(document: Path) -> None:
    """Files, modules, and `file.py::name` in backticks or diagrams exist."""
    named = _named(document.read_text())
    assert [token for token in named if not _is_true(token, document=document)] == []


@each_document
def test_links_are_valid(document: Path) -> None:
    """Every relative link has an existing target."""
    links = re.findall(r"\]\(([^)#\s]+)", _without_fences(document.read_text()))
    inner = [link for link in links if "://" not in link]
    assert [link for link in inner if not (document.parent / link).exists()] == []


def test_the_index_lists_every_decision() -> None:
    """Each decision record has a row in the index, with its title, and each row has a record."""
    folder = ROOT / "docs" / "adr"
    records = {
        path.name: path.read_text().splitlines()[0].removeprefix("# ")
        for path in folder.glob("[0-9]*.md")
    }
    rows = re.findall(r"^\| \[(.+)\]\((.+)\) \|", (folder / "README.md").read_text(), re.MULTILINE)
    assert {name: title for title, name in rows} == records
    numbers = [name[:4] for _, name in rows]
    assert numbers == sorted(set(numbers))


def test_the_readme_is_short() -> None:
    """The first page is short enough to be read completely."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize("example", _fences((ROOT / "README.md").read_text(), "python"))
def test_the_readme_example_runs(example: str, tmp_path: Path) -> None:
    """The library example works as printed, without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_false_names_are_found() -> None:
    """The check finds a missing file, function and module."""
    for token in ("tests/nothing.py", "tests/sizes.py::Nothing", "restow.nothing", "nothing/"):
        assert not _is_true(token, document=ROOT / "README.md")
    for token in ("tests/sizes.py", "tests/sizes.py::Sizes", "restow.cli.main.main", "docs/"):
        assert _is_true(token, document=ROOT / "README.md")
