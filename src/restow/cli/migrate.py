"""`restow migrate`: rewrite what is stored in another version, now, and watch it.

The work is in `restow.migration.manual`; what is shown is in `restow.cli.migrate_progress`. Here
are the words of the command, and what its exit code says.
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

_say = partial(fail, "migrate")
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
INTERRUPTED = "stopped; what was done is kept, and the next run goes on where this one was"

EPILOG = """\
Resources are named as kubectl takes them: deploy, deployments, deployments.apps. One whose storage
version has not changed since its last completed run is skipped, unless --force is given.

  restow migrate deployments.apps         everything stored in another version is rewritten
  restow migrate --all                    all resources that have changed
  restow migrate --dry-run secrets        which objects admission or validation would refuse
  restow migrate --pause secrets          hold it; --resume lets it go on, --cancel ends it

Where controllers run (restow controllers), they do the work, and it is shown here as it goes on.
Where none do, it is done here. Either way it ends when servers stop agreeing on a version, and it
succeeds only when a whole pass has found nothing left to rewrite.

Exit codes: 0 all is stored in the current version; 1 the cluster cannot be reached, or its servers
do not agree; 2 wrong usage; 3 objects could not be rewritten, or it was aborted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resources", nargs="*", metavar="RESOURCE")
    parser.add_argument("--all", action="store_true", help="every resource that can be migrated")
    parser.add_argument(
        "--force", action="store_true", help="also what has not changed since it was last migrated"
    )
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument(
        "--dry-run",
        action="store_true",
        help="write nothing; name the objects that would be refused",
    )
    verbs.add_argument("--pause", action="store_true", help="hold migrations that are under way")
    verbs.add_argument("--resume", action="store_true", help="let migrations that are held go on")
    verbs.add_argument("--cancel", action="store_true", help="end migrations that are under way")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument(
        "--failures",
        type=Path,
        metavar="FILE",
        help="write each object that failed to a file, a line of JSON each",
    )
    parser.add_argument(
        "--namespace",
        default=NAMESPACE_DEFAULT,
        metavar="NAME",
        help=f"where the leases of controllers are; default: {NAMESPACE_DEFAULT}",
    )
    add_connection(parser)
    add_pace(parser)


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.resources) == arguments.all:
        return _say("name resources, or say --all", EXIT_USAGE)
    try:
        config = find_cluster(arguments)
        with ExitStack() as stack:
            failures = None
            if arguments.failures is not None:
                failures = stack.enter_context(arguments.failures.open("w", encoding="utf-8"))
            return run_async(_Command(arguments, failures).run(config))
    except (ConfigInvalid, NoSuchResource, ValueError) as error:
        return _say(error, EXIT_USAGE)
    except (ClientError, StatusError, OSError) as error:
        return _say(error, EXIT_REFUSED)
    except KeyboardInterrupt:
        _say(INTERRUPTED, EXIT_REFUSED)
        raise


class _Command:
    """One call of the command."""

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
            if self._arguments.dry_run:
                return await self._dry_run(bulk, resources)
            async with ManualMigration(client, found, bulk=bulk, options=self._options) as by_hand:
                if self._arguments.pause or self._arguments.resume or self._arguments.cancel:
                    return await self._steer(by_hand, resources)
                return await self._migrate(by_hand, resources)

    def _chosen(self, found: DiscoveredResources) -> list[ApiResource]:
        """What was asked for. Raises NoSuchResource, or a ValueError for what has no objects."""
        can = eligible_resources(found)
        served = {each.resource: each for each in found.resources}
        if self._arguments.all:
            return [served[each.name] for each in can.values()]
        chosen = {}
        for text in self._arguments.resources:
            resource = found.find(text)
            missing = ", ".join(sorted(NEEDED_VERBS - resource.verbs))
            if missing:
                raise ValueError(f"{text} cannot be migrated: it has no verb {missing}")
            if resource.group_resource not in can:
                # Another group shows the same objects, and has the version they are stored in.
                resource = served[_home_of(resource, can.values())]
            chosen[resource.group_resource] = resource
        return list(chosen.values())

    # Migrating.

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
                resource, listener=board.listener(name, fail), on_request=board.follow(name)
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

    # The other verbs.

    async def _steer(self, by_hand: ManualMigration, resources: list[ApiResource]) -> int:
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
            print("no migration is under way")
        return 0

    async def _dry_run(self, client: ApiClient, resources: list[ApiResource]) -> int:
        """Sequentially: it is asked for by someone who wants to be careful."""
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
                    f"{name}: {done.scanned:,} objects tried, {done.refused:,} would be"
                    f" refused{unknown}"
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
