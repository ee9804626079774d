"""The page of all limits of a server, read from the constants that enforce them.

A limit is a module constant whose name contains `_MAX`, or a field of the listener's `Limits`; its
text is the string or the comment beside it. Not here: flags, which the page of commands has.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from restow.httpserver import Limits

SOURCE: Final = Path(__file__).parents[1] / "src"
PACKAGES: Final = (
    "httpserver",
    "request",
    "endpoints",
    "authentication",
    "authorization",
    "audit",
    "admission",
    "aggregator",
    "openapi",
    "registry",
    "kinds",
    "apimachinery",
    "storage",
    "encryption",
    "storageversion",
    "controllers",
    "migration",
    "apiserver",
    "client",
)
"""The packages that a server runs, in the order in which a request meets them."""
KIB: Final = 1024
UNITS: Final = ((KIB**3, "GiB"), (KIB**2, "MiB"), (KIB, "KiB"))


class LimitRow(NamedTuple):
    """One limit."""

    place: str
    name: str
    value: float
    about: str


def listener_limits() -> Iterator[LimitRow]:
    """The fields of `Limits`, with their defaults."""
    path = SOURCE / "restow/httpserver/limits.py"
    text = path.read_text(encoding="utf-8")
    (found,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == "Limits"
    )
    values = Limits()
    for name, about in _annotated(found.body, text.splitlines()):
        yield LimitRow("httpserver.limits", name, getattr(values, name), about)


def package_limits(package: str) -> Iterator[LimitRow]:
    """The constants of a package whose names contain `_MAX`."""
    for path in sorted((SOURCE / "restow" / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        rows = [
            each
            for each in _annotated(ast.parse(text).body, text.splitlines())
            if "_MAX" in each[0]
        ]
        if not rows:
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        loaded = import_module(module)
        for name, about in rows:
            value = getattr(loaded, name)
            if isinstance(value, int | float):
                yield LimitRow(module.removeprefix("restow."), name, value, about)


def shown_value(row: LimitRow) -> str:
    """A number with its unit, if the name has one."""
    if "BYTES" in row.name.upper():
        for size, unit in UNITS:
            if row.value >= size and row.value % (size // 4) == 0:
                return f"{row.value / size:g} {unit}"
    return f"{row.value:,}" if isinstance(row.value, int) else f"{row.value:g}"


def _annotated(body: list[ast.stmt], lines: list[str]) -> Iterator[tuple[str, str]]:
    """The annotated assignments with the string after each, or the comment before it."""
    following: list[ast.stmt | None] = [*body[1:], None]
    for node, after in zip(body, following, strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        about = str(after.value.value) if is_text else _comment(lines, node.lineno - 1)  # type: ignore[union-attr]
        yield node.target.id, " ".join(about.split())


def _comment(lines: list[str], position: int) -> str:
    """The comment lines directly before a line."""
    begin = position
    while begin and lines[begin - 1].lstrip().startswith("# "):
        begin -= 1
    return " ".join(line.lstrip().removeprefix("# ") for line in lines[begin:position])
