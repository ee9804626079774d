"""The tables and the JSON of `restow status`.

Not here: the arguments (`status`), and updates of the overview (`status_live`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.cli.hints import Hints
from restow.cli.untrusted_text import shown
from restow.migration.encryption_keys import labels_of
from restow.migration.migrator.progress import duration_text
from restow.migration.overview_keys import KeysSeen, key_problems
from restow.migration.overview_values import (
    ClusterOverview,
    Hash,
    MigrationRow,
    ResourceSeen,
    ResourceStatus,
    agreement_of,
)
from restow.migration.times import time_text

WIDTH_OF_FILES = 1_000
"""Wide enough that no line is wrapped: programs read these lines."""
SUCCEEDED_SHOWN_MAX = 3
FAILED_SHOWN_MAX = 10

_STYLES = {
    ResourceStatus.OK: "green",
    ResourceStatus.UNREADABLE: "red",
    ResourceStatus.MIGRATING: "cyan",
    ResourceStatus.TO_MIGRATE: "yellow",
    ResourceStatus.DISAGREEING: "red",
    ResourceStatus.UNKNOWN: "",
    ResourceStatus.LEFT_ALONE: "",
    ResourceStatus.GONE: "",
}
PHASE_STYLES = {"Succeeded": "green", "Failed": "red", "Running": "cyan", "Paused": "yellow"}

PARTIAL: Final = "partial: some data of the cluster could not be read, as the notes say"


def print_all(
    view: ClusterOverview,
    console: Console | None = None,
    *,
    hints: Hints,
    resources: Sequence[ResourceSeen] | None = None,
) -> None:
    """Print the whole overview, or only some of its resources."""
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = console or Console(width=width, highlight=False, markup=False, emoji=False)
    if view.servers:
        console.print(_servers(view))
        console.print()
    if view.resources:
        chosen = view.resources if resources is None else resources
        console.print(resources_table(chosen, labels=_labels(view)))
        if (more := len(view.resources) - len(chosen)) > 0:
            console.print(f"… and {more:,} more")
        for names, problem in key_problems((each.resource, each.keys) for each in view.resources):
            console.print(shown(f"{names}: {problem.what}: {problem.advice}"), soft_wrap=True)
        for each in view.resources:
            if each.remark:
                text = shown(f"{each.resource}: {hints.complete(each.remark)}")
                console.print(text, soft_wrap=True)
        console.print()
    if view.migrations:
        console.print(_migrations(view))
        _print_failures(console, view)
        console.print()
    if view.leaders:
        console.print(_leaders(view))
        console.print()
    console.print(hints.complete(_summary(view)), soft_wrap=True)
    if view.is_partial:
        console.print(PARTIAL, style="yellow", soft_wrap=True)
    for note in view.notes:
        console.print(f"note: {shown(hints.complete(note))}", soft_wrap=True)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _servers(view: ClusterOverview) -> Table:
    """The table of servers; with a component column only if some are aggregated."""
    shows_component = any(each.is_aggregated for each in view.servers)
    table = _table("SERVER", *(["COMPONENT"] if shows_component else []), "HOST", "RENEWED", "")
    for each in view.servers:
        remark = Text("ok", style="green") if each.is_live else Text("expired", style="red")
        table.add_row(
            Text(shown(each.id)),
            *([Text(shown(each.component))] if shows_component else []),
            Text(shown(each.host) or "–"),
            ago(each.renewed, view),
            remark,
        )
    return table


def resources_table(resources: Sequence[ResourceSeen], *, labels: Mapping[str, str]) -> Table:
    """The table of resources, with key columns only if keys are used (`labels` are their names)."""
    headings = ["RESOURCE", "STORAGE VERSION", "MAY BE STORED AS", "SERVERS", ""]
    if labels:
        headings[3:3] = ["WRITTEN WITH", "MAY BE STORED UNDER"]
    table = _table(*headings)
    for each in resources:
        cells = [
            Text(shown(each.resource)),
            Text(shown(str(each.written)) or "–"),
            Text(shown(_stored_as(each)) or "?"),
            Text(shown(agreement_of(each))),
            Text(each.verdict.value, style=_STYLES[each.verdict]),
        ]
        if labels:
            cells[3:3] = _key_cells(each.keys, labels)
        table.add_row(*cells)
    return table


def _stored_as(seen: ResourceSeen) -> str:
    """The persisted versions; unknown hashes are shown as they are."""
    is_served = seen.verdict not in (ResourceStatus.LEFT_ALONE, ResourceStatus.GONE)
    texts = [str(each) if is_served else each.words for each in seen.persisted]
    return ", ".join(dict.fromkeys(texts))


def _key_cells(keys: KeysSeen | None, labels: Mapping[str, str]) -> list[Text]:
    if keys is None:
        return [Text("–"), Text("–")]
    counts = Counter(key for _, key in keys.servers)
    written = labels.get(keys.agreed, "?")
    if keys.differ:
        parts = [f"{count} {labels[key]}" for key, count in sorted(counts.items())]
        return [
            Text(shown(", ".join(parts)), style="red"),
            Text(shown(", ".join(labels[key] for key in keys.persisted))),
        ]
    stored = Text(shown(", ".join(labels[key] for key in keys.persisted)))
    if keys.waiting:
        wanted = ", ".join(sorted({labels[key] for _, key in keys.waiting}))
        return [Text(shown(f"{written}, {wanted} pending"), style="yellow"), stored]
    return [Text(shown(written)), stored]


def _labels(view: ClusterOverview) -> dict[str, str]:
    """Display names of all encryption keys in use; empty without encryption."""
    seen = [each.keys for each in view.resources if each.keys is not None]
    return labels_of(key for keys in seen for key in keys.all_ids)


def _migrations(view: ClusterOverview) -> Table:
    table = _table("MIGRATION", "RESOURCE", "STATUS", "PROGRESS", "AGE")
    for each in _chosen(view.migrations):
        table.add_row(
            Text(shown(each.name)),
            Text(shown(each.resource)),
            Text(each.phase, style=PHASE_STYLES.get(each.phase, "")),
            Text(shown(progress_of(each))),
            ago(each.created, view, suffix=""),
        )
    return table


def _chosen(migrations: list[MigrationRow]) -> list[MigrationRow]:
    """All running, all failed and not superseded, and the last succeeded migrations."""
    oldest = datetime.fromisoformat("1970-01-01T00:00:00Z")
    migrations = sorted(migrations, key=lambda each: each.finished or oldest, reverse=True)
    is_open = [each for each in migrations if each.is_open]
    failed = [each for each in migrations if each.phase == "Failed" and not each.is_superseded]
    succeeded = [each for each in migrations if each.phase == "Succeeded"]
    return is_open + failed + succeeded[:SUCCEEDED_SHOWN_MAX]


def progress_of(migration: MigrationRow) -> str:
    """The progress: the migrator's message, or else its counts."""
    if migration.message:
        return migration.message
    counts = migration.progress
    scanned, remaining = counts.get("scanned"), counts.get("remaining")
    if not isinstance(scanned, int):
        return "–"
    parts = [f"{scanned:,} objects"]
    if isinstance(remaining, int) and remaining:
        parts = [f"{scanned:,} of about {scanned + remaining:,} objects"]
    if isinstance(rate := counts.get("objectsPerSecond"), int | float) and rate:
        parts.append(f"{rate:,.0f}/s")
    if isinstance(left := counts.get("secondsLeft"), int | float) and migration.is_open:
        parts.append(f"{duration_text(round(left))} left")
    if isinstance(failed := counts.get("failed"), int) and failed:
        parts.append(f"{failed:,} failed")
    return ", ".join(parts)


