"""The director of a world with advice: operators act, ask, and follow the answers.

At the end all faults are over, the operator removes all values that no release can read, and all
servers run one release: from then on the answer for it must become "safe" within a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupResource
from restow.localcluster import rolling_upgrade
from restow.localcluster.managed_process import ProcessState
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.migration.led_controller import TRIGGER
from restow.migration.names import PROOF_ANNOTATION
from restow.migration.parts import PART_NAMES
from restow.migration.preflight import PreflightFinding, PreflightReport
from restow.migration.trigger.values import Settings
from restow.storage.interface import Delete, Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from tests.support.sim import releases
from tests.support.sim.advice import reference
from tests.support.sim.advice.operator import Operator
from tests.support.sim.advice.plan import RAW_VALUES, READ_ALL
from tests.support.sim.advice.soundness import UNKNOWN, Soundness
from tests.support.sim.advice.stores import Backup, Stores
from tests.support.sim.clients import REQUESTS
from tests.support.sim.director import DEFINITIONS, GADGETS, START_SECONDS_MAX, Director
from tests.support.sim.keys import IDENTITY, NAMES, file_of, id_of, open_value
from tests.support.sim.plan import CONTROLLERS, Plan, Step
from tests.support.sim.servers import SimServer
from tests.support.sim.world import World

STATES_PATH: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"
WIDGETS: Final = GroupResource(releases.GROUP, releases.PLURAL)
PLAIN: Final = frozenset({IDENTITY})
CRD_PATH: Final = f"{DEFINITIONS}/{GADGETS.plural}.{GADGETS.group}"
DOWN_SECONDS_MAX: Final = 20.0
"""Timeout of an operator for servers that were told to stop."""
STEP_SECONDS_MAX: Final = 60.0
"""Timeout of a step of an upgrade, before its server gets its old release again."""
SAFE_SECONDS_MAX: Final = 120.0
"""Maximum time until a healthy cluster gets "safe" for the release it runs."""
ASK_SECONDS: Final = 5.0
FINALIZED: Final = 3
"""Objects with a finalizer, which a deletion of their CRD does not remove."""
ALL_VERSIONS: Final = ("v1", "v2", "v9")
SETTLE_SECONDS_MAX: Final = 40.0
CONTROLLER_SETS: Final[dict[str, tuple[str, ...]]] = {
    "all": PART_NAMES,
    "trigger": (TRIGGER,),
    "none": (),
}


class AdviceDirector(Director):
    """Plays one plan of `advice.plan`."""

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.soundness = Soundness(world, is_voted=plan.mode == "strict")
        self.operator = Operator(self._clients, world.loop, f"{plan.seed}/operator")
        self.may_change_mode = True
        self.keys: dict[str, tuple[str, ...]] = {}
        """The encryption configuration of each place."""
        self.trigger_rules = Settings()  # the bounds hold for the defaults
        self._origins: dict[str, str] = {}
        """The releases before the last upgrade, by place."""
        self._blockers: Sequence[PreflightFinding] | None = None
        """The blockers of the last step."""
        self._puts = 0
        self.stores = Stores(world, f"{plan.seed}/stores")
        self.soundness.on_write = self.stores.note_write
        self.set_keys(plan.keys)
        self.is_defined_at_last = plan.has_custom
        """Whether the CRD was not deleted permanently."""

    def _start(self, place: str) -> SimServer:
        server = super()._start(place)
        # Changes that an operator made before take effect now.
        server.on_other_keys = self.soundness.keys_taken
        return server

    async def _carry_out(self, step: Step) -> None:
        """Execute a step: questions and releases here, other acts in `_break`."""
        argument = str(step.argument)
        if step.act not in ("ask", "compare", "status"):
            self.soundness.forget()
        match step.act:
            case "ask":
                await self._ask_preflight(argument, keys=_keys(step.target))
            case "compare":
                await self._compare(argument)
            case "status":
                await self._ask_status()
            case "settle":
                await self._until(self._is_settled, SETTLE_SECONDS_MAX)
            case "controllers":
                self.parts = CONTROLLER_SETS[argument]
                self._restart_controllers()
            case "upgrade":
                await self._upgrade(argument, (step.target,) if step.target else self.places)
            case "rollback":
                await self._roll_back()
            case "gate off":
                await self._switch_gate("off", step.target, argument)
            case "gate on":
                await self._switch_gate("on", step.target, argument)
            case "restart":
                await self._restart(self.places if step.target == "all" else (step.target,))
            case _:
                await self._break(step, argument)

    async def _break(self, step: Step, argument: str) -> None:
        """Do something that bookkeeping may miss; or inject a fault into a server."""
        match step.act:
            case "delete states":
                await self._delete_states(is_recreated=argument == "empty")
            case "forge verification":
                await self._forge_verification(argument)
            case "remove CRD by force":
                await self._remove_by_force()
            case "remove CRD":
                self.is_defined_at_last = False
                await self._ask("DELETE", CRD_PATH)
                await self._until(lambda: not self._is_defined(), START_SECONDS_MAX)
            case "define CRD":
                self.is_defined_at_last = True
                await self._define_versions(tuple(argument.split(",")))
            case "put raw value":
                await self._put_raw(argument)
            case "grow store":
                await self.stores.grow(int(argument.rpartition(" ")[2]))
            case "replace store" | "put store back" | "accept store" | "restore backup":
                await self._change_store(step.act, argument)
            case "set keys":
                self.set_keys(argument.split(","), step.target)
            case "remove key":
                await self._remove_key(argument, is_advised=step.target == "advised")
            case _:
                await super()._carry_out(step)

    # Stores and keys.

    async def _change_store(self, act: str, argument: str) -> None:
        how, _, back = argument.rpartition(" ")
        match act:
            case "replace store":
                self.stores.replace(how, int(back))
            case "put store back":
                self.stores.put_back()
            case "accept store":
                await self.stores.accept()
            case _:
                await self._restore(int(back))
        self.soundness.store_replaced()

    async def _restore(self, revisions_back: int) -> None:
        """Stop all servers, restore a backup, and start a release that can read it."""
        await self._stop_together()
        await self.stores.restore(revisions_back)
        running = set(self.assigned.values())
        raw = self.soundness.raw()
        if len(running) > 1 or any(reference.read(raw, each).unreadable for each in running):
            self.assigned = dict.fromkeys(self.places, READ_ALL[-1])
        self._find_keys()
        await self._start_together()

    def set_keys(self, keys: Sequence[str], place: str = "") -> None:
        """Write the encryption configuration of a server, or of all."""
        for each in (place,) if place else self.places:
            self.keys[each] = tuple(keys)
            self.world.files[each].keys = file_of(keys)

    def _find_keys(self) -> None:
        """Give all servers every key of a stored value or of another server: that server may write
        with its key before the others have loaded it."""
        if self.plan.keys:
            stored = {open_value(key, value).key for key, value in self.soundness.raw().items()}
            known = [each for keys in self.keys.values() for each in keys if each != IDENTITY]
            self.set_keys(tuple(dict.fromkeys((*known, *sorted(stored - {""}), IDENTITY))))

    async def _remove_key(self, key: str, *, is_advised: bool) -> None:
        """Remove a key from all configurations; `is_advised`: only if preflight allows it."""
        if is_advised:
            items = self.world.storage.all_items()
            source = Backup(items, self.world.storage.header.revision)
            report = await self.operator.removal(self._route(), key, source)
            if report is None or not report.is_safe:
                return
            self.soundness.may_remove(key)
        for place, keys in self.keys.items():
            left = [each for each in keys if each != key]
            self.set_keys(left or [IDENTITY], place)

    def keys_in_force(self, *places: str) -> frozenset[str] | None:
        """The keys that all of these servers have; None: none is ready, or has a configuration."""
        if not self.plan.keys:
            return None
        found = [
            set(server.encryption.keys.readable(WIDGETS))
            for server in self.world.ready()
            if server.encryption is not None and server.place in places
        ]
        if not found:
            return None
        ids = set.intersection(*found)
        # They may have no key in common, but a configuration has at least one provider.
        return frozenset(each for each in (*NAMES, IDENTITY) if id_of(each) in ids) or PLAIN

    # Questions.

    async def _ask_preflight(
        self, target: str, place: str = "", keys: frozenset[str] | None = None
    ) -> PreflightReport | None:
        """Query the server of a place, or any, and compare the answer with the raw store. `keys`:
        those of the target, if they differ from the servers'."""
        soundness = self.soundness
        route = self.world.route_to(self._link, place) if place else self._route()
        keys = keys if keys and self.plan.keys else self.keys_in_force(*self.places)
        question, unowned = soundness.asked(target, keys=keys), soundness.unowned(target)
        report = await self.operator.preflight(route, target, keys)
        is_safe = report is not None and report.is_safe
        soundness.answered(question, "preflight", is_safe=is_safe)
        if report is not None and is_safe:
            still = soundness.unowned(target)
            named = [*report.warnings, *report.blockers]
            soundness.check_named(target, {k: v for k, v in unowned.items() if k in still}, named)
        return report

    async def _compare(self, target: str) -> None:
        """Query every server, twice: the answers differ only if something changes meanwhile."""
        places = [each.place for each in self.world.ready() if not each.process.is_paused]
        rounds = [[await self._ask_preflight(target, place) for place in places] for _ in range(2)]
        answers = [[report and report.is_safe for report in reports] for reports in rounds]
        self.world.ledger.checked["S5"] += 1
        if answers[0] == answers[1] and {*answers[0]} == {True, False}:
            said = ", ".join(map(_said, places, rounds[1]))
            self.world.problem(f"S5: preflight for {target} depends on the server: {said}")

    async def _ask_status(self) -> None:
        server = self._witness("")
        if server is None:
            return
        asked = await self.operator.status(self.world.route_to(self._link, server.place))
        if asked is not None:
            again = await self.operator.status(self.world.route_to(self._link, server.place))
            if again is not None:
                release = server.options.release
                before = self.soundness.wrong_status(asked, release)
                self.soundness.called_ok(before, self.soundness.wrong_status(again, release))

    def _witness(self, target: str) -> SimServer | None:
        """A ready server, preferably of the target release."""
        ready = [each for each in self.world.ready() if not each.process.is_paused]
        return max(ready, key=lambda each: each.options.release == target, default=None)

    # Releases and gates.

    def _restart_controllers(self) -> None:
        for name in CONTROLLERS[: self.plan.controllers]:
            if name in self.world.controllers:
                self.world.controllers[name].end()
            self._start_controllers(name)

    def _is_settled(self) -> bool:
        """No migration is open, and every StorageState lists its hashes."""
        ledger = self.world.ledger
        states = [each for name, each in ledger.persisted.items() if name.endswith(releases.GROUP)]
        return not ledger.open_requests and all(each and UNKNOWN not in each for each in states)

    async def _upgrade(self, target: str, places: Sequence[str]) -> None:
        """As `restow upgrade --to`: one server after the other, each step as preflight allows."""
        if all(release == target for release in self.assigned.values()):
            return
        is_return = target in self._origins.values()
        origins = dict(self.assigned)
        for place in places:
            origin = self.assigned[place]
            if origin == target:
                continue
            if not await self._may_step(place, target, is_return=is_return):
                return
            self._origins = origins
            await self._replace(place, target)
            if not self._is_there(place):
                await self._replace(place, origin)
                return

    async def _may_step(self, place: str, target: str, *, is_return: bool) -> bool:
        """Whether a step is called safe; then it is checked against the raw store."""
        witness = self._witness(target)
        if witness is None:
            return False
        others = {each: release for each, release in self.assigned.items() if each != place}
        step = rolling_upgrade.Step(self.places.index(place), self.assigned[place], target)
        supervisor = self._supervisor_view()
        situation = replace(
            rolling_upgrade.situation_of(supervisor, step, releases.release_of),
            is_begun=is_return or target in self.assigned.values(),
        )
        question = self.soundness.asked(target, others, self.keys_in_force(place))
        route = self.world.route_to(self._link, witness.place)
        report = await self.operator.step(route, target, situation)
        if report is not None:
            away = rolling_upgrade.not_ready(supervisor, step, accepted=())
            report = replace(report, blockers=(*away, *report.blockers))
        self._blockers = None if report is None else report.blockers
        is_safe = report is not None and report.is_safe
        self.soundness.answered(question, f"the step of {place}", is_safe=is_safe)
        return is_safe

    def _supervisor_view(self) -> ProcessOverview:
        """The process overview of `restow up`."""
        ready = {
            each.place
            for each in self.world.ready()
            if not each.process.is_paused and _is_ready(each)
        }
        return ProcessOverview(
            pid=1,
            data_dir="",
            kubeconfig="",
            front_url="",
            store="memory:",
            is_ready=True,
            processes=tuple(
                ProcessView(
                    name=place,
                    state=(ProcessState.READY if place in ready else ProcessState.UNREADY).value,
                    index=index,
                    release=self.assigned[place],
                )
                for index, place in enumerate(self.places)
            ),
        )

    async def _roll_back(self) -> None:
        """As `restow upgrade --rollback`: the last server first, each to its previous release. A
        rollback that nothing in the store blocks becomes possible within the bound."""
        for place in reversed(self.places):
            origin = self._origins.get(place, self.assigned[place])
            if origin == self.assigned[place]:
                continue
            self.world.ledger.checked["S6"] += 1
            gives_up_at = self.world.loop.time() + SAFE_SECONDS_MAX
            while not await self._may_step(place, origin, is_return=True):
                if self.world.problems:
                    return
                if self.world.loop.time() > gives_up_at:
                    self._check_refusal(place, origin)
                    return
                await asyncio.sleep(ASK_SECONDS)
            await self._replace(place, origin)

    def _check_refusal(self, place: str, origin: str) -> None:
        """A rollback was refused all the time: something in the store must block it."""
        # Its own objects must not be left in another location either.
        others = dict(self.assigned)
        is_healthy = self.parts == PART_NAMES and self._are_all_there()
        against = self.soundness.against(origin, others, self.keys_in_force(place))
        wrong = {**against, **self.soundness.unowned(origin)}
        if is_healthy and self._blockers and not wrong:
            said = "; ".join(f"{each.resource}: {each.what}" for each in self._blockers)
            self.world.problem(f"S6: {place} cannot go back to {origin}: {said}")

    async def _replace(self, place: str, release: str) -> None:
        self.assigned[place] = release
        self._stop(place)
        await self._until(lambda: self._is_there(place), STEP_SECONDS_MAX)

    async def _switch_gate(self, to: str, how: str, release: str) -> None:
        """Restart all servers with the gate switched, together or one by one, and with another
        release if preflight calls it safe ("!": in any case)."""
        wanted = release.removeprefix("!")
        if wanted and not release.startswith("!"):
            report = await self._ask_preflight(wanted)
            wanted = wanted if report is not None and report.is_safe else ""
        self.soundness.forget()
        self.mode = "off" if to == "off" else self.plan.mode
        if how == "one by one":
            for place in self.places:
                await self._replace(place, wanted or self.assigned[place])
            return
        await self._restart_together(
            {place: wanted or self.assigned[place] for place in self.places}
        )

    async def _restart_together(self, assigned: Mapping[str, str]) -> None:
        await self._stop_together()
        self.assigned = dict(assigned)
        await self._start_together()

    async def _stop_together(self) -> None:
        self.kept_down.update(self.places)
        for place in self.places:
            self._stop(place)
        await self._until(lambda: not self.world.running(), DOWN_SECONDS_MAX)

    async def _start_together(self) -> None:
        self.kept_down.clear()
        await self._until(self._are_all_there, START_SECONDS_MAX)

    async def _restart(self, places: tuple[str, ...]) -> None:
        for place in places:
            server = self.world.servers[place]
            self._stop(place)
            await self._until(lambda server=server: not server.is_running, DOWN_SECONDS_MAX)  # type: ignore[misc]
            await self._until(lambda place=place: self._is_there(place), START_SECONDS_MAX)  # type: ignore[misc]

    def _is_there(self, place: str) -> bool:
        server = self.world.servers[place]
        return super()._is_there(place) and server.options.mode == self.mode

    def _are_all_there(self) -> bool:
        return all(self._is_there(place) for place in self.places)

    # Acts that break bookkeeping.

    async def _delete_states(self, *, is_recreated: bool) -> None:
        """Delete the StorageStates; `is_recreated`: and create them, which drops their status."""
        for name in (f"{releases.PLURAL}.{releases.GROUP}", f"{GADGETS.plural}.{GADGETS.group}"):
            if await self._ask("DELETE", f"{STATES_PATH}/{name}") is None or not is_recreated:
                continue
            plural, _, group = name.partition(".")
            spec = {"resource": {"group": group, "resource": plural}}
            await self._ask("POST", STATES_PATH, {"metadata": {"name": name}, "spec": spec})

    async def _forge_verification(self, how: str) -> None:
        """Mark every open migration as succeeded and verified."""
        played = set(self.world.ledger.names.values())
        for key, name in sorted(self.world.ledger.open_requests.items()):
            if name not in played or "/migration.k8s.io/" not in key:
                continue
            path = f"{REQUESTS}/{key.rpartition('/')[2]}"
            proof = "done by hand" if how == "text" else await self._forged_proof(path, name)
            await self._ask("PATCH", path, {"metadata": {"annotations": {PROOF_ANNOTATION: proof}}})
            condition = {"type": "Succeeded", "status": "True"}
            await self._ask("PATCH", f"{path}/status", {"status": {"conditions": [condition]}})

    async def _forged_proof(self, path: str, name: str) -> str:
        """The annotation that the migrator would set, from data that clients can read."""
        epoch = self.world.ledger.epochs.get(name)
        target = "" if epoch is None else epoch.version
        mark = "" if epoch is None else f"epoch/{epoch.epoch}"
        found = await self._ask("GET", path) or {}
        uid = (found.get("metadata") or {}).get("uid", "")
        return orjson.dumps({"target": target, "mark": mark, "uid": uid}).decode()

    async def _remove_by_force(self) -> None:
        """Delete a CRD whose objects have finalizers, then patch away its own finalizer."""
        version = self.storage_version if self.storage_version in self.custom_versions else "v1"
        for number in range(FINALIZED):
            metadata: dict[str, Any] = {
                "name": f"kept-{number}",
                "finalizers": ["example.com/keep"],
            }
            head = {"apiVersion": f"{GADGETS.group}/{version}", "kind": GADGETS.kind}
            stamp = {"stamp": f"kept/{self._puts}/{number}"}
            body = {**head, "metadata": metadata, "spec": stamp}
            await self._ask("POST", GADGETS.path(version), body)
        self._puts += 1
        await self._ask("DELETE", CRD_PATH)
        for _ in range(5):
            if not self._is_defined():
                return
            await self._ask("PATCH", CRD_PATH, {"metadata": {"finalizers": []}})
            await asyncio.sleep(0.5)

    async def _define_versions(self, versions: tuple[str, ...]) -> None:
        """Create or update the CRD with these versions, the last of which is stored."""
        self.custom_versions, self.storage_version = versions, versions[-1]
        if self._is_defined():
            await self._ask("DELETE", CRD_PATH)
            await self._until(lambda: not self._is_defined(), START_SECONDS_MAX)
        await self._define()
        await self._until(self._is_established, START_SECONDS_MAX)

    async def _put_raw(self, what: str) -> None:
        assert what in RAW_VALUES
        self._puts += 1
        name = f"raw-{self._puts}"
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
        obj: dict[str, Any] = {
            "kind": releases.KIND,
            "apiVersion": f"{releases.GROUP}/v1",
            "metadata": metadata,
            "spec": {"stamp": f"raw/{name}"},
        }
        key, value = f"{releases.ROOT}default/{name}", b""
        match what:
            case "garbage":
                value = b"\x00 no object"
            case "unknown version":
                value = orjson.dumps({**obj, "apiVersion": f"{releases.GROUP}/v9"})
            case "unknown prefix":
                key = f"/registry/unknown.example.com/things/default/{name}"
                value = orjson.dumps(
                    {**obj, "apiVersion": "unknown.example.com/v1", "kind": "Thing"}
                )
            case _:
                key = f"{releases.ROOT}{name}"
                del metadata["namespace"]
                value = orjson.dumps(obj)
        self.soundness.planted[key] = self.world.loop.time()
        await self._write_past(Put(Key(key), value))

    async def _write_past(self, *writes: Put | Delete) -> None:
        """Change the store directly, bypassing all servers."""
        await MemoryStorage.commit(self.world.storage, Transaction(writes=writes))

    # The end.

    async def _heal(self) -> None:
        """End all faults, and repair what servers cannot; then the answer for the running release
        becomes "safe" without further action."""
        self.is_healing = True
        self.soundness.forget()
        self._end_faults()
        if self.parts != PART_NAMES:
            self.parts = PART_NAMES
            self._restart_controllers()
        if not self.stores.is_accepted:
            await self._change_store("accept store", "")
        self._find_keys()
        running = set(self.assigned.values())
        is_at_rest = len(running) == 1 and running <= {*READ_ALL} and self.mode == self.plan.mode
        final = running.pop() if is_at_rest else self.plan.releases[1]
        await self._remove_unreadable(final)
        if not is_at_rest:
            self.mode = self.plan.mode
            await self._restart_together(dict.fromkeys(self.places, final))
        if self.is_defined_at_last or self.soundness.raw(GADGETS.root):
            await self._define_again_with_all()
        await self._remove_unreadable(final)
        await self._await_safe(final)
        await self._stop_all()

    async def _remove_unreadable(self, release: str) -> None:
        """Delete every raw value that the release cannot read, except custom resources, whose
        CRD will list all versions."""
        raw = self.soundness.raw()
        reading = reference.read(raw, release)
        found = [
            key
            for key in (*reading.unreadable, *reading.unowned)
            if key in raw and (not key.startswith(GADGETS.root) or _is_no_object(key, raw[key]))
        ]
        for key in found:
            await self._write_past(Delete(Key(key)))

    async def _define_again_with_all(self) -> None:
        """List every version that was ever stored in the CRD."""
        self.custom_versions, self.storage_version = ALL_VERSIONS, "v1"
        for _ in range(10):
            if not self._is_defined():
                await self._define()
            elif await self._list_all_versions():
                break
            await asyncio.sleep(1.0)

    async def _list_all_versions(self) -> bool:
        found = orjson.loads(orjson.dumps(self.world.ledger.definitions[GADGETS.root]))
        known = {each["name"] for each in found["spec"]["versions"]}
        if known >= set(ALL_VERSIONS):
            return True
        for name in sorted(set(ALL_VERSIONS) - known):
            first = found["spec"]["versions"][0]
            found["spec"]["versions"].append({**first, "name": name, "storage": False})
        return await self._ask("PUT", CRD_PATH, found) is not None

    async def _await_safe(self, release: str) -> None:
        world = self.world
        began, report = world.loop.time(), None
        while not world.problems:
            report = await self._ask_preflight(release)
            if report is not None and report.is_safe and self._are_all_there():
                break
            if world.loop.time() - began > SAFE_SECONDS_MAX:
                world.problem(self._never_safe(release, report))
                break
            await asyncio.sleep(ASK_SECONDS)
        self.settled_seconds = world.loop.time() - began
        world.ledger.checked["S4"] += 1
        if not world.problems:
            await self._ask_status()

    def _never_safe(self, release: str, report: PreflightReport | None) -> str:
        seconds = f"{SAFE_SECONDS_MAX:.0f} s"
        if not self._are_all_there():
            away = [each for each in self.places if not self._is_there(each)]
            return f"S4: {', '.join(away)} of {release} not ready after {seconds}"
        if report is None:
            return f"S4: preflight does not answer after {seconds}"
        said = "; ".join(f"{e.resource}: {e.what}: {e.why}" for e in report.blockers)
        return f"S4: {release} runs everywhere, and is not called safe after {seconds}: {said}"


def _is_ready(server: SimServer) -> bool:
    """The result of its readyz."""
    is_registered = server.coordinator is not None and server.coordinator.completed
    return is_registered and server.wire.blocked is None


def _keys(text: str) -> frozenset[str] | None:
    return frozenset(text.split(",")) if text else None


def _is_no_object(key: str, value: bytes) -> bool:
    return reference.decode(open_value(key, value).value) is None


def _said(place: str, report: PreflightReport | None) -> str:
    if report is None or report.is_safe:
        return f"{place} says safe"
    return f"{place} says {'; '.join(f'{each.resource} {each.what}' for each in report.blockers)}"
