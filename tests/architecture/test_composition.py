"""A server is composed of parts that are complete after construction.

A part that depends on another part gets it in its constructor, directly or as an event channel. It
subscribes itself to that, or the composition root subscribes it, in one list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.attribute_owners import foreign_assignments, index

ROOT: Final = Path(__file__).resolve().parents[2] / "src" / "restow"
PACKAGES: Final = ("apiserver", "controllers", "storageversion")
FUNCTION_LINES_MAX: Final = 70
PARAMETERS_MAX: Final = 8
COMPOSING: Final = (
    "controllers/manager.py",
    "localcluster/cluster_run.py",
    "localcluster/workers.py",
    "storageversion/coordinator_parts.py",
)
RECORDS: Final = {
    "one request: each step of the handler chain adds what it has found": (
        "AuditRecord",
        "Context",
        "HeaderBlock",
        "Headers",
        "HttpRequest",
        "RequestLine",
        "Route",
        "StorageVersionReport",
    ),
    "one stream: its handler sets the callbacks, as in a transport of asyncio": (
        "ClientConnection",
        "StreamWriter",
        "TunnelEnd",
    ),
    "counters of a listener": ("Counters",),
    "the syntax tree of an expression, which the checker annotates, and one evaluation": (
        "Call",
        "CelNode",
        "Conditional",
        "Declared",
        "Evaluation",
        "Ident",
        "Macro",
        "Select",
    ),
    "an event with its encoded forms": ("WatchCacheEvent",),
    "an error that is decoded field by field": ("StatusError",),
    "what a test has observed": ("History", "WatchRecord"),
}
"""Classes whose attributes other modules may assign, by reason. They hold data, and are not parts
that a server is composed of."""
UNRESOLVED: Final = {
    "aio/eager.py": "the protocol between futures and tasks of asyncio",
    "apimachinery/message_tables.py": "descriptors of protobuf",
    "cli/main.py": "parsed arguments",
    "client/transport.py": "a connection",
    "endpoints/bundle.py": "a stream",
    "endpoints/handlers/eviction.py": "an error",
    "httpserver/tls.py": "a context of the ssl module",
    "storage/etcd/encoding.py": "messages of protobuf",
    "storage/etcd/session.py": "messages of protobuf",
}
"""Modules that assign attributes of objects whose class cannot be seen, and what these are."""


def _modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([each for each in names if each not in ("self", "cls")])


def test_no_module_completes_an_object_of_another() -> None:
    """Attributes are assigned only by the module whose class declares them, except in records."""
    modules = dict(_modules("."))
    classes = index(modules)
    found = {
        (name, f"{module}: {text}")
        for module, tree in modules.items()
        for name, text in foreign_assignments(classes, module, tree)
    }
    records = {name for names in RECORDS.values() for name in names}
    assert {
        f"{text} of {name}"
        for name, text in found
        if name not in records and text.partition(":")[0] not in UNRESOLVED
    } == set()
    assert records <= {name for name, _ in found}  # no entry is left over
    assert set(UNRESOLVED) == {text.partition(":")[0] for name, text in found if name == "?"}


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
    """The subscriptions between the parts of a server are in one module; a part subscribes itself
    to what it has constructed."""
    found = set()
    for name, tree in _modules("apiserver"):
        own = {
            id(node.func)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and node.args and _names_self(node.args[0])
        }
        if any(
            isinstance(node, ast.Attribute) and node.attr == "subscribe" and id(node) not in own
            for node in ast.walk(tree)
        ):
            found.add(name)
    assert found == {"apiserver/subscriptions.py"}


def test_other_parts_subscribe_only_themselves() -> None:
    """Outside that list, a part subscribes itself to what it was given; the modules that compose
    the parts of one package or process subscribe those."""
    found = {
        f"{name}: {ast.unparse(node)}"
        for name, tree in _modules(".")
        if not name.startswith("apiserver/") and name not in COMPOSING
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "subscribe"
        and not _names_self(node.args[0])
    }
    assert found == set()


def test_there_is_one_kind_of_channel() -> None:
    """No part keeps a list of callbacks instead of an event channel."""
    found = {
        f"{name}: {ast.unparse(node)}"
        for name, tree in _modules(".")
        if name != "aio/events.py"
        for node in ast.walk(tree)
        if (isinstance(node, ast.AnnAssign) and "list[Callable[" in ast.unparse(node.annotation))
        or (isinstance(node, ast.Attribute) and node.attr == "listeners")
    }
    assert found == set()


def _names_self(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "self" for each in ast.walk(node))


def test_an_assignment_from_outside_is_found() -> None:
    """The class of an object decides, even if a class of the module has the same attribute; for
    an object of unknown class, the name of the attribute decides."""
    parts = "class Part:\n  def __init__(self) -> None:\n    self.on_event = self.count = 0\n"
    modules = {
        "parts.py": ast.parse(parts),
        "root.py": ast.parse(
            "class Own:\n"
            "  on_event: int\n"
            "  def __init__(self, part: Part) -> None:\n"
            "    self.part, self.other = part, Part()\n"
            "    self.kept = part\n"
            "  def start(self, unknown) -> None:\n"
            "    self.kept.on_event = print\n"
            "    Own(self.part).on_event = print\n"
            "    made = Part()\n"
            "    made.count += 1\n"
            "    unknown.on_event = unknown.other_event = print\n"
        ),
    }
    classes = index(modules)
    assert foreign_assignments(classes, "parts.py", modules["parts.py"]) == set()
    assert foreign_assignments(classes, "root.py", modules["root.py"]) == {
        ("Part", "self.kept.on_event"),
        ("Part", "made.count"),
        ("?", "unknown.other_event"),
    }
