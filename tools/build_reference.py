"""Writes the generated pages of `docs/reference`: commands, metrics, APIs, limits.

    python -m tools.build_reference         # `make reference`

Each page is generated from the program itself: the parsers of the command line, the collectors of
a server that is started for it, the catalogue, the constants. A test compares the committed pages
with the generated ones.

Not here: any list of commands, metrics or kinds.
"""

import asyncio
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import Metric

from restow.aio import Runtime
from restow.apiserver.audit_options import AuditOptions
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.cli.main import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, make_whole_parser
from restow.kinds.kind import VERBS_ALL, Subresource
from restow.registry.catalog import Catalog, builtin_catalog, version_hash_of
from restow.registry.resource import Resource
from restow.request.metrics import HealthMetrics
from tests.support.encryption_files import write_encryption_file
from tools.command_tree import Argument, CommandNode, Option, OptionGroup, whole_tree
from tools.limits_reference import (
    PACKAGES,
    LimitRow,
    listener_limits,
    package_limits,
    shown_value,
)

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
NOTICE: Final = "<!-- Made by `make reference`. Change the program, not this page. -->"
CONTROLLER_METRICS: Final = "restow.migration.metrics"
SOME_RESOURCE: Final = "apps/v1, Resource=deployments"
NONE: Final = "–"
COLUMNS: Final = (
    "resource",
    "short",
    "kind",
    "served",
    "stored as",
    "hash",
    "scope",
    "subresources",
    "verbs",
)

Row = Sequence[str]


def main() -> None:
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")
        print(FOLDER / name)


def pages() -> dict[str, str]:
    """Each page by its file name, with its content."""
    return {
        "apis.md": _page(apis(builtin_catalog())),
        "commands.md": _page(commands(whole_tree(make_whole_parser()))),
        "limits.md": _page(limits()),
        "metrics.md": _page(metrics()),
    }


def _page(blocks: Iterable[str]) -> str:
    title, *rest = blocks
    return "\n\n".join([title, NOTICE, *rest]) + "\n"


def _table(heading: Row, rows: Iterable[Row]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text else NONE


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts)) or NONE


# Commands.


def commands(tree: CommandNode) -> Iterator[str]:
    """One section for each command, with a subsection for each of its verbs."""
    yield "# Commands"
    yield (
        "Use this page to look up an option; `--help` of each command prints the same text. Invalid"
        " arguments end with exit code 2 and a message on standard error, Ctrl-C with"
        f" {EXIT_INTERRUPTED}, and a closed output pipe (as by `head`) with {EXIT_PIPE_CLOSED},"
        " unless a command documents other codes."
    )
    rows = [(f"[{child.path}](#{'-'.join(child.words)})", child.summary) for child in tree.children]
    yield _table(("command", "description"), rows)
    for child in tree.children:
        yield from _command(child, level=2)


