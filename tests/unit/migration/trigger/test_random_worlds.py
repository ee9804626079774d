"""Random histories: the invariants hold under any interleaving of two or three controllers.

Every example is a history of hash changes and rollbacks, writes, migrations that continue through
any server, fail or end, elapsed time, and controllers that read, act late on what they read, crash
between two actions and within one, or lose their watch. The world checks after every step that the
persisted hashes cover every stored object (M4, and M14 where servers keep the state) and the
persisted keys every key that an object is stored under (M17), at every
decision that heartbeat, current hash and appended hash are one conditional write (M6) and that a
stale state becomes unknown (M7), and that every narrowing is correct (M5).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.migration.trigger.values import Settings
from tests.sizes import SIZES
from tests.unit.migration.trigger.world import Controller, World

Step = tuple[str, int, int]

# An entry that is repeated occurs more often.
CONTROLLER_STEPS = (*["step"] * 3, *["cycle"] * 3, "crash", "tear", "gap", "lead")
OTHER_STEPS = (
    *["flap", "change", "rekey", "write", "finish", "tick"] * 2,
    *("leave", "rewrite", "fail"),
)
KEYS = ("identity", "aesgcm:key1:1", "aesgcm:key2:2")
HEAL_ROUNDS_MAX = 20
TICKS = (1.0, 60.0, 301.0, 601.0, 601.0, 1300.0, 2000.0)
histories = st.lists(
    st.tuples(
        st.sampled_from(CONTROLLER_STEPS + OTHER_STEPS), st.integers(0, 5), st.integers(0, 5)
    ),
    min_size=5,
    max_size=40,
)


def servers_of(source: str) -> list[str]:
    return ["s0"] if source == "discovery" else ["s0", "s1", "s2"]


def made(source: str, *, kept: bool, options: Settings | None = None) -> World:
    world = World(source=source, kept=kept, settings=options)
    servers = servers_of(source)
    for server in servers:
        world.serve(server, "h1")
    for number in range(3 if source == "discovery-ha" else 2):
        server = servers[number % len(servers)]
        name = server if source == "discovery-ha" else f"c{number}"
        world.controllers[name] = Controller(name, world, server, is_leader=number == 0)
    world.objects = {"a": "h1", "b": "h0"}
    # A controller that has not read yet does not know a key that is no longer written with.
    world.sealed = {"a": KEYS[0], "b": KEYS[2] if kept else KEYS[0]}
    return world


def run_without_faults(world: World, *, until: Callable[[], bool]) -> None:
    """Runs controllers and migrations without faults."""
    while not until():
        for controller in world.controllers.values():
            controller.cycle()
        if world.open and not until():
            world.rewrite("s0", all_of_it=True)
        world.seconds += 310.0


def play(world: World, history: list[Step]) -> None:
    controllers, servers = list(world.controllers.values()), sorted(world.servers)
    for what, one, two in history:
        controller = controllers[one % len(controllers)]
        if what in ("crash", "gap") and two > 2:
            for each in controllers:
                let(each, what, two)
        elif what in CONTROLLER_STEPS:
            let(controller, what, two)
        else:
            happen(world, what, servers[one % len(servers)], two)


def let(controller: Controller, what: str, number: int) -> None:
    """One step of a controller, or one event that affects it."""
    match what:
        case "step":
            for _ in range(number + 1):
                controller.step()
        case "cycle":
            controller.cycle()
        case "crash":
            controller.crash()
        case "tear":
            if controller.stage >= 4:
                controller.step(crash_between=True)
        case "gap":
            controller.lose_watch()
        case _:
            # Two controllers may consider themselves leader.
            controller.is_leader = number % 2 == 0


def happen(world: World, what: str, server: str, number: int) -> None:
    """One event of servers, objects, migrations or time."""
    match what:
        case "change":
            if world.may_change(server):
                world.serve(server, f"h{number % 3}")
        case "flap":
            # Between two polls; not if operators must not do it.
            if (world.kept or world.source == "storageversion") and server in world.servers:
                before = world.servers[server]
                world.serve(server, f"h{number % 3}")
                world.write(server, "abc"[number % 3])
                world.serve(server, before)
        case "rekey":
            # A server reloads its configuration and writes with another key.
            if world.kept and server in world.servers:
                world.serve(server, world.servers[server], key=KEYS[number % 3])
        case "leave":
            if world.source == "storageversion" and number == 0:
                world.serve(server, None)
        case "write":
            world.write(server, "abc"[number % 3])
        case "rewrite":
            world.rewrite(server)
        case "finish":
            world.rewrite(server, all_of_it=True)
        case "fail":
            world.fail()
        case "tick":
            world.seconds += TICKS[number]
        case _:
            raise ValueError(what)


def is_narrowed(world: World, key: str) -> bool:
    """The state has one version, and with StorageVersions one key; other sources have no keys."""
    assert world.state is not None
    status = world.state.status
    return status.persisted == ("h2",) and (
        world.source != "storageversion" or status.keys == (key,)
    )


def heal(world: World) -> None:
    """Servers agree, one controller leads, time passes, and all migrations run."""
    for number, controller in enumerate(world.controllers.values()):
        controller.is_leader = number == 0
    key = KEYS[1] if world.kept else KEYS[0]
    for _ in range(HEAL_ROUNDS_MAX):
        for server in servers_of(world.source):
            is_right = world.servers.get(server) == "h2" and world.key_of(server) == key
            if not is_right and world.may_change(server):
                world.serve(server, "h2", key=key)
        for controller in world.controllers.values():
            controller.cycle()
        assert world.state is not None
        if is_narrowed(world, key) and world.agreed == "h2":
            break
        world.rewrite(next(iter(world.servers)), all_of_it=True)
        world.seconds += 310.0
    assert world.state is not None
    assert is_narrowed(world, key), world.state
    assert world.state.status.current == "h2"
    assert set(world.objects.values()) == {"h2"}
    if world.source == "storageversion":
        assert set(world.sealed.values()) == {key}
    world.check_all_recorded()


SOURCES = ("storageversion", "discovery", "discovery-ha")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "bare"])
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=2 * SIZES.hypothesis_examples)
@given(began=st.sampled_from(["new", "migrating", "calm"]), history=histories)
def test_promises_hold_whatever_happens(
    source: str, kept: bool, began: str, history: list[Step]
) -> None:
    """No state is narrowed wrongly, and in a steady state the migration completes."""
    world = made(source, kept=kept)
    if began == "migrating":
        run_without_faults(world, until=lambda: bool(world.open))
        world.rewrite("s0")
    elif began == "calm":
        run_without_faults(world, until=lambda: world.narrowed > 0)
    play(world, history)
    for controller in world.controllers.values():
        controller.cycle()
    if source == "storageversion":
        world.check_all_recorded()  # also in the bare world, after all controllers have read
    if len(history) % 3 == 0:
        heal(world)
