"""`restow migrate`: rewrite objects stored in another version now, and show the progress.

The work is in `restow.migration.manual`, the display in `restow.cli.migrate_progress`. This module
has the arguments and the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import orjson

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.cli.connection import add_connection, find_cluster
from restow.cli.controllers import add_pace, engine_options
from restow.cli.event_loop import run_async
from restow.cli.migrate_progress import ProgressDisplay
from restow.cli.output import fail, print_json
from restow.client import (
    ApiClient,
    ApiResource,
    ClientConfig,
    ClientError,
    ConfigInvalid,
    DiscoveredResources,
    NoSuchResource,
)
from restow.migration.manual import (
    ManualMigration,
    ManualMigrationOptions,
    ManualOutcome,
    ManualResult,
)
from restow.migration.migrator.dry_run import dry_run
from restow.migration.migrator.passes import ObjectFailure
from restow.migration.migrator.patch_rewrite import connections_for
from restow.migration.names import NAMESPACE_DEFAULT
from restow.migration.trigger.eligibility import NEEDED_VERBS
from restow.migration.trigger.eligibility import DiscoveredVersion as Eligible
from restow.migration.trigger.sources import eligible_resources

_fail = partial(fail, "migrate")
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
INTERRUPTED = "stopped; progress is kept, and the next run resumes from the checkpoint"

EPILOG = """\
Resources are named as in kubectl: deploy, deployments, deployments.apps. A resource whose storage
version has not changed since its last completed migration is skipped, unless --force is given.

  restow migrate deployments.apps         rewrite all objects stored in another version
  restow migrate --all                    all resources whose version changed
  restow migrate --dry-run secrets        list objects that admission or validation would reject
  restow migrate --pause secrets          pause the migration; --resume, --cancel

Where controllers run (restow controllers), they do the work, and its progress is shown. Otherwise
this command does it. In both cases the migration is aborted when servers stop agreeing on a
version, and it succeeds only when a whole pass has found no stale object.

Exit codes: 0 all objects are in the current version; 1 the cluster cannot be reached, its servers
do not agree, or with --all some resources could not be discovered ("partial:"); 2 wrong usage;
3 objects could not be rewritten, or the migration was aborted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resources", nargs="*", metavar="RESOURCE")
    parser.add_argument("--all", action="store_true", help="every resource that can be migrated")
    parser.add_argument(
        "--force",
        action="store_true",
        help="include resources unchanged since their last migration",
    )
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument(
        "--dry-run",
        action="store_true",
        help="write nothing; list the objects that would be rejected",
    )
    verbs.add_argument("--pause", action="store_true", help="pause running migrations")
    verbs.add_argument("--resume", action="store_true", help="resume paused migrations")
    verbs.add_argument("--cancel", action="store_true", help="cancel running and paused migrations")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument(
        "--failures",
        type=Path,
        metavar="FILE",
        help="write each failed object to this file, as one JSON object per line",
    )
    parser.add_argument(
        "--namespace",
        default=NAMESPACE_DEFAULT,
        metavar="NAME",
        help=f"namespace of the leases of controllers; default: {NAMESPACE_DEFAULT}",
    )
    add_connection(parser)
    add_pace(parser)


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.resources) == arguments.all:
        return _fail("name resources, or use --all", EXIT_USAGE)
    try:
        config = find_cluster(arguments)
        with ExitStack() as stack:
            failures = None
            if arguments.failures is not None:
                failures = stack.enter_context(arguments.failures.open("w", encoding="utf-8"))
            return run_async(_Command(arguments, failures).run(config))
    except (ConfigInvalid, NoSuchResource, ValueError) as error:
        return _fail(error, EXIT_USAGE)
    except (ClientError, StatusError, OSError) as error:
        return _fail(error, EXIT_REFUSED)
    except KeyboardInterrupt:
        _fail(INTERRUPTED, EXIT_REFUSED)
        raise


