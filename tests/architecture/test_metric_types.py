"""Values that only grow are counters, by type and by name, in every export."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from restow.httpserver.listener_state import Counters
from restow.request.metrics import KUBERNETES_COUNTERS, Metrics
from tools.build_reference import FOLDER

SOURCE: Final = Path(__file__).parents[2] / "src" / "restow"
WITHOUT_TOTAL: Final = {
    *KUBERNETES_COUNTERS,
    "storage_migrator_core_migrator_migrated_objects",
    "storage_migrator_core_migrator_migrations",
}
"""Names that Kubernetes and kube-storage-version-migrator define."""
LOWERING: Final = {"put", "forget", "pop", "clear"}


def functions_and_assignments(source: Path) -> Iterator[tuple[str, ast.AST]]:
    """Yields every node of the source with the name of its function."""
    for path in sorted(source.rglob("*.py")):
        pending: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
        while pending:
            function, node = pending.pop()
            yield function, node
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node.name
            pending += ((function, child) for child in ast.iter_child_nodes(node))


def growing_gauges(source: Path) -> list[str]:
    """Returns attributes that are exported as gauges although the source only adds to them."""
    added: set[str] = set()
    lowered: set[str] = set()
    shown: set[str] = set()
    for function, node in functions_and_assignments(source):
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name), op=ast.Add()):
                added.add(name)
            case ast.AugAssign(target=ast.Attribute(attr=name)):
                lowered.add(name)
            case ast.Assign(targets=targets) if function != "__init__":
                lowered |= {each.attr for each in targets if isinstance(each, ast.Attribute)}
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="add")):
                added.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=verb)) if (
                verb in LOWERING
            ):
                lowered.add(name)
            case ast.Call(func=ast.Attribute(attr="gauge") | ast.Name(id="_gauge"), args=arguments):
                for argument in arguments[3:]:
                    shown |= {
                        each.attr for each in ast.walk(argument) if isinstance(each, ast.Attribute)
                    }
            case _:
                pass
    return sorted((added - lowered) & shown)


def test_no_gauge_exports_a_counter() -> None:
    """An attribute that is only increased is exported by `counter`."""
    assert growing_gauges(SOURCE) == []


def test_a_gauge_that_only_grows_is_found(tmp_path: Path) -> None:
    """The check finds such a gauge."""
    (tmp_path / "one.py").write_text(
        "def count(a): a.seen += 1; a.open += 1\n"
        "def end(a): a.open -= 1\n"
        "metrics.gauge('x', '', (), lambda: [((), a.seen), ((), a.open)])\n"
    )
    assert growing_gauges(tmp_path) == ["seen"]


def test_a_number_of_the_listener_grows_if_nothing_lowers_it() -> None:
    """The annotations of the fields agree with the code."""
    lowered = {
        node.target.attr
        for _, node in functions_and_assignments(SOURCE / "httpserver")
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.target, ast.Attribute)
    }
    for name, field in Counters.__dataclass_fields__.items():
        assert field.metadata["grows"] == (name not in lowered), name


def test_every_counter_of_the_reference_ends_in_total() -> None:
    """All others have names that are defined elsewhere, and no gauge has such a name."""
    page = (FOLDER / "metrics.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.MULTILINE)
    counters = {name for name, kind in found if kind == "counter"}
    assert {name for name in counters if not name.endswith("_total")} == WITHOUT_TOTAL
    assert [name for name, kind in found if kind == "gauge" and name.endswith("_total")] == []


def test_a_counter_needs_the_name_of_one() -> None:
    """`Metrics` rejects a counter without `_total`, and a gauge with it."""
    metrics = Metrics()
    with pytest.raises(ValueError, match="lacks _total"):
        metrics.counter("restow_things", "Things.", (), list)
    with pytest.raises(ValueError, match="a counter"):
        metrics.gauge("restow_things_total", "Things.", (), list)


def test_a_counter_of_kubernetes_keeps_its_name() -> None:
    """It has the type counter, and no `_total` is added."""
    metrics = Metrics()
    name = KUBERNETES_COUNTERS[0]
    metrics.counter(name, "Things.", (), lambda: [((), 3)])
    text = metrics.document().decode()
    assert f"# TYPE {name} counter\n{name} 3.0\n" in text
