"""`restow serve`: run one API server until SIGTERM or SIGINT."""

import argparse
import errno
import math
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from restow.aio.extras import require_extra
from restow.apiserver.feature_gates import GATES, parse_feature_gates
from restow.apiserver.options import (
    COMPACTION_SECONDS_DEFAULT,
    EVENT_TTL_SECONDS_DEFAULT,
    LEASE_RENEW_SECONDS_DEFAULT,
    LEASE_SECONDS_DEFAULT,
    LIVEZ_GRACE_SECONDS_DEFAULT,
    LOOSE_BOUND_SECONDS_DEFAULT,
    PORT_DEFAULT,
    STORAGE_SCAN_SECONDS_DEFAULT,
    CoordinationOptions,
    ServeOptions,
)
from restow.apiserver.runtime_config import parse_runtime_config
from restow.cli.argument_types import directory, duration, port, whole_number
from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.cli.hardening import harden
from restow.cli.logging_setup import set_up_logging
from restow.cli.output import fail
from restow.cli.serve_audit import add_audit, audit_options
from restow.cli.serve_authentication import add_authentication, authentication_options
from restow.cli.serve_limits import add_limits, limit_options
from restow.cli.serve_service_accounts import add_service_accounts, service_account_options
from restow.cli.serve_tls import add_tls, tls_options
from restow.storage.drivers import ADDRESS_FORMS
from restow.storage.errors import OpenRefused

_fail = partial(fail, "serve")
EXIT_REFUSED = 1
EXIT_USAGE = 2

WORKERS_MAX = 64
FRONT_FDS_MAX = 256

EPILOG = """\
Missing keys and certificates are created once in DIR/pki, the store in DIR/store.db, and a
kubeconfig for kubectl in DIR/kubeconfig:

  restow serve --data-dir .restow
  kubectl --kubeconfig .restow/kubeconfig get namespaces

A server on another machine needs a copy of DIR/pki, and a store that both can reach.

Exit codes: 0 stopped by a signal, 1 the server could not be started, 2 wrong usage.
"""


SHARING = """\
A server opens the front port when it is ready, and closes it first when it stops; requests of open
connections are completed. `restow up` runs several servers in this way.
"""


COORDINATION = """\
Servers that share a store agree on the version in which each resource is written. With "report"
each server reports the version that it writes, and a migration starts when all are equal; with
"vote" all servers write the version that was selected. All servers of a store need the same flags.
"""


AGGREGATED = """\
A server that serves API groups of its own. The main servers proxy requests to it, with the identity
of the user. With the same --store as theirs it participates in their agreement; with a store of its
own it reports its versions to them. It registers itself, so this command is sufficient:

  restow serve --aggregated --main-kubeconfig .restow/kubeconfig --kinds kinds.yaml --port 0 \\
    --data-dir .aggregated
"""
_AGGREGATED_FLAGS = (
    "main_kubeconfig",
    "kinds",
    "component",
    "service_namespace",
    "service_name",
    "advertise_address",
    "no_self_registration",
    "forget_store",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data-dir",
        type=directory,
        default=Path(".restow"),
        metavar="DIR",
        help="default: .restow",
    )
    add("--store", default="", metavar="ADDRESS", help=f"{ADDRESS_FORMS}; default: in DIR")
    add(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; default: 127.0.0.1",
    )
    add(
        "--port", type=port, default=PORT_DEFAULT, help=f"0: any free port; default: {PORT_DEFAULT}"
    )
    _add_sharing(parser)
    add(
        "--release",
        type=Path,
        metavar="FILE",
        help="release to serve: a file, or a shipped name such as x+1; default: all built-in kinds",
    )
    add("--tls-cert-file", type=Path, metavar="FILE")
    add("--tls-private-key-file", type=Path, metavar="FILE")
    add(
        "--client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA certificates that verify client certificates",
    )
    add("--token-auth-file", type=Path, metavar="FILE", help='token,user,uid,"group,group" lines')
    add(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="an EncryptionConfiguration with the keys that encrypt stored objects; reloaded when"
        " it changes",
    )
    add(
        "--compaction-interval",
        type=duration,
        default=COMPACTION_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="minimum time that history for lists and watches is kept; default: 5m",
    )
    add(
        "--storage-scan-interval",
        type=duration,
        default=STORAGE_SCAN_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="how often the leader compares the StorageStates with the raw store, in the"
        " background; 0: never; default: 1h",
    )
    add(
        "--event-ttl",
        type=duration,
        default=EVENT_TTL_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="how long Events are kept; default: 1h",
    )
    add(
        "--livez-grace-period",
        type=duration,
        default=LIVEZ_GRACE_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="how long /livez ignores an incomplete startup; default: 5m",
    )
    add("--log-format", choices=["text", "json"], default="text")
    add("-v", dest="verbosity", type=int, default=0, metavar="LEVEL", help="0 to 4; default: 0")
    add(
        "--feature-gates",
        action="append",
        default=[],
        metavar="GATE=true|false,...",
        help="; ".join(f"{gate.name}: {gate.about}" for gate in GATES)
        + "; all are on by default; may be repeated",
    )
    add(
        "--runtime-config",
        action="append",
        default=[],
        metavar="API=true|false,...",
        help="enables and disables built-in API versions: api/all, api/ga, api/beta, api/alpha, v1,"
        " GROUP/VERSION or GROUP/VERSION/RESOURCE; all are enabled by default; may be repeated",
    )
    add_tls(parser)
    add_etcd_files(parser)
    add_limits(parser)
    add_audit(parser)
    add_authentication(parser)
    add_service_accounts(parser)
    _add_coordination(parser)
    _add_aggregated(parser)


