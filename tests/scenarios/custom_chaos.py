"""Random scenarios with a CRD, from a seed, and the invariants that hold after them.

The audited store checks every commit meanwhile; these checks are for the end.
"""

from __future__ import annotations

from random import Random

from restow.storage.interface import Item, Span
from restow.storageversion.object_codec import decode_report, report_key
from restow.storageversion.records import ENCODERS_PREFIX
from tests.scenarios.chaos import FAULTS
from tests.scenarios.cluster import Node
from tests.scenarios.crds import GADGETS, KIND, PLURAL, api_version
from tests.scenarios.custom_cluster import CustomCluster
from tests.unit.storageversion.world import GROUP

RELEASE = "x+1"
VERSIONS = ("v1", "v2", "v3", "v4")
CRD_STEPS = 0.3
"""The fraction of the steps that concern the CRD."""
OBJECTS = 6
"""Few names, so that objects are updated as often as created."""


def random_scenario(seed: int, *, mode: str, steps: int) -> str:
    """Servers start, stop and fail; a CRD changes, is deleted and recreated; gadgets are written.

    Without a fence the CRD is not deleted: earlier requests may commit afterwards.
    """
    random = Random(f"custom/{mode}/{seed}")
    size = random.randint(2, 3)
    state: dict[str, str] = {}
    lines: list[str] = [f"start s1 {RELEASE} mode={mode}", "define v1"]
    state["s1"] = "running"
    for _ in range(steps):
        name = f"s{random.randint(1, size)}"
        if random.random() < CRD_STEPS:
            lines += _of_definition(random, state, is_fenced=mode != "loose")
            continue
        match state.get(name, "ended"):
            case "ended":
                verb = random.choice(("start", "begin"))
                if random.random() < 0.4:
                    lines.append(f"faults {name} {random.choice(FAULTS)}")
                lines.append(f"{verb} {name} {RELEASE} mode={mode}")
                state[name] = "running"
            case "paused":
                verb = random.choice(("wake", "wake", "kill", "advance"))
                lines.append("advance 10s" if verb == "advance" else f"{verb} {name}")
                if verb != "advance":
                    state[name] = "running" if verb == "wake" else "ended"
            case _:
                lines.append(_of_server(random, name, state))
    return "\n".join(lines) + "\n"


def _of_server(random: Random, name: str, state: dict[str, str]) -> str:
    verb = random.choice(
        ("stop", "kill", "pause", "cut", "restore", "faults", "faults", "hang-up")
        + ("gadget",) * 8 + ("advance",) * 6
    )  # fmt: skip
    match verb:
        case "advance":
            return f"advance {random.choice((0.01, 0.06, 0.5, 2, 5, 11, 18))}s"
        case "gadget":
            return f"gadget {name} o{random.randint(1, OBJECTS)}"
        case "faults":
            return f"faults {name} {random.choice(FAULTS)}"
        case "hang-up":
            return verb
        case "stop" | "kill" | "pause":
            state[name] = "paused" if verb == "pause" else "ended"
    return f"{verb} {name}"


def _of_definition(random: Random, state: dict[str, str], *, is_fenced: bool) -> list[str]:
    version = random.choice(VERSIONS)
    running = [name for name, what in state.items() if what == "running"]
    kinds = ["store"] * 6 + ["burst", "burst", "expire", "add", "drop", "trim", "note", "settle"]
    if is_fenced:
        kinds += ["undefine", "end", "end", "anew", "anew", "finish", "define", "define"]
    match random.choice(kinds):
        case "store" | "add" | "drop" as verb:
            return [f"{verb} {version}"]
        case "define":
            return [f"define {_some(random)}"]
        case "finish" if running:
            return [f"finish {random.choice(running)}"]
        case "settle":
            return ["advance 2s", "trim", f"drop {version}"]
        case "burst" if running:
            # Writes are in flight when the storage version changes twice.
            writer = random.choice(running)
            lines = [f"gadget {name} o{random.randint(1, OBJECTS)}" for name in running]
            return [*lines, f"store {version}", f"gadget {writer} o1", "advance 0.06s",
                    f"store {random.choice(VERSIONS)}"]  # fmt: skip
        case "expire" if running:
            # A server expires; when it resumes, the CRD has changed.
            name = random.choice(running)
            return [f"gadget {name} o1", f"pause {name}", f"advance {random.choice((17, 20))}s",
                    f"store {version}", "trim", f"wake {name}", f"gadget {name} o2",
                    f"store {random.choice(VERSIONS)}"]  # fmt: skip
        case "end" | "anew" as verb if running:
            lines = ["undefine", f"advance {random.choice((0.1, 2, 6))}s",
                     f"gadget {random.choice(running)} o1",
                     f"finish {random.choice(running)}",
                     f"advance {random.choice((0.01, 0.5, 2))}s"]  # fmt: skip
            return [*lines, f"define {_some(random)}"] if verb == "anew" else lines
        case "trim" | "note" | "undefine" as verb:
            return [verb]
    return []


