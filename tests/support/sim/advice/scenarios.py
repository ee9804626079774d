"""One short plan for each advice that was once wrong: regression tests, which also detect the
mutants of the advice rules.

    python -m tests.support.sim scenario gate-off-and-on --log
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from restow.storageversion.identity import Mode
from tests.support.sim.advice.plan import make_advice_plan
from tests.support.sim.plan import Plan, Step
from tests.support.sim.releases import CLUSTER_SCOPED, GROUP, RELEASES, WITH_GADGETS

SEED: Final = 0
OLD_OBJECTS: Final = 8
SILENT_SECONDS: Final = 10_000.0
"""Think time of a client: it writes nothing."""


def _act(act: str, argument: str | float = "", *, target: str = "", wait: float = 0.5) -> Step:
    return Step(wait, "", 1, act, target, argument)


def _plan(first: str, *steps: Step, mode: Mode = "report", servers: int = 2) -> Plan:
    """Servers of a release, whose objects are all migrated before the first step."""
    return replace(
        make_advice_plan(SEED, mode=mode),
        releases=(first, "x+1" if first == "x" else first),
        servers=servers,
        delay_seconds=0.002,
        gap_seconds=0.3,
        old_objects=OLD_OBJECTS,
        old_version=f"{GROUP}/{RELEASES[first][1]}",
        skews=(0.0,) * servers,
        steps=(Step(0.1, "", 1, "settle"), *steps),
    )


_WITHOUT_CONTROLLERS: Final = _act("controllers", "none")
_ONLY_TRIGGER: Final = _act("controllers", "trigger")


def _keyed(*steps: Step) -> Plan:
    """Servers that encrypt with k1."""
    return replace(_plan("x+1", *steps), keys=("k1", "identity"))


SCENARIOS: Final[dict[str, Plan]] = {
    # A kind changes its scope: objects stay at keys that no server reads.
    "scope-changes": _plan("x+1", _act("ask", CLUSTER_SCOPED)),
    "scope-changes-in-upgrade": _plan("x+1", _act("upgrade", CLUSTER_SCOPED)),
    "scope-changes-without-objects": replace(
        _plan("x+1", _act("ask", CLUSTER_SCOPED), _act("upgrade", CLUSTER_SCOPED)),
        old_objects=0,
        gap_seconds=SILENT_SECONDS,
    ),
    # A CRD is removed by force, and created again with another version.
    "crd-recreated": _plan(
        "x+1",
        _act("remove CRD by force"),
        _act("define CRD", "v2", wait=2.0),
        _act("ask", "x+2", wait=10.0),
        _act("status"),
    ),
    "crd-removed-by-force": _plan(
        "x+1", _WITHOUT_CONTROLLERS, _act("remove CRD by force"), _act("ask", "x+2", wait=40.0)
    ),
    # A release has as a built-in kind what a CRD defines, or has defined.
    "crd-becomes-built-in": _plan("x+1", _act("ask", WITH_GADGETS)),
    "crd-becomes-built-in-in-upgrade": _plan("x+1", _act("upgrade", WITH_GADGETS)),
    "built-in-over-unreadable-values": _plan(
        "x+1",
        _act("define CRD", "v9"),
        _WITHOUT_CONTROLLERS,
        _act("remove CRD by force", wait=5.0),
        _act("ask", WITH_GADGETS, wait=40.0),
    ),
    # A client marks a migration as verified.
    "verification-forged": _plan(
        "x+1",
        _ONLY_TRIGGER,
        _act("upgrade", "x+2"),
        _act("forge verification", "text", wait=25.0),
        _act("status", wait=5.0),
        _act("ask", "x+3"),
    ),
    "verification-forged-as-json": _plan(
        "x+1",
        _ONLY_TRIGGER,
        _act("upgrade", "x+2"),
        _act("forge verification", "JSON", wait=25.0),
        _act("status", wait=5.0),
        _act("ask", "x+3"),
    ),
    # A server that cannot read what the target writes is paused, and others are upgraded.
    "server-away-in-upgrade": _plan(
        "x",
        _act("upgrade", "x+1", target="s1"),
        _act("upgrade", "x+1", target="s2"),
        _act("pause", 60.0, target="s3"),
        _act("upgrade", "x+2", target="s1", wait=20.0),
        servers=3,
    ),
    # Values are written to the store directly, bypassing the servers.
    **{
        f"raw-{what.replace(' ', '-')}": _plan(
            "x+2",
            _act("put raw value", what),
            _act("ask", "x+3", wait=2.0),
            _act("status"),
            _act("upgrade", "x+1"),
        )
        for what in ("garbage", "unknown version", "unknown prefix", "other location")
    },
    # A CRD is deleted regularly: the answer is "safe" again soon.
    "crd-deleted": _plan("x+1", _act("remove CRD")),
    # The gate is off for a while, and the release that writes then stores another version.
    "gate-off-and-on": _plan(
        "x+1",
        _WITHOUT_CONTROLLERS,
        _act("gate off", "x+2", target="together"),
        _act("gate on", "!x+1", target="together", wait=8.0),
        _act("status", wait=3.0),
        _act("ask", "x"),
    ),
    "gate-off-with-controllers": _plan(
        "x+1",
        _act("gate off", "x+2", target="together"),
        _act("ask", "x", wait=8.0),
        _act("gate on", "!x+1", target="together"),
        _act("status", wait=1.0),
        _act("ask", "x"),
    ),
    "gate-off-then-older-release": _plan(
        "x+1",
        _WITHOUT_CONTROLLERS,
        _act("gate off", "x+2", target="together"),
        _act("ask", "x", wait=8.0),
    ),
    "gate-off-before-first-write": replace(
        _plan(
            "x+1",
            _act("gate off", "x+2", target="together"),
            _act("ask", "x"),
            _act("upgrade", "x"),
        ),
        gap_seconds=SILENT_SECONDS,
    ),
    # A StorageState without hashes is no evidence.
    "state-emptied": _plan(
        "x+1",
        _WITHOUT_CONTROLLERS,
        _act("upgrade", "x+2"),
        _act("delete states", "empty", wait=3.0),
        _act("restart", target="all"),
        _act("status", wait=3.0),
        _act("ask", "x+3"),
    ),
    "state-deleted": _plan(
        "x+1",
        _WITHOUT_CONTROLLERS,
        _act("upgrade", "x+2"),
        _act("delete states", "gone", wait=3.0),
        _act("ask", "x+3"),
        _act("restart", target="all"),
        _act("status", wait=3.0),
        _act("ask", "x+3"),
    ),
    # A release adds a kind without objects, on one server or on all; then back.
    "answers-differ-by-server": replace(
        _plan("x+1", _act("upgrade", WITH_GADGETS, target="s1"), _act("compare", "x+1", wait=30.0)),
        has_custom=False,
    ),
    "rollback-of-new-kind": replace(
        _plan("x+1", _act("upgrade", WITH_GADGETS), _act("rollback", wait=30.0)), has_custom=False
    ),
    "rollback-with-objects": _plan(
        "x+1", _act("upgrade", "x+2"), _act("rollback", wait=10.0), _act("compare", "x+1")
    ),
    # The store is replaced under running servers; an operator accepts it, or puts it back.
    **{
        f"store-{how.replace(' ', '-')}": _plan(
            "x+1",
            _act("upgrade", "x+2"),
            _act("replace store", f"{how} 60", wait=8.0),
            _act("accept store", wait=15.0),
            _act("ask", "x+3", wait=1.0),
        )
        for how in ("rolled back", "snapshot", "bumped", "other", "emptied")
    },
    "store-loses-one-revision": _plan(
        "x+1", *(_act("replace store", "rolled back 1", wait=2.0), _act("accept store", wait=8.0))
    ),
    "store-grows-again": _plan(
        "x+1",
        _act("replace store", "rolled back 30"),
        _act("grow store", "by 200", wait=6.0),
        _act("accept store", wait=8.0),
    ),
    "store-put-back": _plan(
        "x+1",
        _act("replace store", "snapshot 60"),
        _act("put store back", wait=6.0),
        _act("accept store", wait=6.0),
        _act("ask", "x+2", wait=3.0),
    ),
    "store-accepted-while-paused": _plan(
        "x+1",
        _act("pause", 8.0, target="s1"),
        _act("replace store", "rolled back 5"),
        _act("accept store", wait=1.0),
        _act("ask", "x+2", wait=9.0),
    ),
    "store-restarted": _plan(
        "x+1",
        _act("replace store", "rolled back 90", wait=6.0),
        _act("restart", target="all"),
        _act("accept store", wait=3.0),
    ),
    "store-accepted-before-restart": _plan(
        "x+1",
        _act("replace store", "rolled back 30", wait=6.0),
        _act("restart", target="all"),
        _act("accept store", wait=3.0),
        _act("ask", "x+2", wait=30.0),
    ),
    "backup-restored": _plan(
        "x+1",
        _act("upgrade", "x+2"),
        _act("restore backup", "restored 80", wait=8.0),
        _act("ask", "x+3"),
        _act("status"),
    ),
    # Encryption keys are rotated, or removed while values are encrypted with them.
    "key-rotated": _keyed(
        _act("set keys", "k1,k2,identity"),
        _act("set keys", "k2,k1,identity", wait=5.0),
        _act("ask", "x+2", target="k2,identity", wait=0.5),
        _act("status"),
        _act("remove key", "k1", target="advised", wait=30.0),
        _act("restart", target="all", wait=3.0),
        _act("ask", "x+2"),
    ),
    "key-rotated-without-controllers": _keyed(
        _WITHOUT_CONTROLLERS,
        _act("set keys", "k1,k2,identity"),
        _act("set keys", "k2,k1,identity", wait=5.0),
        _act("ask", "x+2", target="k2,identity", wait=10.0),
        _act("status"),
        _act("remove key", "k1", target="advised"),
    ),
    "key-on-one-server": _keyed(
        _act("set keys", "k2,k1,identity", target="s1"), _act("ask", "x+2", wait=10.0)
    ),
    "key-removed-early": _keyed(
        _act("remove key", "k1"),
        _act("ask", "x+2", target="identity", wait=8.0),
        _act("restart", target="s1"),
        _act("ask", "x+2", target="k1,identity", wait=8.0),
    ),
    "key-of-same-name": _keyed(
        _act("set keys", "k1!,identity", target="s1"),
        _act("restart", target="s1", wait=3.0),
        _act("ask", "x+2", wait=8.0),
    ),
    "key-without-objects": replace(
        _keyed(_act("ask", "x+2", target="k2,identity")),
        old_objects=0,
        gap_seconds=SILENT_SECONDS,
    ),
    # Cases that preflight has always detected.
    "servers-cannot-read-target": _plan("x", _act("ask", "x+2"), _act("upgrade", "x+2")),
    "built-in-kind-vanishes": _plan(
        "x+1",
        _WITHOUT_CONTROLLERS,
        _act("remove CRD"),
        _act("upgrade", WITH_GADGETS, wait=40.0),
        _act("ask", "x+1", wait=10.0),
        _act("upgrade", "x+2"),
    ),
}

WAITS_SECONDS: Final = tuple(round(0.13 * number, 2) for number in range(30))
AROUND_RENEWAL_SECONDS: Final = tuple(round(5.2 + 0.02 * number, 2) for number in range(12))
"""Waits until about when servers renew their leases, and record the newest revision."""


def _loses_revisions_under_writes(wait: float, revisions: int) -> Plan:
    """The store goes back by no more than the writes in flight."""
    return replace(
        _plan(
            "x+1",
            _act("replace store", f"rolled back {revisions}", wait=2.05 + wait),
            _act("accept store", wait=8.0),
        ),
        delay_seconds=0.2,
    )


def _rolled_back_while_paused(wait: float, revisions: int) -> Plan:
    """A server is paused while the store goes back, and another one has seen newer revisions."""
    return _plan(
        "x+1",
        _act("pause", 8.0, target="s2", wait=wait),
        _act("replace store", f"rolled back {revisions}", wait=1.3),
        _act("restart", target="s1", wait=2.8),
        _act("accept store", wait=8.0),
    )


def _rotated_under_late_writes(wait: float, until_asked: int) -> Plan:
    """Writes of a server arrive long after servers have changed to another key."""
    return _keyed(
        _act("set keys", "k1,k2,identity"),
        _act("late", 4.0, target="s2", wait=3.0 + wait),
        _act("set keys", "k2,k1,identity", wait=1.0),
        _act("ask", "x+2", target="k2,identity", wait=float(until_asked)),
        _act("remove key", "k1", target="advised", wait=0.1),
        _act("ask", "x+2", target="k2,identity", wait=12.0),
    )


VARIED: Final[dict[str, tuple[Plan, ...]]] = {
    name: tuple(make(wait, number) for wait in (*WAITS_SECONDS, *waits) for number in numbers)
    for name, make, waits, numbers in (
        ("loses-revisions-under-writes", _loses_revisions_under_writes, (), (1, 2)),
        (
            "rolled-back-while-paused",
            _rolled_back_while_paused,
            AROUND_RENEWAL_SECONDS,
            (3, 5, 7),
        ),
        ("rotated-under-late-writes", _rotated_under_late_writes, (), (3, 8, 14)),
    )
}
"""Scenarios that depend on an exact moment, each with many such moments."""
