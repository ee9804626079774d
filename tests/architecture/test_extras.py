"""Optional libraries: declared as extras, known by their import names, and no others are used."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import restow
from restow.aio.extras import EXTRAS

PACKAGE = Path(restow.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
DECLARED = PROJECT["optional-dependencies"]


def _names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def _distributions(modules: tuple[str, ...] | set[str]) -> set[str]:
    """Returns the packages that provide these modules; several provide `google`."""
    houses = packages_distributions()
    found: set[str] = set()
    for module in modules:
        names = {canonicalize_name(name) for name in houses.get(module.partition(".")[0], [module])}
        found |= {"protobuf"} if module.startswith("google") else names
    return found


def _imported() -> dict[str, str]:
    """Returns every imported library with a file that imports it, except for type checking."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in _at_run_time(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""] if node.level == 0 else []
            for name in names:
                top = name.partition(".")[0]
                if top != "restow" and top not in sys.stdlib_module_names:
                    found.setdefault(top, str(path.relative_to(PACKAGE)))
    return found


def _at_run_time(node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return [found for each in node.orelse for found in _at_run_time(each)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [node]
    return [found for each in ast.iter_child_nodes(node) for found in _at_run_time(each)]


def test_the_table_agrees_with_the_project() -> None:
    """Each extra of pyproject.toml is in the table, with all its libraries and no others."""
    assert EXTRAS.keys() == DECLARED.keys()
    for extra, modules in EXTRAS.items():
        assert _distributions(modules) == _names(DECLARED[extra]), extra


def test_every_import_belongs_to_the_base_or_to_an_extra() -> None:
    """No library is used only because it happens to be installed, and none is declared without
    use."""
    imported = _imported()
    declared = _names([*PROJECT["dependencies"], *(t for each in DECLARED.values() for t in each)])
    assert _distributions(set(imported)) == declared, imported


def test_extras_do_not_repeat_the_base() -> None:
    """A library belongs to the base or to one extra."""
    every = [*PROJECT["dependencies"], *(text for each in DECLARED.values() for text in each)]
    assert len(_names(every)) == len(every)