def _print_failures(console: Console, view: ClusterOverview) -> None:
    for migration in _chosen(view.migrations):
        if not migration.failed_objects:
            continue
        console.print(f"failed in {shown(migration.name)}:", soft_wrap=True)
        for each in migration.failed_objects[:FAILED_SHOWN_MAX]:
            place = "/".join(filter(None, (each.get("namespace"), each.get("name"))))
            why = f"{each.get('reason')}: {each.get('message')}"
            console.print(f"  {shown(place)}: {shown(why)}", soft_wrap=True)
        if (more := len(migration.failed_objects) - FAILED_SHOWN_MAX) > 0:
            console.print(f"  … and {more:,} more: use -o json to see them")


def _leaders(view: ClusterOverview) -> Table:
    table = _table("CONTROLLER", "LEADER", "RENEWED", "")
    for each in view.leaders:
        remark = Text("ok", style="green") if each.is_live else Text("no leader", style="yellow")
        table.add_row(
            Text(f"{each.namespace}/{each.name}"),
            Text(shown(each.holder) or "–"),
            ago(each.renewed, view),
            remark,
        )
    return table


def _summary(view: ClusterOverview) -> str:
    counts = dict.fromkeys(ResourceStatus, 0)
    for each in view.resources:
        counts[each.verdict] += 1
    parts = [f"{count} {verdict.value}" for verdict, count in counts.items() if count]
    many = len(view.resources)
    text = f"{many} resource{'s' * (many != 1)} of {view.server}: {', '.join(parts) or 'none'}"
    running = sum(each.is_open for each in view.migrations)
    if view.migrations:
        ended = Counter(
            "superseded" if each.is_superseded else each.phase.lower()
            for each in view.migrations
            if not each.is_open
        )
        words = [f"{running} running"] if running else []
        words += [f"{count} {phase}" for phase, count in sorted(ended.items())]
        text += f"; migrations: {', '.join(words)}"
    if not any(each.is_live for each in view.leaders):
        text += "; no controllers run (restow controllers)"
    return text