class _Command:
    """One invocation of the command."""

    def __init__(self, arguments: argparse.Namespace, failures: TextIO | None) -> None:
        self._arguments = arguments
        self._failures = failures
        engine = engine_options(arguments)
        self._options = ManualMigrationOptions(
            namespace=arguments.namespace,
            is_forced=arguments.force,
            engine=engine,
        )
        self._patch = engine.patch

    async def run(self, config: ClientConfig) -> int:
        runtime = Runtime.system()
        limits = connections_for(self._patch, resources=self._arguments.parallel)
        async with (
            ApiClient.connect(config, runtime=runtime) as client,
            ApiClient.connect(config, runtime=runtime, connections=limits) as bulk,
        ):
            found = await client.discover()
            resources = self._chosen(found)
            # With --all, resources that discovery does not show are not migrated.
            unread = found.failures if self._arguments.all else {}
            for group_version, error in unread.items():
                _fail(f"partial: {group_version} could not be read: {error}", EXIT_REFUSED)
            code = await self._run(client, bulk, found, resources)
            return code or (EXIT_REFUSED if unread else 0)

    async def _run(
        self,
        client: ApiClient,
        bulk: ApiClient,
        found: DiscoveredResources,
        resources: list[ApiResource],
    ) -> int:
        if self._arguments.dry_run:
            return await self._dry_run(bulk, resources)
        async with ManualMigration(client, found, bulk=bulk, options=self._options) as by_hand:
            if self._arguments.pause or self._arguments.resume or self._arguments.cancel:
                return await self._control(by_hand, resources)
            return await self._migrate(by_hand, resources)

    def _chosen(self, found: DiscoveredResources) -> list[ApiResource]:
        """Return the selected resources. Raises NoSuchResource; ValueError if a verb is missing."""
        can = eligible_resources(found)
        served = {each.resource: each for each in found.resources}
        if self._arguments.all:
            return [served[each.name] for each in can.values()]
        chosen = {}
        for text in self._arguments.resources:
            resource = found.find(text)
            missing = ", ".join(sorted(NEEDED_VERBS - resource.verbs))
            if missing:
                raise ValueError(f"{text} cannot be migrated: it does not support {missing}")
            if resource.group_resource not in can:
                # Another group serves the same objects, and has their storage version.
                resource = served[_home_of(resource, can.values())]
            chosen[resource.group_resource] = resource
        return list(chosen.values())

    # Migration.

    async def _migrate(self, by_hand: ManualMigration, resources: list[ApiResource]) -> int:
        places = asyncio.Semaphore(self._arguments.parallel)
        board = ProgressDisplay(is_quiet=self._arguments.output == "json")
        results: list[ManualResult] = []

        async def one(resource: ApiResource) -> None:
            async with places:
                result = await self._one(by_hand, resource, board)
            results.append(result)
            board.end(result)

        with board:
            async with asyncio.TaskGroup() as group:
                for each in resources:
                    group.create_task(one(each), name=f"migrate {each.group_resource}")
        if self._arguments.output == "json":
            print_json([_fields(each) for each in sorted(results, key=lambda each: each.resource)])
        else:
            board.summary(results)
        return _exit_code(results)

    async def _one(
        self, by_hand: ManualMigration, resource: ApiResource, board: ProgressDisplay
    ) -> ManualResult:
        name = str(resource.group_resource)

        def fail(failure: ObjectFailure) -> None:
            board.fail(name, failure)
            self._write_failure(name, failure)

        try:
            return await by_hand.migrate(
                resource, listener=board.listener(name, fail), on_migration=board.follow(name)
            )
        except (StatusError, ClientError) as error:
            return ManualResult(resource=name, verdict=ManualOutcome.FAILED, message=str(error))

    def _write_failure(self, resource: str, failure: ObjectFailure) -> None:
        if self._failures is None:
            return
        fields = {
            "resource": resource,
            "namespace": failure.namespace,
            "name": failure.name,
            "reason": failure.reason,
            "message": failure.message,
        }
        self._failures.write(orjson.dumps(fields).decode() + "\n")

    # Pause, resume, cancel, dry run.

    async def _control(self, by_hand: ManualMigration, resources: list[ApiResource]) -> int:
        arguments, found = self._arguments, 0
        for each in resources:
            name = each.group_resource
            if arguments.cancel:
                names, done = await by_hand.cancel(name), "cancelled"
            else:
                names = await by_hand.pause(name, is_paused=arguments.pause)
                done = "paused" if arguments.pause else "resumed"
            found += len(names)
            for request in names:
                print(f"{name}: {request} {done}")
        if not found:
            print("no migration is running")
        return 0

    async def _dry_run(self, client: ApiClient, resources: list[ApiResource]) -> int:
        """Dry run, one resource at a time to keep the load low."""
        refused: list[dict[str, Any]] = []
        for each in resources:
            name = str(each.group_resource)

            def fail(failure: ObjectFailure, name: str = name) -> None:
                self._write_failure(name, failure)
                refused.append({"resource": name, **_failure_fields(failure)})
                if self._arguments.output == "text":
                    place = f"{failure.namespace}/{failure.name}".lstrip("/")
                    print(f"{name} {place}: {failure.reason}: {failure.message}")

            done = await dry_run(
                client, each, runtime=client.runtime, options=self._patch, on_failure=fail
            )
            if self._arguments.output == "text":
                unknown = f", {done.unknown:,} unknown" if done.unknown else ""
                print(
                    f"{name}: {done.scanned:,} objects checked, {done.refused:,} would be"
                    f" rejected{unknown}"
                )
        if self._arguments.output == "json":
            print_json(refused)
        return EXIT_FAILED if refused else 0


def _home_of(resource: ApiResource, can: Iterable[Eligible]) -> GroupVersionResource:
    place = (resource.name, resource.storage_version_hash)
    return next(each.name for each in can if (each.name.resource, each.hash) == place)


def _exit_code(results: list[ManualResult]) -> int:
    verdicts = {each.verdict for each in results}
    if verdicts & {ManualOutcome.FAILED, ManualOutcome.ABORTED}:
        return EXIT_FAILED
    return EXIT_REFUSED if ManualOutcome.NOT_AGREED in verdicts else 0


def _fields(result: ManualResult) -> dict[str, Any]:
    return {
        "resource": result.resource,
        "verdict": result.verdict.value,
        "message": result.message,
        "objects": result.objects,
        "rewritten": result.rewritten,
        "failed": result.failed,
    }


def _failure_fields(failure: ObjectFailure) -> dict[str, str]:
    return {
        "namespace": failure.namespace,
        "name": failure.name,
        "reason": failure.reason,
        "message": failure.message,
    }
