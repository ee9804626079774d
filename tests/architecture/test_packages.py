"""Packages and modules: documented, with correct public names."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import restow

ROOT = Path(__file__).parents[2]
PACKAGE = Path(restow.__file__).parent
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
LAYERS = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py" and not path.stem.endswith("_pb2")
)


def _name(path: Path) -> str:
    inner = path.relative_to(PACKAGE.parent).with_suffix("")
    parts = inner.parts[:-1] if inner.name == "__init__" else inner.parts
    return ".".join(parts)


def _docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_a_package_has_a_purpose(package: Path) -> None:
    """Every package has a docstring."""
    assert len(_docstring(package)) > 40


@pytest.mark.parametrize("package", LAYERS, ids=_name)
def test_a_layer_has_a_border(package: Path) -> None:
    """The docstring of a layer also lists what does not belong to it."""
    assert re.search(r"\b([Nn]ot|[Nn]othing|[Nn]ever|[Nn]o)\b", _docstring(package))


def test_every_folder_with_code_is_a_package() -> None:
    """No folder is importable only by accident."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert folders == set(PACKAGES)


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_public_names_exist(module: Path) -> None:
    """`__all__` has no missing and no duplicate names."""
    imported = importlib.import_module(_name(module))
    names = list(getattr(imported, "__all__", []))
    assert [name for name in names if not hasattr(imported, name)] == []
    assert len(names) == len(set(names))


def test_the_command_line_starts_light() -> None:
    """`restow version` loads no driver, no server, no event loop."""
    code = (
        "import sys; from restow.cli.main import main; main(['version']);"
        "heavy = {'apsw', 'grpc', 'uvloop', 'rich', 'asyncio', 'restow.storage'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        f"restow {restow.__version__} python {sys.version.split()[0]}",
        "[]",
    ]


def _public() -> list[str]:
    """Returns the modules that the docstring of `restow` calls public."""
    return re.findall(r"^    (restow\.[\w.]+)", restow.__doc__ or "", flags=re.MULTILINE)


def _code_of_others() -> Iterator[tuple[str, str]]:
    """Yields code outside the package with its place."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text()
    for path in sorted((ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))):
        for block in re.findall(
            r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        ):
            yield str(path.relative_to(ROOT)), block


def _private_imports(code: str) -> list[str]:
    """Returns the names that code imports from restow without being in `__all__` of a public
    module."""
    public = set(_public())
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name not in public]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = importlib.import_module(node.module).__all__ if node.module in public else ()
            found += [
                f"{node.module}.{each.name}"
                for each in node.names
                if each.name not in names and f"{node.module}.{each.name}" not in public
            ]
    return [name for name in found if name.partition(".")[0] == "restow"]


def test_public_modules_list_their_names() -> None:
    """Each public module exists and has an `__all__`."""
    assert len(_public()) > 5
    for name in _public():
        assert importlib.import_module(name).__all__, name


def test_examples_and_documents_use_public_names() -> None:
    """Readers who follow them use nothing that may change without notice."""
    blocks = list(_code_of_others())
    assert {"README.md", "widgets.py"} <= {place for place, _ in blocks}
    assert [(place, found) for place, code in blocks if (found := _private_imports(code))] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from restow.client import ApiClient", []),
        ("from restow.apimachinery import status", []),
        ("from restow.client import _hidden", ["restow.client._hidden"]),
        (
            "from restow.registry.store import ResourceStore",
            ["restow.registry.store.ResourceStore"],
        ),
        ("import restow.registry", ["restow.registry"]),
        ("import asyncio", []),
    ],
)
def test_private_names_are_found(code: str, found: list[str]) -> None:
    """The check finds a private import."""
    assert _private_imports(code) == found


GERUNDS = {
    "binding": "the Binding subresource of pods",
    "certificate_signing": "CertificateSigningRequest",
    "encoding": "how values are encoded: the noun of the field",
    "hardening": "process hardening, a term of operating systems",
    "keyring": "a ring of keys",
    "shared_reading": "one reading that several callers share",
    "voting": "the name of the proposal (KEP-1201)",
}


def test_modules_are_named_by_nouns() -> None:
    """A module is named after its content, not its activity; terms of the field are listed with
    reasons."""
    found = {path.stem for path in MODULES if path.stem.endswith("ing")}
    assert found == GERUNDS.keys()


def test_no_two_public_classes_share_a_name() -> None:
    """One name means one concept, so that a search finds one definition."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(_name(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
