"""The conditions when all faults have ended: returns those that do not hold, as text.

L1  every server is registered and ready        L5  every client's writes are done
L2  the common version is that of the release    L7  entries of expired servers are removed
L3  all objects are stored in it, and verified   L4  no migration is left open
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Span
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import LEASES_PREFIX, decode_report, report_key
from tests.support.sim import releases
from tests.support.sim.clients import Writer
from tests.support.sim.network import at_once
from tests.support.sim.plan import Plan
from tests.support.sim.world import World

SETTLE_SECONDS_MAX: Final = 240.0
WRITE_SECONDS_MAX: Final = 5.0
GADGETS_ROOT: Final = "/registry/custom.example.com/gadgets/"


class Run(Protocol):
    """A plan that is played in a world, as far as it is checked here."""

    @property
    def world(self) -> World: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def places(self) -> Sequence[str]: ...

    @property
    def writers(self) -> Sequence[Writer]: ...

    @property
    def storage_version(self) -> str:
        """The storage version of the custom resource."""


def unsettled(director: Run) -> list[str]:
    """All conditions that do not hold."""
    found = [*_servers(director), *_reports(director)]
    if director.plan.mode != "loose":
        found += _stored(director)
    found += _clients(director)
    return found


def _servers(director: Run) -> list[str]:
    world, wanted = director.world, director.plan.releases[1]
    found = []
    for place in director.places:
        server = world.servers[place]
        if not server.is_ready or server.options.release != wanted:
            found.append(f"L1: {server.name} of {server.options.release} is not ready")
        elif server.coordinator is None or not server.coordinator.completed:
            found.append(f"L1: {server.name} has not registered everything")
    if found:
        return found
    ids = sorted(world.servers[place].id for place in director.places)
    for what, prefix in (("keys", SERVERS_PREFIX), ("leases", LEASES_PREFIX)):
        there = at_once(world.storage.range(Span.of_prefix(prefix))).items
        names = sorted(item.key.rpartition("/")[2] for item in there)
        if [name for name in names if name.startswith("apiserver-")] != ids:
            found.append(f"L7: {what} of {names}, while {ids} run")
    return found


def _reports(director: Run) -> list[str]:
    world = director.world
    ids = sorted(world.servers[place].id for place in director.places)
    wanted = {releases.NAME: releases.stored_by(director.plan.releases[1])}
    if director.plan.has_custom:
        wanted["custom.example.com.gadgets"] = f"custom.example.com/{director.storage_version}"
    found = []
    for name, version in wanted.items():
        item = at_once(world.storage.get(report_key(name)))
        if item is None:
            found.append(f"L2: there is no report of {name}")
            continue
        report = decode_report(item).report
        if sorted(entry.server_id for entry in report.entries) != ids:
            found.append(f"L7: {name} has entries of others than {ids}")
        if report.common_version != version:
            found.append(f"L2: {name} has {report.common_version} in common, not {version}")
    return found


def _stored(director: Run) -> list[str]:
    ledger, plan = director.world.ledger, director.plan
    version = releases.stored_by(plan.releases[1])
    found = []
    if set(ledger.versions(releases.ROOT)) - {version}:
        found.append(f"L3: widgets are stored as {dict(ledger.versions(releases.ROOT))}")
    persisted = ledger.persisted.get(f"{releases.PLURAL}.{releases.GROUP}")
    if persisted != (storage_version_hash(GroupVersionKind.of(version, releases.KIND)),):
        found.append(f"L3: {persisted} are listed, not only that of {version}")
    if ledger.open_requests:
        found.append(f"L4: open are {sorted(ledger.open_requests)}")
    if plan.has_custom:
        version = f"custom.example.com/{director.storage_version}"
        if set(ledger.versions(GADGETS_ROOT)) - {version}:
            found.append(f"L3: gadgets are stored as {dict(ledger.versions(GADGETS_ROOT))}")
        status = ledger.definitions.get(GADGETS_ROOT, {}).get("status") or {}
        if status.get("storedVersions") != [director.storage_version]:
            found.append(f"L3: storedVersions are {status.get('storedVersions')}")
    return found


def _clients(director: Run) -> list[str]:
    now = director.world.loop.time()
    return [
        f"L5: {writer.name} has not written since {now - writer.last_at:.1f} s"
        for writer in director.writers
        if now - writer.last_at > WRITE_SECONDS_MAX + 10 * director.plan.gap_seconds
    ]
