"""Packages and modules: documented, and true about their public names."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import restow

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
def test_a_package_says_what_it_is_for(package: Path) -> None:
    """Every package has a docstring."""
    assert len(_docstring(package)) > 40


@pytest.mark.parametrize("package", LAYERS, ids=_name)
def test_a_layer_says_what_may_not_live_in_it(package: Path) -> None:
    """The docstring of a layer also draws its border."""
    assert re.search(r"\b([Nn]ot|[Nn]othing|[Nn]ever|[Nn]o)\b", _docstring(package))


def test_every_folder_with_code_is_a_package() -> None:
    """No folder is importable by accident only."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert folders == set(PACKAGES)


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_public_names_exist(module: Path) -> None:
    """`__all__` lists nothing that is not there, and nothing twice."""
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