def _some(random: Random) -> str:
    return " ".join(random.sample(VERSIONS, random.randint(1, 2)))


async def check_custom_healed(cluster: CustomCluster) -> None:
    """All running servers serve the CRD as it is, and agree; or nothing of it is left."""
    running = list(cluster.running().values())
    if not running:
        return
    definition = await cluster.gadgets.read()
    if definition is None:
        await _check_nothing_left(cluster, running)
        return
    wanted = api_version(definition.storage_version)
    for node in running:
        resource = node.server.catalog.named(GROUP, PLURAL)
        assert resource is not None, f"{node.server.name} does not host it"
        assert resource.origin is not None
        assert resource.origin.uid == definition.uid
        assert resource.origin.is_closing == definition.is_closing
        assert resource.storage_api_version == wanted
        found = node.server.coordinator.table.find(resource)
        pending = node.server.coordinator.pending(resource)
        assert found is not None, f"{node.server.name} does not write it: {pending}"
        assert found.api_version == wanted, f"{node.server.name} writes {found.api_version}"
        registration = node.server.coordinator.custom_registration
        assert registration.served_by_all(GROUP, PLURAL, definition.uid)
        is_closed = registration.closed_by_all(GROUP, PLURAL, definition.uid)
        assert is_closed == definition.is_closing
    report = await cluster.report(KIND)
    assert report is not None
    assert {entry.server_id for entry in report.entries} == {node.id for node in running}
    assert report.common_version == wanted
    if not definition.is_closing:
        await _check_writes(cluster, running, wanted)


async def _check_writes(cluster: CustomCluster, running: list[Node], wanted: str) -> None:
    for node in running:
        name = f"healed-{node.server.name}"
        await cluster.run(node.server.write(name, kind=KIND))
        assert api_version(await cluster.stored(name, KIND)) == wanted
        await cluster.run(node.server.write("o1", kind=KIND, by=name))
        assert api_version(await cluster.stored("o1", KIND)) == wanted


async def _check_nothing_left(cluster: CustomCluster, running: list[Node]) -> None:
    """A StorageState may remain, if all servers that knew the CRD ended with it."""
    for node in running:
        found = node.server.catalog.named(GROUP, PLURAL)
        assert found is None, f"{node.server.name} hosts what is not defined"
    assert await cluster.report(KIND) is None
    encoders = (await cluster.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    left = [item.key for item in encoders if item.key.endswith(f"/{GADGETS}")]
    assert left == []
    assert await cluster.gadgets.instances() == []


def check_understanding(cluster: CustomCluster) -> None:
    """At every revision: no entry encodes a version that another entry cannot decode."""
    for logged in cluster.storage._log:
        for event in logged.events:
            if event.key != report_key(GADGETS) or event.value is None:
                continue
            item = Item(event.key, event.value, event.revision, event.created)
            entries = decode_report(item).report.entries
            for entry in entries:
                for other in entries:
                    assert entry.encoding_version in other.decodable_versions, (
                        f"at {event.revision} {other.server_id} cannot read"
                        f" {entry.encoding_version}, which {entry.server_id} writes"
                    )
