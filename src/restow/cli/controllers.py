"""`restow controllers`: trigger and migrator against any Kubernetes cluster, until told to stop.

Also puts the kinds that they need onto a cluster that does not have them (`--install`). The work is
in `restow.migration`; here are the words of the command, signals, and what is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial

from restow.aio import Runtime, end_process
from restow.apimachinery.status import Forbidden
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.yaml_documents import dump_documents
from restow.cli.argument_types import port, whole_number
from restow.cli.connection import add_connection, find_cluster
from restow.cli.controllers_census import CensusTaker
from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.cli.event_loop import run_async
from restow.cli.hints import Hints
from restow.cli.logging_setup import set_up_logging
from restow.cli.output import fail
from restow.client import (
    ApiClient,
    ClientConfig,
    ClientError,
    ConfigInvalid,
    LeaderTiming,
    unique_identity,
)
from restow.migration.crds import DEFINITIONS
from restow.migration.events import EventRecorder
from restow.migration.installation import InstallFailed, InstallOutcome, install
from restow.migration.led_controller import Part
from restow.migration.metrics import ControllerMetrics
from restow.migration.migrator.options import EngineOptions, MigratorOptions
from restow.migration.migrator.patch_rewrite import PatchOptions, connections_for
from restow.migration.names import NAMESPACE_DEFAULT
from restow.migration.parts import PART_NAMES, PartOptions, make_parts
from restow.migration.process import (
    PORT_DEFAULT,
    STOP_SECONDS_MAX,
    ControllersProcess,
    NotPossible,
    ProcessOptions,
)
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.values import POLL_SECONDS, Settings
from restow.storage.errors import OpenRefused

_say = partial(fail, "controllers")
EXIT_REFUSED = 1
EXIT_USAGE = 2
PARALLEL_MAX = 256
IN_FLIGHT_MAX = 1_000
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 3, 3_600

EPILOG = """\
The trigger watches in which version servers write each resource and asks for a migration when
objects may be stored in another one. The migrator works off such requests, its own and those of
others, and proves that nothing was left behind. Both only use the API.

  restow controllers --install            once, with the rights to create custom resources
  restow controllers                      then, as often as you like: of several one works
  restow controllers --install --dry-run  prints what --install would apply

On a restow server both kinds are built in, and there is nothing to install. deploy/ has manifests
for a cluster, with the rights that are needed and no others, and a systemd unit.

A line that begins with `ready` is printed when the controllers run. /healthz, /readyz and /metrics
are served over plain HTTP on --bind and --port. SIGTERM and Ctrl-C end everything within two
seconds; what was under way goes on where it was, here or elsewhere.