def _add_sharing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("several servers on one port", SHARING).add_argument
    add(
        "--workers",
        type=whole_number(1, WORKERS_MAX),
        default=1,
        metavar="N",
        help="N processes on --port, each with its own identity and its own port; default: 1",
    )
    add(
        "--front-port",
        type=port,
        metavar="PORT",
        help="a second port, shared with other servers on this machine",
    )
    add(
        "--front-bind",
        default="",
        metavar="ADDRESS",
        help="address of the front port; default: --bind",
    )
    add(
        "--front-fds",
        type=_front_fds,
        default=(),
        metavar="N,N,...",
        help="listening sockets of the front port that a parent has opened, this server's first;"
        " the parent keeps them open, so that no queued connection is lost",
    )
    add(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig to write; required if `restow up` runs in DIR; default: DIR/kubeconfig",
    )


def _add_coordination(parser: argparse.ArgumentParser) -> None:
    # Options not given are None, so that one without effect is rejected, not ignored.
    add = parser.add_argument_group("coordination", COORDINATION).add_argument
    add(
        "--coordination",
        choices=["report", "vote"],
        default="report",
        help="report: each server writes its own version and reports it; vote: all servers write"
        " the version that was selected by vote; default: report",
    )
    add(
        "--guarantee",
        choices=["strict", "loose"],
        help="with vote. strict: no write commits in a version that is not selected; loose: writes"
        " are not checked, a server follows within --loose-bound-seconds; default: strict",
    )
    add(
        "--loose-bound-seconds",
        type=_number,
        metavar="SECONDS",
        help="with loose: a server that could not confirm the selected version for this long stops"
        f" writing; default: {LOOSE_BOUND_SECONDS_DEFAULT:g}",
    )
    add(
        "--vote-bootstrap",
        choices=["wait", "force"],
        help="with vote, if no version is selected yet. wait: until all running servers vote;"
        " force: select at once, although others may write another version; default: wait",
    )
    add(
        "--change-coordination-mode",
        action="store_true",
        help="start although the running servers use another coordination mode; no version is"
        " agreed on until the last of them has stopped",
    )
    add(
        "--identity-lease-duration-seconds",
        type=_whole_number,
        default=LEASE_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="a server that did not renew its lease for this long counts as expired; it refuses"
        " writes from 80 %% of this time; default:"
        f" {LEASE_SECONDS_DEFAULT}",
    )
    add(
        "--identity-lease-renew-interval-seconds",
        type=_number,
        default=LEASE_RENEW_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="renew interval of the lease: less than half of its duration; default:"
        f" {LEASE_RENEW_SECONDS_DEFAULT:g}",
    )