def ago(moment: datetime | None, view: ClusterOverview, *, suffix: str = " ago") -> Text:
    """Time since a moment, by the local clock."""
    if moment is None:
        return Text("–")
    seconds = round((view.moment - moment).total_seconds())
    return Text(f"{duration_text(max(seconds, 0))}{suffix}")


def fields_of(view: ClusterOverview) -> dict[str, Any]:
    """The overview as docs/reference/status.md describes it."""
    return {
        "server": view.server,
        "time": _time(view.moment),
        "resources": [_resource_fields(each) for each in view.resources],
        "migrations": [_migration_fields(each) for each in view.migrations],
        "servers": [
            {
                "id": each.id,
                "component": each.component,
                "host": each.host,
                "renewTime": _time(each.renewed),
                "live": each.is_live,
            }
            for each in view.servers
        ],
        "controllers": [
            {
                "name": each.name,
                "namespace": each.namespace,
                "leader": each.holder,
                "renewTime": _time(each.renewed),
                "live": each.is_live,
            }
            for each in view.leaders
        ],
        "partial": view.is_partial,
        "notes": view.notes,
    }


def _resource_fields(seen: ResourceSeen) -> dict[str, Any]:
    return {
        "resource": seen.resource,
        "verdict": seen.verdict.value,
        "remark": seen.remark or None,
        "written": _hash_fields(seen.written) if seen.written.hash else None,
        "persisted": [_hash_fields(each) for each in seen.persisted],
        "heartbeatTime": _time(seen.heartbeat),
        "servers": [{"id": server, "version": version} for server, version in seen.servers],
        "components": list(seen.components),
        "stores": list(seen.stores),
        "encryption": None if seen.keys is None else _key_fields(seen.keys),
    }


def _key_fields(keys: KeysSeen) -> dict[str, Any]:
    problem = keys.problem
    return {
        "key": keys.agreed or None,
        "persisted": list(keys.persisted),
        "servers": [{"id": server, "key": key} for server, key in keys.servers],
        "waiting": [{"id": server, "key": key} for server, key in keys.waiting],
        "blockedBy": [{"id": server, "key": key} for server, key in keys.blind],
        "problem": None if problem is None else problem.what,
        "advice": None if problem is None else problem.advice,
    }


def _hash_fields(value: Hash) -> dict[str, str]:
    return {"hash": value.hash, "version": value.version}


def _migration_fields(seen: MigrationRow) -> dict[str, Any]:
    return {
        "name": seen.name,
        "apiVersion": seen.api_version,
        "resource": seen.resource,
        "status": seen.phase,
        "superseded": seen.is_superseded,
        "proven": seen.is_proven,
        "message": seen.message,
        "progress": seen.progress,
        "failedObjects": seen.failed_objects,
        "creationTime": _time(seen.created),
        "finishTime": _time(seen.finished),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)