Exit codes: 0 stopped in good order; 1 the cluster cannot be reached, or lacks something; 2 wrong
usage, or a kubeconfig that cannot be used.
"""

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    _add_installing(parser)
    add = parser.add_argument_group("process").add_argument
    add("--only", choices=PART_NAMES, help="run only this controller; default: both")
    add(
        "--namespace",
        default=NAMESPACE_DEFAULT,
        metavar="NAME",
        help=f"where the leases of leader election are; default: {NAMESPACE_DEFAULT}",
    )
    add(
        "--no-leader-elect",
        action="store_true",
        help="use no lease; be sure that only one such process runs",
    )
    add(
        "--lease-seconds",
        type=whole_number(LEASE_SECONDS_MIN, LEASE_SECONDS_MAX),
        default=LeaderTiming().lease_seconds,
        metavar="N",
        help="so long others wait for a leader that does not answer; default:"
        f" {LeaderTiming().lease_seconds}",
    )
    add(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address for probes and metrics; default: 127.0.0.1",
    )
    add("--port", type=port, default=PORT_DEFAULT, help=f"0: any free one; default {PORT_DEFAULT}")
    add("--log-format", choices=["text", "json"], default="text")
    add("-v", dest="verbosity", type=int, default=0, metavar="LEVEL", help="0 to 4; default: 0")
    _add_trigger(parser)
    add_pace(parser)


def _add_installing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("installing").add_argument
    add(
        "--install",
        action="store_true",
        help="apply the custom resource definitions of migration.k8s.io, wait until they are"
        " served, and end; upgrades those of kube-storage-version-migrator in place, deletes"
        " nothing, may be repeated",
    )
    add(
        "--dry-run",
        action="store_true",
        help="with --install: print the definitions and ask nobody",
    )


def _add_trigger(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("trigger").add_argument
    add(
        "--source",
        choices=[each.value for each in TriggerSource],
        default=TriggerSource.AUTO.value,
        help="by what it knows how servers write. storageversion: by what each server reports;"
        " discovery-ha: by the discovery of each server; discovery: by that of one server; auto:"
        " for each resource the best that there is; default: auto",
    )
    add(
        "--poll-seconds",
        type=_seconds,
        default=POLL_SECONDS,
        metavar="SECONDS",
        help="the polling period, where nothing can be watched, and for which a heartbeat is"
        f" believed; default: {POLL_SECONDS:g}",
    )
    add(
        "--census-store",
        default="",
        metavar="ADDRESS",
        help="only for servers that vote with --guarantee loose: the store itself, of which"
        " censuses are taken; without one nothing is proven there, and no hash is taken back",
    )
    add_etcd_files(parser)
    add(
        "--local-server",
        action="store_true",
        help="with discovery-ha: one such process stands beside each server, connects to it alone,"
        " and reports what it shows, under the identity with which it contends for the lease;"
        " default: the leader asks every server",
    )


def add_pace(parser: argparse.ArgumentParser) -> None:
    patch, migrator = PatchOptions(), MigratorOptions()
    add = parser.add_argument_group("migrator").add_argument
    add(
        "--parallel",
        type=whole_number(1, PARALLEL_MAX),
        default=migrator.resources_at_once,
        metavar="N",
        help=f"resources migrated side by side; default: {migrator.resources_at_once}",
    )
    add(
        "--in-flight-max",
        type=whole_number(1, IN_FLIGHT_MAX),
        default=patch.in_flight_max,
        metavar="N",
        help="requests for single objects of one resource at once; fewer when the server slows;"
        f" default: {patch.in_flight_max}",
    )
    add(
        "--rate",
        type=_seconds,
        metavar="N",
        help="objects a second and resource, at most; default: as many as the server takes",
    )
    add(
        "--page-objects",
        type=whole_number(1, migrator.engine.page_limit_max),
        metavar="N",
        help="objects of a page, behind each of which the position is saved; default: as many as"
        " take about a second",
    )


def run(arguments: argparse.Namespace) -> int:
    set_up_logging(arguments.log_format, arguments.verbosity)
    if arguments.dry_run and not arguments.install:
        return _say("--dry-run: only with --install", EXIT_USAGE)
    if arguments.dry_run:
        print(dump_documents(DEFINITIONS.values()), end="")
        return 0
    try:
        host = socket.gethostname()
        identity = unique_identity(f"{host}_{os.getpid()}", Runtime.system().ids)
        options = _part_options(arguments, identity)
        config = find_cluster(arguments)
        if arguments.install:
            return run_async(_install(config))
        return run_async(
            _serve(
                config,
                options,
                _process_options(arguments, identity, host=host),
                census_store=with_etcd_files(arguments.census_store, arguments),
            )
        )
    except (ConfigInvalid, OpenRefused, ValueError) as error:
        return _say(error, EXIT_USAGE)
    except OSError as error:
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = " (another process listens there; choose a free port with --port 0)"
        return _say(f"{error}{hint}", EXIT_REFUSED)
    except Forbidden as error:
        hint = "ask for the rights in deploy/kubernetes/rbac.yaml"
        if arguments.install:
            hint = "--install needs get, create and update: run it as an administrator"
        return _say(f"{error}; {hint}", EXIT_REFUSED)
    except (ClientError, StatusError, InstallFailed, NotPossible) as error:
        return _say(Hints.of(arguments).complete(str(error)), EXIT_REFUSED)


async def _install(config: ClientConfig) -> int:
    async with ApiClient.connect(config, runtime=Runtime.system()) as client:
        for each in await install(client):
            what = {
                InstallOutcome.BUILT_IN: "built in, nothing to install",
                InstallOutcome.CREATED: "created",
                InstallOutcome.UPDATED: "updated in place, its objects stay",
                InstallOutcome.UNCHANGED: "up to date already",
            }[each.outcome]
            print(f"{each.name}: {what}")
    return 0


async def _serve(
    config: ClientConfig, parts: PartOptions, options: ProcessOptions, *, census_store: str
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    is_started = False

    def end() -> None:
        stop.set()
        if not is_started:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    runtime = Runtime.system(fatal=end_process)
    patch = parts.migrator.engine.patch
    limits = connections_for(patch, resources=parts.migrator.resources_at_once)
    client = ApiClient.connect(config, runtime=runtime)
    bulk = ApiClient.connect(config, runtime=runtime, connections=limits)
    census = CensusTaker(census_store, runtime) if census_store else None
    tasks = runtime.tasks("census")
    process = ControllersProcess(
        client, options, _maker(parts, client, bulk, _connector(config, runtime), census)
    )
    try:
        logger.info("connecting to %s (%s)", config.server, config.source)
        await process.start()
        is_started = True
        if census is not None:
            tasks.spawn("census", census.run())
        print(  # the line that scripts wait for
            f"ready: {', '.join(process.names)} on {config.server},"
            f" probes http://{_host(options.bind)}:{process.port}/healthz",
            flush=True,
        )
        await stop.wait()
        logger.info("stopping")
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        task.uncancel()
    finally:
        await tasks.close()
        await _close(process, client, bulk)
    logger.info("stopped")
    return 0


async def _close(process: ControllersProcess, *clients: ApiClient) -> None:
    """End everything in time, even if the server does not answer."""
    try:
        async with clients[0].runtime.clock.timeout(STOP_SECONDS_MAX):
            await process.stop()
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.close())
    except TimeoutError:
        logger.warning("the connections to %s do not close", clients[0].server)


def _maker(
    parts: PartOptions,
    client: ApiClient,
    bulk: ApiClient,
    connect_to: Callable[[str], ApiClient],
    census: CensusTaker | None,
) -> Callable[[EventRecorder, ControllerMetrics], list[Part]]:
    def make(recorder: EventRecorder, metrics: ControllerMetrics) -> list[Part]:
        return make_parts(
            parts,
            client=client,
            bulk=bulk,
            connect_to=connect_to,
            recorder=recorder,
            metrics=metrics,
            census=census,
        )

    return make


def _connector(config: ClientConfig, runtime: Runtime) -> Callable[[str], ApiClient]:
    """A way to each server of the cluster, with the same credentials."""
    scheme = "https" if config.is_https else "http"

    def connect(address: str) -> ApiClient:
        return ApiClient.connect(
            dataclasses.replace(config, server=f"{scheme}://{address}"), runtime=runtime
        )

    return connect


def _part_options(arguments: argparse.Namespace, identity: str) -> PartOptions:
    """What was asked for. Raises ValueError for what cannot work together."""
    rules = Settings(poll_seconds=arguments.poll_seconds, hold_seconds=arguments.poll_seconds)
    if arguments.local_server and arguments.source != TriggerSource.DISCOVERY_HA:
        raise ValueError("--local-server: only with --source discovery-ha")
    return PartOptions(
        names=(arguments.only,) if arguments.only else PART_NAMES,
        trigger=TriggerOptions(
            source=TriggerSource(arguments.source),
            rules=rules,
            is_local=arguments.local_server,
            # KEP-2343 4.28: the id with which the process contends for its Lease
            reporter_id=identity if arguments.local_server else "",
        ),
        migrator=MigratorOptions(
            engine=engine_options(arguments), resources_at_once=arguments.parallel
        ),
    )


def engine_options(arguments: argparse.Namespace) -> EngineOptions:
    """What was asked for by the arguments of `add_pace`."""
    count = arguments.page_objects
    patch = PatchOptions(in_flight_max=arguments.in_flight_max, objects_per_second=arguments.rate)
    if count is None:
        return EngineOptions(patch=patch)
    return EngineOptions(
        page_limit_first=count,
        page_limit_max=count,
        position_seconds=0.0,
        patch=dataclasses.replace(patch, page_objects=count),
    )


def _process_options(arguments: argparse.Namespace, identity: str, *, host: str) -> ProcessOptions:
    return ProcessOptions(
        namespace=arguments.namespace,
        is_elected=not arguments.no_leader_elect,
        identity=identity,
        is_identity_unique=True,
        reporter_id=identity if arguments.local_server else "",
        host=host,
        bind=arguments.bind,
        port=arguments.port,
        timing=LeaderTiming.of_lease(arguments.lease_seconds),
    )


def _host(bind: str) -> str:
    if bind in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{bind}]" if ":" in bind else bind


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number