def _add_aggregated(parser: argparse.ArgumentParser) -> None:
    # Options not given are None, and rejected without --aggregated.
    add = parser.add_argument_group("an aggregated server", AGGREGATED).add_argument
    add("--aggregated", action="store_true", help="serve only --kinds, behind the main servers")
    add(
        "--main-kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the main servers, with permission to register this server",
    )
    add(
        "--kinds",
        type=Path,
        metavar="FILE|DIR",
        help="CRDs of the resources to serve; they are read, not stored",
    )
    add(
        "--component",
        metavar="NAME",
        help="component name of the server; default: aggregated-GROUP",
    )
    add(
        "--service-namespace", metavar="NAME", help="namespace of its Service; default: kube-system"
    )
    add("--service-name", metavar="NAME", help="name of its Service; default: as --component")
    add(
        "--advertise-address",
        metavar="IP",
        help="address at which the main servers reach it; default: --bind",
    )
    add(
        "--no-self-registration",
        action="store_true",
        help="do not create Service, Endpoints and APIServices; manage them yourself",
    )
    add(
        "--forget-store",
        action="append",
        default=[],
        metavar="ID",
        help="remove the entries that servers of this deleted store reported for these kinds; while"
        " they exist, a new store is rejected, with an error that contains the ID; use it only"
        " if no server runs on that store; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    harden()
    set_up_logging(arguments.log_format, arguments.verbosity)
    if (arguments.tls_cert_file is None) != (arguments.tls_private_key_file is None):
        return _fail(
            "--tls-cert-file and --tls-private-key-file must be given together", EXIT_USAGE
        )
    try:
        options = _options(arguments)
        _check_aggregated(arguments)
    except ValueError as error:
        return _fail(error, EXIT_USAGE)
    if options.store.startswith(("etcd:", "etcds:")):
        require_extra("etcd")
    if not arguments.aggregated and (refusal := _kubeconfig_in_use(options)):
        return _fail(refusal, EXIT_REFUSED)
    try:
        if arguments.workers > 1:
            return _run_workers(arguments, options)
    except ValueError as error:
        return _fail(error, EXIT_USAGE)
    from restow.apiserver.serve import serve
    from restow.apiserver.startup_errors import REFUSALS

    try:
        uvloop.run(_aggregated(arguments, options) if arguments.aggregated else serve(options))
    except REFUSALS as error:
        hint = ""
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            hint = " (another process listens there; use --port 0 for any free port)"
        from restow.cli.hints import Hints

        hints = Hints(data_dir=options.data_dir)
        text = hints.failure(error, options.store or f"sqlite:{options.data_dir / 'store.db'}")
        return _fail(f"{text}{hint}", EXIT_REFUSED)
    return 0


def _kubeconfig_in_use(options: ServeOptions) -> str:
    """Why this server must not write its kubeconfig: it belongs to a running `restow up`."""
    from restow.localcluster.layout import Layout
    from restow.localcluster.lock import supervisor_of

    path = options.kubeconfig or Layout(options.data_dir).kubeconfig
    layout = Layout(path.parent)
    pid = supervisor_of(layout) if path == layout.kubeconfig else None
    if pid is None:
        return ""
    return (
        f"`restow up` runs a cluster in {layout.data_dir} (process {pid}), and this server would"
        f" overwrite its kubeconfig: use that cluster with {layout.kubeconfig}, or choose another"
        " --data-dir; to add a server to that cluster, give it its own kubeconfig with --kubeconfig"
        " FILE"
    )


def _run_workers(arguments: argparse.Namespace, options: ServeOptions) -> int:
    """Run several processes instead of one. Raises ValueError for conflicting options."""
    import asyncio

    from restow.aio import Runtime
    from restow.apiserver.pki import PkiError, PkiOptions
    from restow.localcluster.errors import ClusterError
    from restow.localcluster.workers import WorkerOptions, run_workers

    if options.store.startswith("memory"):
        raise ValueError(
            "--workers cannot be used with --store memory: each worker would have its own store"
        )
    if options.front_port is not None or options.front_fds:
        raise ValueError(
            "--workers cannot be used with --front-port or --front-fds: workers share --port"
        )
    kubeconfig = options.kubeconfig or options.data_dir / "kubeconfig"
    requested = WorkerOptions(
        count=arguments.workers,
        bind=options.bind,
        port=options.port,
        data_dir=options.data_dir,
        store=options.store_address,
        kubeconfig=kubeconfig,
        pki=PkiOptions(
            bind=options.bind,
            tls_cert_file=options.tls_cert_file,
            tls_private_key_file=options.tls_private_key_file,
            client_ca_file=options.client_ca_file,
            service_account_signing_key_file=options.service_account_signing_key_file,
        ),
        words=arguments.words,
        needs_certificate=options.tls.client_auth == "required",
    )

    def print_ready(url: str) -> None:
        print(f"ready: {url} kubeconfig {kubeconfig}", flush=True)

    try:
        asyncio.run(run_workers(requested, Runtime.system(), print_ready))
    except (ClusterError, PkiError, OSError) as error:
        return _fail(error, EXIT_REFUSED)
    return 0


def _options(arguments: argparse.Namespace) -> ServeOptions:
    """Build the options. Raises ValueError for options that exclude each other."""
    return ServeOptions(
        data_dir=arguments.data_dir,
        store=_store(arguments),
        bind=arguments.bind,
        port=arguments.port,
        front_port=arguments.front_port,
        front_bind=arguments.front_bind,
        front_fds=arguments.front_fds,
        kubeconfig=arguments.kubeconfig,
        release=arguments.release,
        tls_cert_file=arguments.tls_cert_file,
        tls_private_key_file=arguments.tls_private_key_file,
        client_ca_file=arguments.client_ca_file,
        token_auth_file=arguments.token_auth_file,
        service_account_signing_key_file=arguments.service_account_signing_key_file,
        encryption_provider_config=arguments.encryption_provider_config,
        compaction_interval_seconds=arguments.compaction_interval,
        storage_scan_interval_seconds=arguments.storage_scan_interval,
        event_ttl_seconds=arguments.event_ttl,
        livez_grace_seconds=arguments.livez_grace_period,
        feature_gates=parse_feature_gates(arguments.feature_gates),
        runtime_config=parse_runtime_config(arguments.runtime_config),
        identity_lease_duration_seconds=arguments.identity_lease_duration_seconds,
        identity_lease_renew_interval_seconds=arguments.identity_lease_renew_interval_seconds,
        coordination=_coordination(arguments),
        limits=limit_options(arguments),
        audit=audit_options(arguments),
        service_accounts=service_account_options(arguments),
        authentication=authentication_options(arguments),
        tls=tls_options(arguments),
    )


def _store(arguments: argparse.Namespace) -> str:
    try:
        return with_etcd_files(arguments.store, arguments)
    except OpenRefused as error:
        raise ValueError(str(error)) from error


def _check_aggregated(arguments: argparse.Namespace) -> None:
    """Raise ValueError for flags that need, or exclude, --aggregated."""
    given = [f"--{name.replace('_', '-')}" for name in _AGGREGATED_FLAGS if vars(arguments)[name]]
    if not arguments.aggregated:
        if given:
            raise ValueError(f"{', '.join(given)}: requires --aggregated")
        return
    for flag in ("--main-kubeconfig", "--kinds"):
        if flag not in given:
            raise ValueError(f"--aggregated needs {flag}")
    if arguments.workers > 1:
        raise ValueError("--workers cannot be used with --aggregated; start several servers")
    if arguments.runtime_config:
        raise ValueError(
            "--runtime-config cannot be used with --aggregated, which serves the CRDs of --kinds"
        )


async def _aggregated(arguments: argparse.Namespace, options: ServeOptions) -> None:
    """Serve the CRDs of files. Raises ValueError for options that exclude each other."""
    from restow.apiserver.aggregated_kinds import load_kinds
    from restow.apiserver.aggregated_options import NAMESPACE_DEFAULT, AggregatedOptions
    from restow.apiserver.serve import serve_aggregated

    requested = AggregatedOptions(
        serve=options,
        main_kubeconfig=arguments.main_kubeconfig,
        component=arguments.component or "",
        release_name=arguments.kinds.stem,
        namespace=arguments.service_namespace or NAMESPACE_DEFAULT,
        service=arguments.service_name or "",
        advertise_address=arguments.advertise_address or "",
        registers_itself=not arguments.no_self_registration,
        forget_stores=tuple(arguments.forget_store),
    )
    await serve_aggregated(requested, kinds=load_kinds(arguments.kinds))


def _coordination(arguments: argparse.Namespace) -> CoordinationOptions:
    given: dict[str, Any] = {
        name: value
        for name in ("guarantee", "loose_bound_seconds", "vote_bootstrap")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.coordination == "report" and given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"{flags}: requires --coordination vote")
    if "loose_bound_seconds" in given and given.get("guarantee") != "loose":
        raise ValueError("--loose-bound-seconds requires --guarantee loose")
    return CoordinationOptions(
        mode=arguments.coordination, change_mode=arguments.change_coordination_mode, **given
    )


def _front_fds(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) > FRONT_FDS_MAX or not all(each.isascii() and each.isdecimal() for each in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of file descriptors such as 3,4")
    return tuple(int(each[:9]) for each in parts)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return int(text)
