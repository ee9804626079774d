"""Finds assignments to attributes of objects whose class another module defines.

The class of an expression is resolved from the source alone: annotations of parameters, variables,
attributes and return values, and calls of constructors. Where it cannot be resolved, the name of
the attribute decides: a module owns the attributes that its own classes declare or set.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_WRAPPERS: Final = {"Final", "ClassVar", "Optional", "Annotated", "Awaitable", "Coroutine"}
_LIBRARIES: Final = {"argparse", "asyncio", "ssl"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Classes:
    """The classes of all modules by name: where they are defined, and the types of attributes."""

    modules: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attributes: dict[tuple[str, str], str] = field(default_factory=dict)
    returned: dict[str, str] = field(default_factory=dict)
    """The class that a function or `Class.method` returns."""
    bases: dict[str, list[str]] = field(default_factory=dict)

    def attribute(self, owner: str, name: str) -> str | None:
        return self._inherited(self.attributes, owner, name)

    def result(self, owner: str, name: str) -> str | None:
        found = self.returned.get(f"{owner}.{name}")
        for base in [] if found else self.bases.get(owner, ()):
            found = found or self.result(base, name)
        return owner if found == "Self" else found

    def _inherited(self, table: dict[tuple[str, str], str], owner: str, name: str) -> str | None:
        found = table.get((owner, name))
        for base in [] if found else self.bases.get(owner, ()):
            found = found or self._inherited(table, base, name)
        return found


def named(annotation: ast.expr | None) -> str | None:
    """The class that an annotation names; None for containers and unions of classes."""
    match annotation:
        case ast.Constant(value=str(text)):
            return named(ast.parse(text, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.BinOp(left=left, right=ast.Constant(value=None), op=ast.BitOr()):
            return named(left)
        case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in _WRAPPERS:
            return named(inner)
    return None


def own_names(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield child
            yield from own_names(child)


def index(modules: dict[str, ast.Module]) -> Classes:
    """Collect the classes of all modules."""
    found = Classes()
    for module, tree in modules.items():
        for each in tree.body:
            if isinstance(each, Function) and (result := named(each.returns)):
                # Modules may use one name for several private functions.
                found.returned[f"{module}:{each.name}"] = found.returned[each.name] = result
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                _index_class(found, module, node)
    # Attributes without annotation have the class of the value that `__init__` assigns.
    for module, tree in modules.items():
        for owner, function in functions(tree):
            if owner is not None:
                _index_assigned(found, Scope(found, module, owner, function), owner)
    return found


def _index_class(found: Classes, module: str, node: ast.ClassDef) -> None:
    found.modules[node.name].add(module)
    found.bases[node.name] = [name for each in node.bases if (name := named(each))]
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if name := named(each.annotation):
                found.attributes[node.name, each.target.id] = name
        elif isinstance(each, Function) and (name := named(each.returns)):
            found.returned[f"{node.name}.{each.name}"] = name
            if any(named(mark) in ("property", "cached_property") for mark in each.decorator_list):
                found.attributes[node.name, each.name] = name


def _index_assigned(found: Classes, scope: Scope, owner: ast.ClassDef) -> None:
    for node in ast.walk(scope.function):
        match node:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=attribute)):
                name = named(node.annotation)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)]):
                name = scope.class_of(node.value)
            case _:
                continue
        if name:
            found.attributes.setdefault((owner.name, attribute), name)


def functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """All functions with the class they are in; nested functions follow the one around them."""

    def below(
        node: ast.AST, owner: ast.ClassDef | None
    ) -> Iterator[tuple[ast.ClassDef | None, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield owner, child
            yield from below(child, child if isinstance(child, ast.ClassDef) else owner)

    yield from below(tree, None)


class Scope:
    """The names in one function, with the classes of their values."""

    def __init__(
        self, classes: Classes, module: str, owner: ast.ClassDef | None, function: Function
    ) -> None:
        self.classes, self.module, self.function = classes, module, function
        self.names: dict[str, str] = {}
        if owner is not None:
            self.names |= {"self": owner.name, "cls": owner.name}
        given = function.args
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            if name := named(each.annotation):
                self.names[each.arg] = name
        for node in own_names(function):
            match node:
                case ast.AnnAssign(target=ast.Name(id=variable), annotation=annotation):
                    self._bind(variable, named(annotation))
                case ast.Assign(targets=[ast.Tuple(elts=left)], value=ast.Tuple(elts=right)):
                    for target, value in zip(left, right, strict=False):
                        if isinstance(target, ast.Name):
                            self._bind(target.id, self.class_of(value))
                case (
                    ast.Assign(targets=[ast.Name(id=variable)], value=value)
                    | ast.NamedExpr(target=ast.Name(id=variable), value=value)
                ):
                    self._bind(variable, self.class_of(value))

    def _bind(self, variable: str, name: str | None) -> None:
        known = self.names.setdefault(variable, name or "")
        if name != known:
            self.names[variable] = ""  # several classes

    def class_of(self, value: ast.expr) -> str | None:
        """The class of the value of an expression, if it can be seen."""
        match value:
            case ast.Name(id=name):
                return self.names.get(name) or None
            case ast.Await(value=inner):
                return self.class_of(inner)
            case ast.Attribute(value=inner, attr=attribute):
                owner = self.class_of(inner)
                return owner and self.classes.attribute(owner, attribute)
            case ast.Call(func=ast.Name(id=name)):
                returned = self.classes.returned
                found = returned.get(f"{self.module}:{name}") or returned.get(name)
                return name if name in self.classes.modules else found
            case ast.Call(func=ast.Attribute(value=inner, attr=attribute)):
                owner = self.class_of(inner)
                if owner is None and isinstance(inner, ast.Name):
                    if inner.id in _LIBRARIES:
                        return f"{inner.id}.{attribute}"
                    owner = inner.id if inner.id in self.classes.modules else None
                return owner and self.classes.result(owner, attribute)
            case ast.BoolOp(values=[first, *_]):
                return self.class_of(first)
        return None


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns."""
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


def foreign_assignments(classes: Classes, module: str, tree: ast.Module) -> set[tuple[str, str]]:
    """The class (or "?") and the text of each assignment to an object of another module."""
    own: set[str] | None = None
    found = set[tuple[str, str]]()
    for owner, function in functions(tree):
        targets = [
            each
            for node in own_names(function)
            for each in assigned(node)
            if not _is_of_self(each) and not each.attr.startswith("__")
        ]
        scope = Scope(classes, module, owner, function) if targets else None
        for each in targets:
            name = scope and scope.class_of(each.value)
            own = _own_attributes(tree) if own is None else own
            if name is None and each.attr in own:
                continue
            # A private class is that of the module itself, whatever others have the same name.
            if name and (name.startswith("_") or module in classes.modules.get(name, {module})):
                continue
            found.add((name or "?", ast.unparse(each)))
    return found


def _own_attributes(tree: ast.Module) -> set[str]:
    """The attributes that the classes of a module declare or set: state that it owns."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not _is_frozen(node):
            found |= {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
        found |= {each.attr for each in assigned(node) if _is_of_self(each)}
    return found


def _is_of_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def _is_frozen(node: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(each) for each in node.decorator_list)