def _command(node: CommandNode, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {node.path}"
    yield f"{node.summary[:1].upper()}{node.summary[1:]}."
    yield f"```text\n{_usage(node)}\n```"
    if node.children:
        rows = [(_code(child.words[-1]), child.summary) for child in node.children]
        yield _table(("verb", "description"), rows)
    if node.arguments:
        yield _table(("argument", "default", "description"), map(_argument, node.arguments))
    for group in node.groups:
        yield from _group(group, level=level + 1)
    if node.exit_codes:
        rows = [(str(code), meaning) for code, meaning in node.exit_codes]
        yield _table(("exit code", "when"), rows)
    text = _without_exit_codes(node.text)
    if text:
        yield f"```text\n{text}\n```"
    for child in node.children:
        yield from _command(child, level=level + 1)


def _group(group: OptionGroup, *, level: int) -> Iterator[str]:
    options = [option for option in group.options if not _is_help(option)]
    if not options:
        return
    if group.title:
        yield f"{'#' * level} {group.title[:1].upper()}{group.title[1:]}"
    if group.about:
        yield group.about.strip()
    rows = [(_option_name(each), each.default or NONE, _about(each)) for each in options]
    yield _table(("option", "default", "description"), rows)


def _is_help(option: Option) -> bool:
    return "--help" in option.names


def _usage(node: CommandNode) -> str:
    needed = [_words(option)[0] for option in node.options if option.required]
    ways = [_words(option)[0] for option in node.options if option.alternative]
    if ways:
        needed.append(f"({' | '.join(ways)})")
    words = [node.path, *needed]
    if any(not (each.required or each.alternative or _is_help(each)) for each in node.options):
        words.append("[OPTIONS]")
    words += map(_argument_usage, node.arguments)
    if node.children:
        words.append("VERB ...")
    return " ".join(words)


def _argument_usage(argument: Argument) -> str:
    value = argument.value
    text = f"{value.name} ..." if value.many else value.name
    return f"[{text}]" if value.optional else text


def _argument(argument: Argument) -> Row:
    return _code(_argument_usage(argument)), argument.default or NONE, argument.about


def _words(option: Option) -> list[str]:
    if option.value is None:
        return list(option.names)
    value = f"[{option.value.name}]" if option.value.optional else option.value.name
    return [f"{name} {value}" for name in option.names]


def _option_name(option: Option) -> str:
    names = list(option.names[:-1])
    return _codes([*names, _words(option)[-1]])


def _about(option: Option) -> str:
    notes = [option.about] if option.about else []
    if option.required:
        notes.append("required")
    if option.repeated and "repeated" not in option.about:
        notes.append("may be repeated")
    if option.excludes:
        others = _codes(option.excludes)
        notes.append(f"this or {others}" if option.alternative else f"not with {others}")
    return "; ".join(notes)


def _without_exit_codes(text: str) -> str:
    """The text without its exit codes: they have a table."""
    flags = re.MULTILINE | re.DOTALL
    return re.sub(r"^Exit codes: .*?(?:\n\n|\Z)", "", text, flags=flags).strip("\n")


# Metrics.


class Source(Protocol):
    """An object that exports metrics."""

    def collect(self) -> Iterable[Metric]: ...

    def document(self) -> bytes: ...


def metrics() -> Iterator[str]:
    """The metrics of a server, of its health checks, and of the controllers."""
    yield "# Metrics"
    yield (
        "Use this page to look up a metric. Metrics are exported in the Prometheus text format. A"
        " histogram also has the samples `_bucket` (with the label `le`), `_count` and `_sum`."
    )
    for title, about, source in _sources():
        yield f"## {title}"
        yield about
        yield _table(("name", "type", "labels", "description"), _metric_rows(source))


def _sources() -> Iterator[tuple[str, str, Source]]:
    yield "Server", "Each server exports them at `/metrics`.", asyncio.run(_of_server())
    yield (
        "Health checks of a server",
        "With the names of Kubernetes, at `/metrics/slis`.",
        HealthMetrics(states=list, counts=list),
    )
    if find_spec(CONTROLLER_METRICS) is not None:
        about = "`restow controllers` exports them at `/metrics`."
        yield "Controllers", about, _of_controllers(import_module(CONTROLLER_METRICS))


async def _of_server() -> Source:
    """The metrics of a server that was started and stopped again."""
    logging.disable(logging.INFO)  # of its start
    with tempfile.TemporaryDirectory(prefix="restow-reference-") as folder:
        keys = write_encryption_file(Path(folder) / "keys.yaml", "identity")
        options = ServeOptions(
            data_dir=Path(folder),
            store="memory:",
            port=0,
            grace_seconds=1,
            encryption_provider_config=keys,  # otherwise it has no metrics of encryption
            audit=AuditOptions(path=str(Path(folder) / "audit.log")),
        )
        server = await ApiServer.start(options, Runtime.system())
        await server.stop()
    logging.disable(logging.NOTSET)
    return server.metrics


def _of_controllers(module: Any) -> Source:
    """The metrics of a process that has run a migration: some families only then have labels."""
    passes = import_module("restow.migration.migrator.passes")
    found = module.ControllerMetrics(Runtime.system().clock)
    nothing = dict.fromkeys((each.name for each in fields(passes.PageDone)), 0)
    found.page(SOME_RESOURCE, passes.PageDone(**nothing))
    found.ended(SOME_RESOURCE, "Succeeded", 1.0)
    source: Source = found
    return source


def _metric_rows(source: Source) -> Iterator[Row]:
    labels = {family.name: _labels(family) for family in source.collect()}
    text = source.document().decode()
    about = dict(re.findall(r"^# HELP (\S+) (.*)$", text, flags=re.MULTILINE))
    for name, kind in sorted(re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE)):
        family = name if name in labels else name.removesuffix("_total")
        yield _code(name), kind, _codes(labels[family]), about[name]


def _labels(family: Metric) -> tuple[str, ...]:
    """The label names of a family, also if it has no sample yet."""
    declared = getattr(family, "_labelnames", None)
    if declared is not None:
        return tuple(declared)
    return tuple(family.samples[0].labels) if family.samples else ()


# APIs.


def limits() -> Iterator[str]:
    """The numbers of all limits, by the package that enforces them."""
    yield "# Limits of a server"
    yield (
        "Use this page to look up a number; for the most important limits, and how to change them,"
        " see [limits and fairness](../how-to/limits.md). Limits with an option are in"
        " [commands](commands.md). Names contain the unit, if there is one."
    )
    yield "## Connections and requests"
    yield _limit_table(list(listener_limits()))
    for package in PACKAGES:
        if rows := list(package_limits(package)):
            yield f"## {package}"
            yield _limit_table(rows)


def _limit_table(rows: Sequence[LimitRow]) -> str:
    names = [(f"`{row.name}`", shown_value(row), row.place, row.about or NONE) for row in rows]
    return _table(("limit", "value", "module", "about"), names)


def apis(catalog: Catalog) -> Iterator[str]:
    """One table for each group, in the order of discovery."""
    yield "# APIs"
    yield (
        f"Use this page to look up a built-in kind. A server serves these {len(catalog)} kinds by"
        " default; a [release](releases.md) can change them. *Stored as* is the preferred storage"
        " version; the hash is that of discovery for this version. A row without verbs has all"
        f" eight: {_codes(VERBS_ALL)}."
    )
    for group in catalog.groups:
        yield f"## {group or 'core'}"
        rows = [_resource(each) for each in sorted(catalog, key=lambda one: one.plural)]
        yield _table(COLUMNS, [row[1:] for row in rows if row[0] == group])


def _resource(resource: Resource) -> Row:
    kind = resource.kind
    stored, digest = NONE, NONE
    if kind.persisted:
        stored = _code(resource.storage_api_version)
        digest = _code(version_hash_of(resource, resource.storage_api_version))
    return (
        resource.group,
        _code(kind.plural),
        _codes(kind.short_names),
        kind.kind,
        _codes(resource.served),
        stored,
        digest,
        "namespace" if kind.namespaced else "cluster",
        ", ".join(map(_subresource, kind.subresources)) or NONE,
        "" if kind.verbs == VERBS_ALL else _codes(kind.verbs),
    )


def _subresource(subresource: Subresource) -> str:
    return f"{_code(subresource.name)} ({', '.join(subresource.verbs)})"


if __name__ == "__main__":
    main()
