"""A server is composed of parts that are complete after construction.

A part that depends on another part gets it in its constructor, directly or as an event channel, and
all channels are subscribed in one list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2] / "src" / "restow"
PACKAGES: Final = ("apiserver", "controllers", "storageversion")
FUNCTION_LINES_MAX: Final = 70
PARAMETERS_MAX: Final = 8


def _modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    match node:
        case ast.Assign(targets=targets):
            found = list[ast.expr](targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            found = [target]
        case _:
            return
    for each in found:
        for part in each.elts if isinstance(each, ast.Tuple) else [each]:
            if isinstance(part, ast.Attribute):
                yield part


def _is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def _is_frozen(node: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(each) for each in node.decorator_list)


def _own_attributes(tree: ast.Module) -> set[str]:
    """Returns the attributes that the classes of a module declare or set: state that it owns."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not _is_frozen(node):
            found |= {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
        found |= {each.attr for each in _targets(node) if _is_own(each)}
    return found


def _assigned_from_outside(tree: ast.Module) -> set[str]:
    own = _own_attributes(tree)
    return {
        ast.unparse(each)
        for node in ast.walk(tree)
        for each in _targets(node)
        if not _is_own(each) and each.attr not in own
    }


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([each for each in names if each not in ("self", "cls")])


def test_no_module_completes_an_object_of_another() -> None:
    """Attributes are assigned only by the module whose class declares them."""
    found = {
        f"{name}: {each}"
        for name, tree in _modules(*PACKAGES)
        for each in _assigned_from_outside(tree)
    }
    assert found == set()


def test_the_functions_of_the_root_fit_a_screen() -> None:
    """Each step of a start can be read without scrolling."""
    found = {
        f"{name}: {each.name}"
        for name, tree in _modules(*PACKAGES)
        for each in _functions(tree)
        if (each.end_lineno or 0) - each.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert found == set()


def test_the_functions_of_the_root_take_few_parameters() -> None:
    """Related parameters are one dataclass."""
    found = {
        f"{name}: {each.name}"
        for name, tree in _modules("apiserver")
        for each in _functions(tree)
        if _parameter_count(each) > PARAMETERS_MAX
    }
    assert found == set()


def test_channels_are_subscribed_in_one_list() -> None:
    """The subscriptions between the parts of a server are in one module."""
    found = {
        name
        for name, tree in _modules("apiserver")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "subscribe"
    }
    assert found == {"apiserver/subscriptions.py"}


def test_an_assignment_from_outside_is_found() -> None:
    """The check distinguishes attributes of other modules' objects from the module's own."""
    tree = ast.parse(
        "class Own:\n  count: int\n"
        "def make(own, other):\n  own.count += 1\n  other.on_event = print\n"
    )
    assert _assigned_from_outside(tree) == {"other.on_event"}
