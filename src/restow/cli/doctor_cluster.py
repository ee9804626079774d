"""Checks of `restow doctor` through the API: each server by itself, and their agreement.

Servers are found by their identity leases or, where these have no address, by the endpoints of the
service `default/kubernetes`. Each is queried directly, so that a healthy one cannot hide another.

Not here: rules about files and stores; certificates are checked in `doctor_files`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from restow.aio import Runtime
from restow.apimachinery.certificates import read_der
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.names import (
    ADDRESS_ANNOTATION,
    ENCRYPTION_PROBLEM_ANNOTATION,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    LEASE_NAMESPACE,
)
from restow.apis.resources import LEASES
from restow.cli.doctor_files import canonical_host, judge_certificate, judge_names
from restow.cli.doctor_findings import Finding, error, ok, some, unseen, warning
from restow.client import (
    ApiClient,
    ClientConfig,
    ClientError,
    ConnectionLimits,
    HttpTransport,
    ListOptions,
    Object,
    key_of,
    metadata_of,
)
from restow.client.connections import Connections
from restow.client.lease_record import LeaseRecord
from restow.client.retry_policy import NO_RETRY, RetryPolicy
from restow.client.transport import ClientRequest
from restow.migration import migration_objects
from restow.migration.migration_values import MigrationPhase
from restow.migration.overview_reader import migrations_seen
from restow.migration.overview_values import MigrationRow
from restow.migration.preflight import ClusterView, ResourceView, read_cluster
from restow.migration.preflight.rules import REFUSED_FILE_ADVICE
from restow.migration.preflight.stored_rules import stored_findings
from restow.migration.preflight.targets import running_target
from restow.migration.preflight.values import UNKNOWN
from restow.migration.readability import Unread, find_unread
from restow.migration.times import read_time

ENDPOINTS: Final = GroupVersionResource("", "v1", "endpoints")
ASK_SECONDS_MAX: Final = 10.0
RETRY: Final = RetryPolicy(attempts_max=3, wait_seconds_max=2.0)
"""For the first requests; after a failure no request is retried, to get results in seconds."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
SERVERS_MAX: Final = 100
SKEW_SECONDS_WARNED: Final = 5.0
"""Clock skew above this is a warning. A Date header can be two seconds late even without skew."""
SKEW_SECONDS_ERROR: Final = 60.0
LEASE_SECONDS_DEFAULT: Final = 3600
FAILED_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One server: the content of its lease, and its responses."""

    name: str
    address: str = ""
    renewed_seconds: float | None = None
    """Seconds since its lease was renewed, by the local clock."""
    lease_seconds: int = LEASE_SECONDS_DEFAULT
    component: str = IDENTITY_LABEL_VALUE
    """The kind of server; aggregated servers are queried only by the main servers."""
    encryption_problem: str = ""
    """Why it rejects its encryption configuration file; empty if it does not."""
    problem: str = ""
    """Why it could not be queried."""
    skew_seconds: float | None = None
    """How far its clock is ahead of the local clock."""
    failed_checks: tuple[str, ...] = ()
    certificate: bytes = b""
    """Its serving certificate, in DER form."""
    server_name: str = ""
    """The name that clients expect in it (tls-server-name), if not the host of its address."""


async def examine(config: ClientConfig, runtime: Runtime, *, start: str) -> list[Finding]:
    """Run all checks of a cluster; `start` is the advice if it does not respond."""
    async with ApiClient.connect(config, runtime=runtime, retry=RETRY) as first:
        client: ApiClient = first
        try:
            version = await client.version()
        except (ClientError, StatusError) as problem:
            return [error("server", str(problem), start)]
        findings = [ok("server", f"{client.server} responds: {version.get('gitVersion')}")]
        try:
            servers = await _servers(client)
        except (ClientError, StatusError) as problem:
            findings.append(unseen("servers", f"identity leases could not be read: {problem}"))
            servers = []
            client = client.with_retry(NO_RETRY)
        main = [each for each in servers if each.component == IDENTITY_LABEL_VALUE]
        findings += await _examine_servers(client, main, config)
        findings += judge_encryption(servers)
        findings += judge_aggregated([each for each in servers if each not in main])
        try:
            view = await read_cluster(client)
            findings += judge_agreement(view, {each.name for each in servers})
            findings += judge_migrations(await _migrations(client))
            served = (await client.discover()).preferred()
            listed = [each for each in served if "list" in each.verbs]
            findings += judge_objects(await find_unread(client, listed), count=len(listed))
        except (ClientError, StatusError) as problem:
            findings.append(unseen("agreement", f"the cluster could not be read: {problem}"))
    return findings


async def _examine_servers(
    client: ApiClient, servers: list[ServerFacts], config: ClientConfig
) -> list[Finding]:
    """Query each server directly."""
    findings: list[Finding] = []
    if servers and not config.is_verified:
        # The address comes from a lease; do not send credentials there without verification.
        text = "servers are queried one by one only if the kubeconfig verifies certificates"
        findings.append(unseen("servers", text, "add certificate-authority to the kubeconfig"))
        servers = []
    if len(servers) > SERVERS_MAX:
        findings.append(unseen("servers", f"only {SERVERS_MAX} of {len(servers)} were checked"))
    wanted = servers or [ServerFacts(name=client.server, address=config.authority)]
    asked = [await _ask(each, config, client.runtime) for each in wanted[:SERVERS_MAX]]
    return findings + list(judge_servers(asked, client.runtime.clock.wall()))


async def _servers(client: ApiClient) -> list[ServerFacts]:
    now = client.runtime.clock.wall()
    selector = ListOptions(label_selector=IDENTITY_LABEL)
    leases = client.items(LEASES, namespace=LEASE_NAMESPACE, options=selector)
    found = [_of_lease(each, now) async for each in leases]
    if any(each.address for each in found if each.component == IDENTITY_LABEL_VALUE):
        return found
    try:
        endpoints = await client.get(ENDPOINTS, "kubernetes", namespace="default")
    except NotFound:
        return found
    return [*found, *(ServerFacts(name=each, address=each) for each in _addresses(endpoints))]


def _of_lease(lease: Object, now: datetime) -> ServerFacts:
    record = LeaseRecord.read(lease)
    annotations = migration_objects.mapping(metadata_of(lease), "annotations")
    labels = migration_objects.mapping(metadata_of(lease), "labels")
    renewed = read_time(record.renew_time)
    return ServerFacts(
        name=key_of(lease).name,
        address=migration_objects.text(annotations, ADDRESS_ANNOTATION),
        renewed_seconds=None if renewed is None else (now - renewed).total_seconds(),
        lease_seconds=record.lease_seconds or LEASE_SECONDS_DEFAULT,
        encryption_problem=migration_objects.text(annotations, ENCRYPTION_PROBLEM_ANNOTATION),
        component=migration_objects.text(labels, IDENTITY_LABEL) or IDENTITY_LABEL_VALUE,
    )


def _addresses(endpoints: Object) -> Iterator[str]:
    subsets = endpoints.get("subsets")
    for subset in subsets if isinstance(subsets, list) else ():
        ports = [each.get("port") for each in subset.get("ports") or () if isinstance(each, dict)]
        for each in subset.get("addresses") or ():
            host = migration_objects.text(each, "ip")
            for port in ports:
                yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _ask(server: ServerFacts, config: ClientConfig, runtime: Runtime) -> ServerFacts:
    """Query one server: readiness, clock, certificate."""
    if not server.address:
        return server
    try:
        own = replace(config, server=f"https://{server.address}{config.base_path}")
        if not config.is_https:
            own = config
        certificate = await _certificate(own, runtime)
        transport = HttpTransport(own, clock=runtime.clock)
        try:
            async with (
                runtime.clock.timeout(ASK_SECONDS_MAX),
                transport.send(ClientRequest(method="GET", target="/readyz?verbose")) as response,
            ):
                body = (await response.read(bytes_max=ANSWER_BYTES_MAX)).decode(errors="replace")
                moment = runtime.clock.wall()
                return replace(
                    server,
                    certificate=certificate,
                    server_name=config.server_name or "",
                    skew_seconds=_skew(response.headers.get("date", ""), moment),
                    failed_checks=_failed_checks(response.status, body),
                )
        finally:
            await transport.close()
    except (ClientError, TimeoutError) as problem:
        return replace(server, problem=str(problem) or "no response in time")


async def _certificate(config: ClientConfig, runtime: Runtime) -> bytes:
    """Return the serving certificate; raises ConnectionFailed if it is not trusted."""
    if not config.is_https:
        return b""
    limits = ConnectionLimits(connect_seconds_max=ASK_SECONDS_MAX)
    connection = await Connections(config, runtime.clock, limits).connect()
    try:
        session = connection.writer.get_extra_info("ssl_object")
        assert isinstance(session, ssl.SSLObject | ssl.SSLSocket)
        return session.getpeercert(binary_form=True) or b""
    finally:
        connection.abort()


def _skew(date: str, now: datetime) -> float | None:
    """How far the clock of the Date header is ahead of the local clock."""
    try:
        return (parsedate_to_datetime(date) - now).total_seconds()
    except (ValueError, TypeError):
        return None


def _failed_checks(status: int, body: str) -> tuple[str, ...]:
    failed = tuple(line[3:] for line in body.splitlines() if line.startswith("[-]"))
    if status == 200:
        return failed
    return failed or (f"status {status}",)


# Rules.


def judge_servers(servers: list[ServerFacts], now: datetime) -> Iterator[Finding]:
    for each in servers:
        if _is_expired(each):
            yield warning(
                "servers",
                f"{each.name} has not renewed its lease for {each.renewed_seconds:.0f} s",
                "if it was stopped, its lease is garbage-collected; if it runs, check its log",
            )
            continue
        yield from _judge_server(each, now)


def _is_expired(server: ServerFacts) -> bool:
    seconds = server.renewed_seconds
    return seconds is not None and seconds > server.lease_seconds + SKEW_SECONDS_WARNED


def _judge_server(server: ServerFacts, now: datetime) -> Iterator[Finding]:
    name = f"{server.name} ({server.address})" if server.address else server.name
    if server.problem:
        yield error("servers", f"{name}: {server.problem}", "check that it runs and can be reached")
        return
    if not server.address:
        yield unseen("servers", f"the lease of {name} has no address")
    elif server.failed_checks:
        yield error(
            "servers", f"{name} is not ready: {some(server.failed_checks)}", "check its log"
        )
    else:
        yield ok("servers", f"{name} is ready")
    yield from _judge_clock(server, name)
    if server.certificate:
        certificate = read_der(server.certificate)
        yield judge_certificate(f"the certificate of {name}", certificate, now)
        address = canonical_host(server.address.rpartition(":")[0].strip("[]"))
        host = server.server_name or address
        if (found := judge_names(f"the certificate of {name}", certificate, host)) is not None:
            yield found


def _judge_clock(server: ServerFacts, name: str) -> Iterator[Finding]:
    check, advice = (
        "clock",
        "synchronize the clocks of both machines with a time server (chrony, ntpd)",
    )
    if server.renewed_seconds is not None and server.renewed_seconds < -SKEW_SECONDS_WARNED:
        yield warning(
            check, f"{name} renewed its lease {-server.renewed_seconds:.0f} s in the future", advice
        )
    if server.skew_seconds is None:
        if server.address:
            yield unseen(check, f"{name} sends no Date header")
        return
    skew = server.skew_seconds
    text = f"the clock of {name} is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) > SKEW_SECONDS_ERROR:
        yield error(check, text, advice)
    elif abs(skew) > SKEW_SECONDS_WARNED:
        yield warning(check, text, advice)
    else:
        yield ok(check, f"the clock of {name} is accurate to a few seconds")


def judge_encryption(servers: list[ServerFacts]) -> Iterator[Finding]:
    """Report servers that run with keys other than those of their encryption configuration file."""
    for each in servers:
        if each.encryption_problem and not _is_expired(each):
            name = f"{each.name} ({each.address})" if each.address else each.name
            yield error(
                "encryption",
                f"{name} rejects its encryption configuration file, and would not start with it:"
                f" {each.encryption_problem}",
                REFUSED_FILE_ADVICE,
            )


def judge_aggregated(servers: list[ServerFacts]) -> Iterator[Finding]:
    """Check aggregated servers on the store of the cluster, by their leases only."""
    for component in sorted({each.component for each in servers}):
        found = [each for each in servers if each.component == component]
        if expired := [each.name for each in found if _is_expired(each)]:
            yield warning(
                "servers",
                f"{some(expired)} of {component} have not renewed their leases in time",
                "if they were stopped, their leases are garbage-collected; if they run, check their"
                " logs",
            )
        if current := len(found) - len(expired):
            yield ok("servers", f"{current} aggregated servers of {component} renew their leases")


def judge_agreement(view: ClusterView, servers: set[str]) -> Iterator[Finding]:
    """Check what servers report about the versions they write, and the persisted versions."""
    for each in view.unseen:
        yield unseen("agreement", each, "run it as a user who can list it")
    reported = [each for each in view.resources if each.entries]
    if not reported:
        yield unseen("agreement", "the servers do not report the versions that they write")
    split = [str(each.resource) for each in reported if not each.is_agreed]
    if split:
        yield warning(
            "agreement",
            f"the servers write different versions of {some(split)}",
            "finish the rolling upgrade: restow upgrade --to RELEASE; or roll it back:"
            " restow upgrade --rollback",
        )
    elif reported:
        yield ok("agreement", f"the servers agree on the version of {len(reported)} resources")
    yield from _judge_entries(reported, servers)
    yield from _judge_states(view)
    yield from judge_scan(view)


def judge_scan(view: ClusterView) -> Iterator[Finding]:
    """Compare the raw values of the store with the reports of servers and the StorageStates."""
    if view.kubernetes_minor is not None:
        return
    if view.scan is None:
        yield unseen(
            "raw values",
            f"the store could not be scanned: {view.scan_problem}",
            "run it as a user who can create storagescans.storage.restow.dev",
        )
        return
    found = stored_findings(view, view.scan, running_target(view))
    wrong = [each for each in found if each.is_blocking]
    for each in wrong:
        yield error("raw values", f"{each.resource}: {each.what} ({each.why})", each.advice)
    if not wrong:
        text = f"all {view.scan.values:,} values are readable, and listed in StorageStates"
        yield ok("raw values", text)


def _judge_entries(reported: list[ResourceView], servers: set[str]) -> Iterator[Finding]:
    # Servers with a store of their own have their leases there.
    entries = [entry for each in reported for entry in each.entries if not entry.store]
    expired = {entry.server for entry in entries} - servers
    if expired:
        yield warning(
            "agreement",
            f"server entries of {some(sorted(expired))}, which have no lease",
            "a running server removes them within a minute; if they stay, check its log",
        )


def _judge_states(view: ClusterView) -> Iterator[Finding]:
    stated = [each for each in view.resources if each.persisted is not None]
    if not stated:
        yield unseen(
            "stored versions",
            "there are no StorageStates, so the persisted versions are unknown",
            "add them: restow controllers --install",
        )
        return
    unknown = [str(each.resource) for each in stated if UNKNOWN in (each.persisted or (UNKNOWN,))]
    if unknown:
        yield warning(
            "stored versions",
            f"the persisted versions of {some(unknown)} are unknown",
            "migrate them: run restow controllers, or for one resource: restow migrate RESOURCE",
        )
    if not unknown:
        yield ok("stored versions", f"the persisted versions of {len(stated)} resources are known")


def judge_objects(unread: list[Unread], *, count: int) -> Iterator[Finding]:
    """Report resources whose objects cannot be listed; `count` is the number of resources."""
    for each in unread:
        if each.is_damaged:
            yield error(
                "objects",
                f"{each.resource} cannot be listed: {each.why}",
                f"find the keys of the values: restow census {each.resource}; then restore the"
                " values from a backup, or delete them: restow store delete KEY",
            )
    unlisted = [each for each in unread if not each.is_damaged]
    if unlisted:
        yield unseen(
            "objects",
            f"{some([each.resource for each in unlisted])} could not be listed: {unlisted[0].why}",
            "run it as a user who can list all resources, while all servers run",
        )
    if not unread:
        yield ok("objects", f"all objects of {count} resources can be read")


async def _migrations(client: ApiClient) -> list[MigrationRow]:
    """Read the migrations of both APIs."""
    groups: set[str] = set()
    found: list[Object] = []
    for place in migration_objects.MIGRATION_APIS:
        if place.group in groups:
            continue
        try:
            found += [each async for each in client.items(place)]
        except NotFound:
            continue
        groups.add(place.group)
    return migrations_seen(found)


def judge_migrations(migrations: list[MigrationRow]) -> Iterator[Finding]:
    """Report failed migrations, unless a later one of the same resource succeeded."""
    failed = [each for each in migrations if each.phase == MigrationPhase.FAILED.value]
    counted = [each for each in failed if not each.is_superseded]
    for each in counted[:FAILED_SHOWN_MAX]:
        yield warning(
            "migrations",
            f"{each.name} of {each.resource} failed: {each.message}",
            f"fix the objects named in the message, then: restow migrate --force {each.resource}",
        )
    if (more := len(counted) - FAILED_SHOWN_MAX) > 0:
        yield warning("migrations", f"{more} more have failed", "see all of them: restow status")
    if not counted:
        past = f"; {len(failed)} failed, but a later one succeeded" if failed else ""
        yield ok("migrations", f"none failed{past}")
