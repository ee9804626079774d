"""`restow controllers`: run trigger and migrator against any Kubernetes cluster, until a signal.

With `--install` it applies the CRDs that they need. The work is in `restow.migration`; this module
has the arguments, signals and output.
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

_fail = partial(fail, "controllers")
EXIT_REFUSED = 1
EXIT_USAGE = 2
PARALLEL_MAX = 256
IN_FLIGHT_MAX = 1_000
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 3, 3_600

EPILOG = """\
The trigger watches the version in which servers write each resource, and creates a migration when
objects may be stored in another one. The migrator runs such migrations, including those of other
clients, and verifies that no object is in an old version. Both only use the API.

  restow controllers --install            once, with permission to create CRDs
  restow controllers                      several can run: leader election makes one active
  restow controllers --install --dry-run  prints what --install would apply

On a restow server both CRDs are built in, and nothing needs to be installed. deploy/ has manifests
for a cluster, with the minimal RBAC rules, and a systemd unit.

When the controllers run, a line that begins with `ready` is printed. /healthz, /readyz and /metrics
are served over plain HTTP on --bind and --port. SIGTERM and Ctrl-C stop the process within two
seconds; running migrations resume from their checkpoint, here or in another process.

Exit codes: 0 stopped by a signal; 1 the cluster cannot be reached, or lacks something; 2 wrong
usage, or an invalid kubeconfig.
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
        help=f"namespace of the leases for leader election; default: {NAMESPACE_DEFAULT}",
    )
    add(
        "--no-leader-elect",
        action="store_true",
        help="run without a lease; make sure that only one such process runs",
    )
    add(
        "--lease-seconds",
        type=whole_number(LEASE_SECONDS_MIN, LEASE_SECONDS_MAX),
        default=LeaderTiming().lease_seconds,
        metavar="N",
        help="lease duration: how long standbys wait before they take over; default:"
        f" {LeaderTiming().lease_seconds}",
    )
    add(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address for probes and metrics; default: 127.0.0.1",
    )
    add("--port", type=port, default=PORT_DEFAULT, help=f"0: any free port; default {PORT_DEFAULT}")
    add("--log-format", choices=["text", "json"], default="text")
    add(
        "-v",
        dest="verbosity",
        type=int,
        default=0,
        metavar="LEVEL",
        help="log level 0-4; default: 0",
    )
    _add_trigger(parser)
    add_pace(parser)


def _add_installing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("installing").add_argument
    add(
        "--install",
        action="store_true",
        help="apply the CRDs of migration.k8s.io, wait until they are established, and exit;"
        " upgrades those of kube-storage-version-migrator in place, deletes nothing, can be"
        " repeated",
    )
    add(
        "--dry-run",
        action="store_true",
        help="with --install: print the CRDs and contact no cluster",
    )


def _add_trigger(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("trigger").add_argument
    add(
        "--source",
        choices=[each.value for each in TriggerSource],
        default=TriggerSource.AUTO.value,
        help="how to find the version that servers write. storageversion: from what each server"
        " reports; discovery-ha: from the discovery document of each server; discovery: from that"
        " of one server; auto: the most accurate source for each resource; default: auto",
    )
    add(
        "--poll-seconds",
        type=_seconds,
        default=POLL_SECONDS,
        metavar="SECONDS",
        help="polling period where nothing can be watched, and how long a heartbeat stays valid;"
        f" default: {POLL_SECONDS:g}",
    )
    add(
        "--census-store",
        default="",
        metavar="ADDRESS",
        help="only for servers that vote with --guarantee loose: the store, of which a census is"
        " taken; without it no migration is verified there, and no persisted hash is removed",
    )
    add_etcd_files(parser)
    add(
        "--local-server",
        action="store_true",
        help="with discovery-ha: run one such process beside each server; it connects to that"
        " server only, and reports its discovery document under the identity with which it contends"
        " for the lease; default: the leader queries every server",
    )


def add_pace(parser: argparse.ArgumentParser) -> None:
    patch, migrator = PatchOptions(), MigratorOptions()
    add = parser.add_argument_group("migrator").add_argument
    add(
        "--parallel",
        type=whole_number(1, PARALLEL_MAX),
        default=migrator.resources_at_once,
        metavar="N",
        help=f"resources migrated in parallel; default: {migrator.resources_at_once}",
    )
    add(
        "--in-flight-max",
        type=whole_number(1, IN_FLIGHT_MAX),
        default=patch.in_flight_max,
        metavar="N",
        help="in-flight requests per resource; fewer when the server becomes slow;"
        f" default: {patch.in_flight_max}",
    )
    add(
        "--rate",
        type=_seconds,
        metavar="N",
        help="limit of objects per second and resource; default: limited only by the server",
    )
    add(
        "--page-objects",
        type=whole_number(1, migrator.engine.page_limit_max),
        metavar="N",
        help="objects per page; progress is checkpointed after each page; default: as many as take"
        " about one second",
    )


def run(arguments: argparse.Namespace) -> int:
    set_up_logging(arguments.log_format, arguments.verbosity)
    if arguments.dry_run and not arguments.install:
        return _fail("--dry-run requires --install", EXIT_USAGE)
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
        return _fail(error, EXIT_USAGE)
    except OSError as error:
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = " (another process listens there; use --port 0 for any free port)"
        return _fail(f"{error}{hint}", EXIT_REFUSED)
    except Forbidden as error:
        hint = "grant the permissions in deploy/kubernetes/rbac.yaml"
        if arguments.install:
            hint = "--install needs get, create and update on CRDs: run it as an administrator"
        return _fail(f"{error}; {hint}", EXIT_REFUSED)
    except (ClientError, StatusError, InstallFailed, NotPossible) as error:
        return _fail(Hints.of(arguments).complete(str(error)), EXIT_REFUSED)


async def _install(config: ClientConfig) -> int:
    async with ApiClient.connect(config, runtime=Runtime.system()) as client:
        for each in await install(client):
            what = {
                InstallOutcome.BUILT_IN: "built in, nothing to install",
                InstallOutcome.CREATED: "created",
                InstallOutcome.UPDATED: "updated in place, its objects are kept",
                InstallOutcome.UNCHANGED: "already up to date",
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
        print(  # scripts wait for this line
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
    """Stop within a limit of time, even if the server does not respond."""
    try:
        async with clients[0].runtime.clock.timeout(STOP_SECONDS_MAX):
            await process.stop()
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.close())
    except TimeoutError:
        logger.warning("connections to %s did not close in time", clients[0].server)


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
    """Return a function that connects to one server of the cluster, with the same credentials."""
    scheme = "https" if config.is_https else "http"

    def connect(address: str) -> ApiClient:
        return ApiClient.connect(
            dataclasses.replace(config, server=f"{scheme}://{address}"), runtime=runtime
        )

    return connect


def _part_options(arguments: argparse.Namespace, identity: str) -> PartOptions:
    """Build the options. Raises ValueError for options that exclude each other."""
    rules = Settings(poll_seconds=arguments.poll_seconds, hold_seconds=arguments.poll_seconds)
    if arguments.local_server and arguments.source != TriggerSource.DISCOVERY_HA:
        raise ValueError("--local-server requires --source discovery-ha")
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
    """Build the options from the arguments of `add_pace`."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
