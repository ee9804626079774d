"""The director: executes a plan, then ends all faults and waits until the cluster has converged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupResource
from restow.migration.parts import PART_NAMES
from restow.migration.trigger.options import TriggerSource
from restow.registry.custom.crds import ROOT as DEFINITIONS_ROOT
from restow.registry.stored_bytes import encode
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.identity import Mode
from restow.storageversion.object_codec import REPORTS_PREFIX
from tests.support.sim import releases
from tests.support.sim.clients import JSON, MERGE, REQUESTS, Forger, Kind, Watcher, Writer
from tests.support.sim.controllers import QUICK, SimControllers
from tests.support.sim.network import Link
from tests.support.sim.plan import CONTROLLERS, PLACES, Plan, Step
from tests.support.sim.routes import Route
from tests.support.sim.servers import ServerOptions, SimServer
from tests.support.sim.settlement import SETTLE_SECONDS_MAX, unsettled
from tests.support.sim.world import ADDRESSES, World

MOMENT_SECONDS_MAX: Final = 8.0
"""How long a step waits for its trigger event. After that it is done anyway."""
SPLIT_SECONDS_MAX: Final = 25.0
"""The same for steps that wait until servers differ, which takes a start of each."""
ROLL_SECONDS_MAX: Final = 25.0
START_SECONDS_MAX: Final = 30.0
UNDEFINED_SECONDS_MAX: Final = 60.0
WRITERS: Final = 3
DOWN_SECONDS_MAX: Final = 6.0
"""Maximum delay after its end until a server is started again."""
GADGETS: Final = Kind("custom.example.com", "gadgets", "Gadget", ("v1", "v2"))
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ENDPOINTS: Final = "/api/v1/namespaces/default/endpoints"


class Director:
    """Plays one plan in one world."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self._random = Random(f"director/{plan.seed}")
        self._clients, self._link = world.clients("clients")
        self.places = PLACES[: plan.servers]
        self.assigned = dict.fromkeys(self.places, plan.releases[0])
        """The target release of each place."""
        self.mode: Mode = plan.mode
        """The mode in which servers are started."""
        self.may_change_mode = False
        self.kept_down: set[str] = set()
        """Places whose server is not restarted for now."""
        self.is_healing = False
        self.phases: Counter[tuple[str, str]] = Counter()
        """Faults by phase."""
        self.writers: list[Writer] = []
        self.watchers: list[Watcher] = []
        self._noticed = asyncio.Event()
        self._moments: Counter[str] = Counter()
        world.ledger.notice = self._notice
        self._rolling: asyncio.Task[None] | None = None
        self.settled_seconds: float | None = None
        self.storage_version = "v1"
        """The storage version of the custom resource."""
        self.custom_versions: tuple[str, ...] = GADGETS.versions
        """All versions that its CRD lists."""
        self.parts: tuple[str, ...] = PART_NAMES
        """The running controllers."""
        self.trigger_rules = QUICK
        self._requests = 0

    def _notice(self, what: str) -> None:
        self._moments[what] += 1
        self._noticed.set()

    async def run(self) -> None:
        """Run the whole world."""
        await self._begin()
        self.world.ledger.counts[f"by {self.plan.source}"] += 1
        for step in self.plan.steps:
            if self.world.problems:
                return
            await self._do(step)
        await asyncio.sleep(self._random.random() * 3)
        await self._heal()

    # The beginning.

    async def _begin(self) -> None:
        plan, world = self.plan, self.world
        for number in range(plan.old_objects):
            await self._plant(f"old-{number:03d}", plan.old_version)
        for place in self.places:
            self._start(place)
        await self._until(lambda: len(world.ready()) == len(self.places), START_SECONDS_MAX)
        if len(world.ready()) < len(self.places):
            world.problem(f"L1: not all servers are ready after {START_SECONDS_MAX} s")
            return
        await self._write_addresses() if plan.source is TriggerSource.DISCOVERY_HA else None
        for name in CONTROLLERS[: plan.controllers]:
            self._start_controllers(name)
        if plan.has_custom:
            await self._define()
            await self._until(self._is_established, START_SECONDS_MAX)
        first, _ = releases.RELEASES[plan.releases[0]]
        served = tuple(v for v in ("v1", "v2") if self._is_served(v)) or first
        widgets = Kind(releases.GROUP, releases.PLURAL, releases.KIND, served)
        kinds = [widgets, widgets, GADGETS if plan.has_custom else widgets]
        for number, kind in enumerate(kinds[:WRITERS]):
            name = f"w{number}"
            writer = Writer(
                name,
                kind,
                self._route(),
                world.ledger,
                world.loop,
                seed=f"{plan.seed}/{name}",
                gap_seconds=plan.gap_seconds,
                reads_caches=plan.is_advised,
            )
            self.writers.append(writer)
            self._clients.start(writer.run(), name)
        watcher = Watcher(
            "watcher",
            kinds[-1],
            self._route(),
            world.ledger,
            seed=f"{plan.seed}/watcher",
            patience_seconds=20.0,
        )
        self.watchers.append(watcher)
        self._clients.start(watcher.run(), "watcher")
        for place in self.places:
            world.loop.outside.start(self._keep(place), f"supervisor of {place}")

    def _is_served(self, version: str) -> bool:
        """Whether all releases of the plan serve a version."""
        used = {*self.plan.releases, *(str(s.argument) for s in self.plan.steps)}
        return all(
            version in known for name, (known, _) in releases.RELEASES.items() if name in used
        )

    async def _plant(self, name: str, version: str) -> None:
        """Add an object from before the start, bypassing fence and audit."""
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
        obj = {"metadata": metadata, "spec": {"stamp": f"planted/{name}"}}
        value = encode(obj, version, releases.KIND)
        put = Put(Key(f"{releases.ROOT}default/{name}"), value)
        storage = self.world.storage
        await MemoryStorage.commit(storage, Transaction(writes=(put,)))
        self.world.ledger.plant(put.key, value, storage._revision)

    async def _write_addresses(self) -> None:
        """Write the addresses of all servers, as cluster set-up does."""
        hosts = [
            each.partition(":")[0] for each, place in ADDRESSES.items() if place in self.places
        ]
        subset = {
            "addresses": [{"ip": host} for host in hosts],
            "ports": [{"name": "https", "port": 6443}],
        }
        body = {"metadata": {"name": "kubernetes"}, "subsets": [subset]}
        await self._ask("POST", ENDPOINTS, body)

    async def _define(self) -> None:
        versions = [
            {
                "name": name,
                "served": True,
                "storage": name == self.storage_version,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
            for name in self.custom_versions
        ]
        names = {"plural": GADGETS.plural, "kind": GADGETS.kind}
        spec = {
            "group": GADGETS.group,
            "names": names,
            "scope": "Namespaced",
            "versions": versions,
        }
        body = {"metadata": {"name": f"{GADGETS.plural}.{GADGETS.group}"}, "spec": spec}
        await self._ask("POST", DEFINITIONS, body)

    async def _undefine(self, place: str, version: str) -> None:
        """Delete the CRD through a server, with all objects; when it is gone, create it again, with
        another storage version."""
        path = f"{DEFINITIONS}/{GADGETS.plural}.{GADGETS.group}"
        self.storage_version = version
        for _ in range(5):
            if await self._ask("DELETE", path, place=place) is not None:
                self.world.loop.outside.start(self._define_again(), "definition")
                return
            await asyncio.sleep(0.3)

    async def _define_again(self) -> None:
        await self._until(lambda: not self._is_defined(), UNDEFINED_SECONDS_MAX)
        await asyncio.sleep(self._random.random() * 2)
        if not self._is_defined():
            await self._define()

    def _is_defined(self) -> bool:
        return GADGETS.root in self.world.ledger.definitions

    def _is_established(self) -> bool:
        found = self.world.ledger.definitions.get(GADGETS.root) or {}
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(e["type"] == "Established" and e["status"] == "True" for e in conditions)

    def _start(self, place: str) -> SimServer:
        plan = self.plan
        server = self.world.start(
            place,
            ServerOptions(
                release=self.assigned[place],
                mode=self.mode,
                may_change_mode=self.may_change_mode,
                compaction_seconds=plan.compaction_seconds,
                skew_seconds=plan.skews[self.places.index(place)],
                is_guarded=plan.is_advised,
                is_encrypted=bool(plan.keys),
            ),
        )
        server.wire.link.set(
            delay_seconds=plan.delay_seconds, watch_delay_seconds=plan.delay_seconds
        )
        return server

    async def _keep(self, place: str) -> None:
        """Restart servers that have exited, like a service manager."""
        while True:
            await asyncio.sleep(0.5 if self.is_healing else self._random.random() * 2)
            server = self.world.servers[place]
            if not server.is_running:
                seconds = 0.2 if self.is_healing else self._random.random() * DOWN_SECONDS_MAX
                await asyncio.sleep(seconds)
                if not self.world.servers[place].is_running and place not in self.kept_down:
                    self._start(place)

    # The steps.

    async def _do(self, step: Step) -> None:
        await asyncio.sleep(step.wait_seconds)
        if step.after == "split":
            await self._until(lambda: self.phase() == "split", SPLIT_SECONDS_MAX)
        elif step.after:
            wanted = self._moments[step.after] + step.count
            await self._until(
                lambda: self._moments[step.after] >= wanted, MOMENT_SECONDS_MAX, is_exact=True
            )
        self.phases[step.act, self.phase()] += 1
        await self._carry_out(step)

    async def _carry_out(self, step: Step) -> None:
        """Execute the step now."""
        match step.act:
            case "roll":
                self._roll(str(step.argument))
            case "replace":
                self.assigned[step.target] = str(step.argument)
                if self.world.servers[step.target].options.release != step.argument:
                    self._stop(step.target)
            case "switch":
                self.storage_version = str(step.argument)
                await self._switch()
            case "undefine":
                await self._undefine(step.target, str(step.argument))
            case "request":
                await self._request()
            case "delete request":
                await self._delete_request()
            case "forge":
                forger = Forger(self._route(), self.world.ledger, releases.NAME)
                self._clients.start(forger.run(), "forger")
            case "outage":
                self._outage(float(step.argument))
            case _:
                self._harm(step)

    def phase(self) -> str:
        """The current phase."""
        world, ledger = self.world, self.world.ledger
        if any(not each.is_ready for each in world.running()):
            return "starting"
        if ledger.open_requests:
            return "migrating"
        if len({e.encoding_version for e in ledger.entries.get(releases.NAME, ())}) > 1:
            return "split"
        return "steady"

    def _harm(self, step: Step) -> None:  # noqa: PLR0912 - one line for each fault
        """Inject a fault into a server, or into controllers."""
        world, name = self.world, step.target
        victim: SimServer | SimControllers
        if name in self.places:
            victim = world.servers[name]
            link = victim.wire.link
        else:
            victim = world.controllers[name]
            link = victim.link
        if not victim.is_running:
            return
        seconds = step.argument if isinstance(step.argument, float) else 0.0
        match step.act:
            case "kill":
                self._kill(name)
            case "crash":
                victim.process.crashes_after(int(seconds), lambda: self._kill(name, victim))
            case "stop":
                self._stop(name)
            case "pause":
                world.hits["pause"] += 1
                victim.process.pause()
                self._later(seconds, lambda: self._wake(victim))
            case "skew":
                world.hits["skew"] += 1
                victim.clock.skew_seconds += seconds
            case "break":
                link.break_watches()
            case "cut":
                link.is_cut = True
            case "stall":
                link.is_stalled = True
            case "slow":
                link.set(delay_seconds=1.0, watch_delay_seconds=1.0)
            case "lossy":
                link.set(lost=0.15, reply_lost=0.15, error=0.1, duplicated=0.1)
            case "late":
                link.set(late=0.3)
            case "deaf":
                link.set(watch_delay_seconds=4.0)
            case "blind":
                link.blind_to = DEFINITIONS_ROOT
        if step.act in ("cut", "stall", "slow", "lossy", "late", "deaf", "blind"):
            self._later(seconds, lambda: self._heal_link(link))

    def _wake(self, victim: SimServer | SimControllers) -> None:
        victim.process.wake()
        self.world.ledger.unpaused_at = self.world.loop.time()

    def _heal_link(self, link: Link) -> None:
        link.heal()
        link.set(delay_seconds=self.plan.delay_seconds, watch_delay_seconds=self.plan.delay_seconds)

    def _kill(self, name: str, victim: SimServer | SimControllers | None = None) -> None:
        world = self.world
        found = world.servers.get(name) or world.controllers[name]
        if (victim is not None and found is not victim) or not found.is_running:
            return
        world.hits["kill"] += 1
        found.end()
        if isinstance(found, SimControllers):
            self._later(self._random.random() * DOWN_SECONDS_MAX, lambda: self._again(name))

    def _again(self, name: str) -> None:
        if not self.world.controllers[name].is_running:
            self._start_controllers(name)

    def _start_controllers(self, name: str) -> None:
        if self.parts:
            self.world.start_controllers(
                name, source=self.plan.source, parts=self.parts, rules=self.trigger_rules
            )

    def _stop(self, place: str) -> None:
        server = self.world.servers[place]
        if server.is_running and not server.is_stopping:
            self.world.hits["stop"] += 1
            server.process.start(server.stop(), "stop")
            # A server that does not exit in time is killed.
            self._later(15.0, lambda: self._kill(place, server))

    def _roll(self, release: str) -> None:
        """Begin to bring all places to a release, one after the other."""
        self.assigned = dict.fromkeys(self.places, release)
        if self._rolling is None or self._rolling.done():
            self._rolling = self.world.loop.outside.task(self._roll_on(), "rolling upgrade")

    async def _roll_on(self) -> None:
        for place in self.places:
            server = self.world.servers[place]
            if server.is_running and server.options.release != self.assigned[place]:
                self._stop(place)
                await self._until(
                    lambda place=place: self._is_there(place),  # type: ignore[misc]
                    ROLL_SECONDS_MAX,
                )

    def _is_there(self, place: str) -> bool:
        server = self.world.servers[place]
        return server.is_ready and server.options.release == self.assigned[place]

    def _outage(self, seconds: float) -> None:
        """Reject report writes for a while; registered servers continue."""

        def refuses(transaction: Transaction) -> bool:
            return any(write.key.startswith(REPORTS_PREFIX) for write in transaction.writes)

        for server in self.world.running():
            server.wire.link.refuses = refuses
            link = server.wire.link
            self._later(seconds, lambda link=link: self._heal_link(link))  # type: ignore[misc]

    async def _switch(self) -> None:
        """Change the storage version of the custom resource; create its CRD if it does not
        exist."""
        path = f"{DEFINITIONS}/{GADGETS.plural}.{GADGETS.group}"
        for _ in range(5):
            if not self._is_defined():
                await self._define()
                return
            wanted = deepcopy(self.world.ledger.definitions[GADGETS.root])
            for each in wanted["spec"]["versions"]:
                each["storage"] = each["name"] == self.storage_version
            if await self._ask("PUT", path, wanted) is not None:
                return
            await asyncio.sleep(0.3)

    def _is_switched(self) -> bool:
        if not self._is_defined():
            return False
        versions = self.world.ledger.definitions[GADGETS.root]["spec"]["versions"]
        return any(each["storage"] and each["name"] == self.storage_version for each in versions)

    async def _request(self) -> None:
        self._requests += 1
        group = GroupResource(releases.GROUP, releases.PLURAL)
        spec = {"resource": {"group": group.group, "version": "v1", "resource": group.resource}}
        body = {"metadata": {"name": f"by-hand-{self._requests}"}, "spec": spec}
        await self._ask("POST", REQUESTS, body)

    async def _delete_request(self) -> None:
        """Delete an open migration, preferably one with remaining work."""
        ledger = self.world.ledger
        played = set(ledger.names.values())
        found = sorted(
            (name not in played, key)
            for key, name in ledger.open_requests.items()
            if "/migration.k8s.io/" in key
        )
        for _, key in found[:1]:
            await self._ask("DELETE", f"{REQUESTS}/{key.rpartition('/')[2]}")

    # The end.

    async def _heal(self) -> None:
        """End all faults; then the cluster must converge without help, in time, under load."""
        world = self.world
        self.is_healing = True
        self.assigned = dict.fromkeys(self.places, self.plan.releases[1])
        self._end_faults()
        for name in CONTROLLERS[: self.plan.controllers]:
            self._again(name)
        if self.plan.has_custom:
            await self._switch()
        if self._rolling is not None and not self._rolling.done():
            await self._until(lambda: self._rolling is not None and self._rolling.done(), 90.0)
        await self._roll_on()
        began = world.loop.time()
        left = unsettled(self)
        while left and world.loop.time() - began < SETTLE_SECONDS_MAX and not world.problems:
            await asyncio.sleep(0.5)
            if self._rolling is None or self._rolling.done():
                self._roll(self.plan.releases[1])
            if self.plan.has_custom and not self._is_switched():
                await self._switch()
            left = unsettled(self)
        if left and not world.problems:
            world.problem(f"{SETTLE_SECONDS_MAX:.0f} s after all faults: {'; '.join(left)}")
        self.settled_seconds = world.loop.time() - began
        world.ledger.checked.update(("L1", "L2", "L4", "L5", "L6", "L7", "G7"))
        if self.plan.mode != "loose":
            world.ledger.checked.update(("L3", "D4", "M14"))
        if any(step.act == "outage" for step in self.plan.steps):
            world.ledger.checked["L8"] += 1
        await self._stop_all()

    def _end_faults(self) -> None:
        for server in self.world.servers.values():
            self._heal_link(server.wire.link)
            self._wake(server)
            server.process.survives()
        for controllers in self.world.controllers.values():
            controllers.link.heal()
            controllers.process.wake()
            controllers.process.survives()

    async def _stop_all(self) -> None:
        """Stop all processes, and check the stored values once more."""
        for writer in self.writers:
            writer.is_over = True
        for watcher in self.watchers:
            watcher.is_over = True
        await asyncio.sleep(0.5)

    # Help.

    def _route(self) -> Route:
        return self.world.route(self._link)

    def _later(self, seconds: float, callback: Callable[[], Any]) -> None:
        loop = self.world.loop
        loop.call_later(seconds, callback, context=loop.outside.context.copy())

    async def _until(
        self, condition: Callable[[], bool], seconds_max: float, *, is_exact: bool = False
    ) -> None:
        """Wait for a condition; `is_exact`: at the exact commit."""
        loop = self.world.loop
        gives_up_at = loop.time() + seconds_max
        while not condition() and loop.time() < gives_up_at and not self.world.problems:
            if is_exact:
                self._noticed.clear()
                try:
                    async with asyncio.timeout_at(gives_up_at):
                        await self._noticed.wait()
                except TimeoutError:
                    return
            else:
                await asyncio.sleep(0.05)

    async def _ask(self, method: str, path: str, body: object = None, *, place: str = "") -> Any:
        """A request of an operator, in the clients' process, to any responding server or to that of
        a place; None if it failed."""
        route = self.world.route_to(self._link, place) if place else self._route()

        async def ask() -> Any:
            headers = MERGE if method == "PATCH" else JSON
            data = b"" if body is None else orjson.dumps(body)
            try:
                async with asyncio.timeout(10.0):
                    answer = await route.handle(method, path, headers, data)
            except (OSError, EOFError, TimeoutError):
                return None
            if answer.status >= 300 or not isinstance(answer.body, bytes):
                return None
            return orjson.loads(answer.body)

        return await self._clients.task(ask(), f"{method} {path}")
