"""Runs scenario files: one command per line, `#` begins a comment.

    start s1 x+1 [mode=strict] [change-mode] [force] [keys=k2,k1,identity]
                                                       start, and wait until it has registered
    begin s1 x+1 ...                                   start, without waiting
    crash s1 at commit 3 before|after                  before its start: it is killed there
    stop s1        withdraw and end            kill s1     end without withdrawing
    pause s1       SIGSTOP                     wake s1     SIGCONT
    cut s1         block the connection        restore s1  unblock it and end all faults
    faults s1 reply_lost=0.1 error=0.5 ...     chances, see `wires.Chances`; also before its start
    keys s1 k2,k1  its encryption keys, the write key first, unless they are rejected
    advance 17s                                advance time
    write s1 a     write, and wait for it
    send s1 a      create, without waiting: of a paused server, the transaction was sent before
    narrow v1      the state lists one version only, as after a verified migration
    recreate-state the state is deleted and created again by a client, without a status
    foreign-lease k 60   a kube-apiserver that does not participate has a lease of 60 seconds
    plant b v2     an object is written to the store, as such a server does
    hang-up        the clients of all sent writes disconnect
    heal           wake and restore all servers, and advance two minutes
    seed 7         the seed of all random decisions, if not 1
    expect <what> ...                          see `EXPECTATIONS`

Versions are written without their group. A file may begin with `each n=1..3 mode=report,strict`:
it is run once for every combination, with `{n}` and `{mode}` replaced. A failed expectation is
reported with its position, the expected and the actual value.
"""

from __future__ import annotations

import asyncio
import itertools
import shlex
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY
from restow.storage.errors import OpenRefused, StorageError, Unavailable
from restow.storage.interface import Event, Key, Put, RevisionIs, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.errors import KeyUnsupported, ModeRefused
from restow.storageversion.object_codec import LEASES_PREFIX, state_key
from restow.storageversion.rules import KEYS_EQUAL, UNKNOWN_HASH
from tests.scenarios.cluster import Cluster, Node
from tests.support.wires import Chances
from tests.unit.storageversion.named_keys import NamedKeys
from tests.unit.storageversion.world import GROUP

HEAL_SECONDS = 120.0
START_SECONDS_MAX = 60.0
NONE = "none"


class ScenarioFailed(AssertionError):
    """An expectation of a scenario was not met."""


@dataclass(frozen=True, slots=True)
class Line:
    """One command and its position."""

    place: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    lines: tuple[Line, ...]

    @property
    def seed(self) -> int:
        seeds = [int(line.words[1]) for line in self.lines if line.words[0] == "seed"]
        return seeds[0] if seeds else 1

    @classmethod
    def of_text(cls, name: str, text: str, *, place: str | None = None) -> Scenario:
        lines = enumerate(text.splitlines(), start=1)
        found = [Line(f"{place or name}:{number}", line.strip()) for number, line in lines]
        return cls(name, tuple(line for line in found if line.words))


def scenarios_of(path: Path) -> Iterator[Scenario]:
    """Yields the scenarios of a file: one, or one per combination of its first line."""
    text = path.read_text(encoding="utf-8")
    whole = Scenario.of_text(path.stem, text, place=f"{path.parent.name}/{path.name}")
    if whole.lines[0].words[0] != "each":
        yield whole
        return
    names, values = zip(*(_alternatives(word) for word in whole.lines[0].words[1:]), strict=True)
    for chosen in itertools.product(*values):
        filled = dict(zip(names, chosen, strict=True))
        label = ",".join(f"{name}={value}" for name, value in filled.items())
        yield Scenario(
            f"{path.stem}[{label}]",
            tuple(replace(line, text=line.text.format(**filled)) for line in whole.lines[1:]),
        )


def _alternatives(word: str) -> tuple[str, list[str]]:
    name, _, values = word.partition("=")
    first, dots, last = values.partition("..")
    if dots:
        return name, [str(number) for number in range(int(first), int(last) + 1)]
    return name, values.split(",")


class Runner:
    """Runs one scenario on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._crashes: dict[str, tuple[int, str]] = {}
        self._refusals: dict[str, str] = {}
        self._faults: dict[str, dict[str, float]] = {}
        self.sent: list[asyncio.Task[None]] = []

    async def play(self, scenario: Scenario) -> None:
        try:
            for line in scenario.lines:
                await self._play(line)
        finally:
            for task in self.sent:
                task.cancel()
            await asyncio.gather(*self.sent, return_exceptions=True)
        self.cluster.storage.check()

    async def _play(self, line: Line) -> None:
        command, *words = line.words
        if command == "expect":
            await self._expect(line, words)
            return
        try:
            await getattr(self, f"do_{command.replace('-', '_')}")(*words)
        except (TimeoutError, ModeRefused, StatusError) as error:
            raise ScenarioFailed(f"{line.place}: {line.text}: {error!r}") from error

    # Commands.

    async def do_seed(self, seed: str) -> None:
        """Checks that the cluster uses this seed."""
        assert self.cluster.seed == int(seed)

    async def do_start(self, name: str, release: str, *options: str) -> None:
        """Waits until it is registered, has crashed, or was refused (which `expect` checks)."""
        node = await self._begin(name, release, options)
        began_at = self.cluster.clock.monotonic()
        assert node.starting is not None
        while not node.starting.done() and not node.wire.crashed.is_set():
            if self.cluster.clock.monotonic() - began_at > START_SECONDS_MAX:
                break
            await self.cluster.clock.advance(0.05)
        if node.wire.crashed.is_set():
            await node.end()
            return
        await self._note_end_of_start(name, node)

    async def do_begin(self, name: str, release: str, *options: str) -> None:
        await self._begin(name, release, options)
        await self.cluster.clock.settle()

    async def _begin(self, name: str, release: str, options: tuple[str, ...]) -> Node:
        given: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition("=")
            match key:
                case "mode":
                    given["mode"] = value
                case "change-mode":
                    given["may_change_mode"] = True
                case "force":
                    given["may_force"] = True
                case "keys":
                    given["keys"] = NamedKeys(value.split(","))
                case _:
                    raise ValueError(f"no option of start: {option}")
        if given.get("mode") in ("loose", "off"):
            self.cluster.storage.is_fenced = False
        node = self.cluster.node(name, release, **given)
        if name in self._crashes:
            number, moment = self._crashes.pop(name)
            node.wire.crash_at = (number, "before" if moment == "before" else "after")
        self._refusals.pop(name, None)
        await self.cluster.begin(node)
        self._set_faults(node, self._faults.pop(name, {}))
        return node

    async def _note_end_of_start(self, name: str, node: Node) -> None:
        """A server that cannot reach the store before it has joined may stop."""
        if node.starting is None or not node.starting.done() or node.starting.cancelled():
            return
        error = node.starting.exception()
        if isinstance(error, ModeRefused | OpenRefused):
            self._refusals[name] = str(error)
            if isinstance(error, OpenRefused):
                await self.cluster.run(node.server.stop())
                await node.end()
        elif isinstance(error, Unavailable) and not node.server.coordinator.membership.is_member:
            await node.end()
        elif error is not None:
            raise error

    async def do_crash(self, name: str, _at: str, _commit: str, number: str, moment: str) -> None:
        self._crashes[name] = (int(number), moment)

    async def do_keys(self, name: str, names: str) -> None:
        """Applies a new configuration file: checked first, then in effect."""
        server = self.cluster.nodes[name].server
        assert server.keys is not None, f"{name} does not encrypt"
        try:
            await self.cluster.run(server.coordinator.check_keys(NamedKeys(names.split(","))))
        except (KeyUnsupported, StorageError, TimeoutError) as error:
            self._refusals[name] = str(error)
            return
        self._refusals.pop(name, None)
        server.keys.change(names.split(","))
        await self.cluster.clock.settle()

    async def do_stop(self, name: str) -> None:
        node = self.cluster.nodes[name]
        await node.cancel_start()
        await self.cluster.run(node.server.stop())
        await node.end()

    async def do_kill(self, name: str) -> None:
        await self.cluster.nodes[name].end()

    async def do_pause(self, name: str) -> None:
        self.cluster.nodes[name].pause()

    async def do_wake(self, name: str) -> None:
        self.cluster.nodes[name].wake()
        await self.cluster.clock.settle()

    async def do_cut(self, name: str) -> None:
        node = self.cluster.nodes[name]
        node.was_disturbed = node.wire.link.is_cut = True

    async def do_restore(self, name: str) -> None:
        node = self.cluster.nodes[name]
        node.wire.link.is_cut, node.wire.link.chances = False, Chances()
        node.wire.link.look_again()

    async def do_faults(self, name: str, *chances: str) -> None:
        found = {field: float(value) for field, _, value in (c.partition("=") for c in chances)}
        node = self.cluster.nodes.get(name)
        if node is None or not node.is_running:
            self._faults[name] = found
        else:
            self._set_faults(node, found)

    def _set_faults(self, node: Node, chances: dict[str, float]) -> None:
        for field, value in chances.items():
            assert hasattr(node.wire.link.chances, field), field
            node.wire.link.set(**{field: value})
            node.was_disturbed = node.was_disturbed or not field.endswith("delay_seconds")

    async def do_advance(self, seconds: str) -> None:
        await self.cluster.clock.advance(float(seconds.removesuffix("s")))

    async def do_write(self, name: str, obj: str) -> None:
        """A rejection is kept for `expect refused`."""
        self._refusals.pop(name, None)
        node = self.cluster.nodes[name]
        try:
            stamp = str(self.cluster.clock.monotonic())
            await self.cluster.run(node.server.write(obj, stamp=stamp))
        except StatusError as error:
            self._refusals[name] = f"{error.code}: {error}"

    async def do_send(self, name: str, obj: str) -> None:
        node = self.cluster.nodes[name]

        async def write() -> None:
            try:
                await node.server.create(obj, stamp=str(self.cluster.clock.monotonic()))
            except StatusError as error:
                self._refusals[name] = f"{error.code}: {error}"

        self.sent.append(asyncio.create_task(write(), name=f"write {obj}"))
        await self.cluster.clock.settle()

    async def do_narrow(self, version: str) -> None:
        persisted = [storage_version_hash(GroupVersionKind.of(f"{GROUP}/{version}", "Widget"))]
        await self._change_state(lambda state: state["status"].update(
            persistedStorageVersionHashes=persisted))  # fmt: skip

    async def do_recreate_state(self) -> None:
        metadata = {"name": f"widgets.{GROUP}", "uid": "made-by-hand"}
        await self._change_state(lambda state: state.update(metadata=metadata, status={}))

    async def do_foreign_lease(self, name: str, seconds: str) -> None:
        lease = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": "kube-system",
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            },
            "spec": {"leaseDurationSeconds": int(seconds)},
        }
        await self._plant(Put(Key(f"{LEASES_PREFIX}{name}"), orjson.dumps(lease)))

    async def do_plant(self, name: str, version: str) -> None:
        metadata = {"name": name, "namespace": "ns", "uid": name}
        obj = {"kind": "Widget", "apiVersion": f"{GROUP}/{version}", "metadata": metadata}
        await self._plant(Put(Key(f"/registry/{GROUP}/widgets/ns/{name}"), orjson.dumps(obj)))

    async def _plant(self, write: Put) -> None:
        """Without the audit, which has the rules of participating servers only."""
        await MemoryStorage.commit(self.cluster.storage, Transaction((), (write,)))
        await self.cluster.clock.settle()

    async def _change_state(self, edit: Callable[[dict[str, Any]], None]) -> None:
        item = await self.cluster.storage.get(state_key(f"{GROUP}.widgets"))
        assert item is not None
        state = orjson.loads(item.value)
        edit(state)
        guard = RevisionIs(item.key, item.revision)
        put = Put(item.key, orjson.dumps(state))
        await self.cluster.storage.commit(Transaction((guard,), (put,)))
        await self.cluster.clock.settle()

    async def do_hang_up(self) -> None:
        for task in self.sent:
            task.cancel()
        await self.cluster.clock.settle()

    async def do_heal(self) -> None:
        for name, node in self.cluster.running().items():
            await self.do_restore(name)
            node.wake()
        await self.cluster.clock.advance(HEAL_SECONDS)
        for name, node in self.cluster.running().items():
            await self._note_end_of_start(name, node)

    # Expectations.

    async def _expect(self, line: Line, words: list[str]) -> None:
        what, *wanted = words
        if what not in EXPECTATIONS:
            raise ValueError(f"{line.place}: nothing is known of {what!r}")
        seen = await EXPECTATIONS[what](self, wanted)
        if isinstance(seen, str):
            expected = " ".join(wanted)
            if seen != expected:
                raise ScenarioFailed(
                    f"{line.place}: {line.text}\n  expected {expected}\n  seen     {seen}"
                )
        elif not seen[0]:
            raise ScenarioFailed(f"{line.place}: {line.text}\n  seen     {seen[1]}")

    async def common(self, wanted: list[str]) -> str:
        return _short(await self.cluster.common())

    async def selected(self, wanted: list[str]) -> str:
        """The selected version of the vote and of the fence, which must be equal."""
        votes, selected = await self.cluster.votes(), await self.cluster.selected()
        if [vote.selected for vote in votes] != ([] if selected is None else [selected]):
            return f"{selected} at the fence, {[vote.selected for vote in votes]} voted for"
        return _short(selected)

    async def candidates(self, wanted: list[str]) -> str:
        return self._pairs((c.server_id, c.preferred) for b in await self.cluster.votes()
                           for c in b.candidates)  # fmt: skip

    async def entries(self, wanted: list[str]) -> str:
        report = await self.cluster.report()
        if report is None:
            return NONE
        return self._pairs((entry.server_id, entry.encoding_version) for entry in report.entries)

    def _pairs(self, pairs: Any) -> str:
        named = sorted((self.cluster.name_of(name), _short(version)) for name, version in pairs)
        return " ".join(f"{name}={version}" for name, version in named) or NONE

    async def stored(self, wanted: list[str]) -> str:
        return f"{wanted[0]} {await self.cluster.stored(wanted[0])}"

    async def epoch(self, wanted: list[str]) -> str:
        return str((await self.cluster.epoch()).epoch)

    async def persisted(self, wanted: list[str]) -> str:
        names = {
            storage_version_hash(GroupVersionKind.of(f"{GROUP}/{v}", "Widget")): v
            for v in ("v1", "v2")
        }
        names[UNKNOWN_HASH] = UNKNOWN_HASH
        return " ".join(names[value] for value in (await self.cluster.state()).persisted)

    async def condition(self, wanted: list[str]) -> str:
        report = await self.cluster.report()
        if report is None:
            return NONE
        return f"{report.conditions[0].status} {report.conditions[0].reason}"

    async def keys(self, wanted: list[str]) -> str:
        """The encryption key of each server."""
        report = await self.cluster.report()
        if report is None:
            return NONE
        return self._pairs((entry.server_id, _key_name(entry.key_id)) for entry in report.entries)

    async def sealed(self, wanted: list[str]) -> str:
        """The encryption key of a stored object."""
        return f"{wanted[0]} {_key_name(await self.cluster.key_of(wanted[0]))}"

    async def persisted_keys(self, wanted: list[str]) -> str:
        return " ".join(map(_key_name, (await self.cluster.state()).keys))

    async def keys_equal(self, wanted: list[str]) -> str:
        report = await self.cluster.report()
        conditions = () if report is None else report.conditions
        found = [c for c in conditions if c.type == KEYS_EQUAL]
        return f"{found[0].status} {found[0].reason}" if found else NONE

    async def ready(self, wanted: list[str]) -> tuple[bool, str]:
        states = {name: self.cluster.nodes[name].server.coordinator.completed for name in wanted}
        return all(states.values()), str(states)

    async def waiting(self, wanted: list[str]) -> tuple[bool, str]:
        """Not ready, with a reason that contains a text."""
        server = self.cluster.nodes[wanted[0]].server
        reason = str(server.coordinator.pending(server.resource()))
        return not server.coordinator.completed and wanted[1] in reason, reason

    async def refused(self, wanted: list[str]) -> tuple[bool, str]:
        """Its last write, or its start, was rejected with a text."""
        reason = self._refusals.get(wanted[0], "not refused")
        return wanted[1] in reason, reason

    async def accepted(self, wanted: list[str]) -> tuple[bool, str]:
        reasons = {name: self._refusals.get(name, "") for name in wanted}
        return not any(reasons.values()), str(reasons)

    async def renamed(self, wanted: list[str]) -> tuple[bool, str]:
        """The number of identities that the server has had."""
        keys = {event.key for event in _history(self.cluster) if event.value is not None}
        incarnations = [key for key in keys if key.startswith("/restow/servers/")]
        node = self.cluster.nodes[wanted[0]]
        first = f"{node.server.name!r}"
        found = [key for key in incarnations if await self._host(key) == node.server.name]
        return len(found) == int(wanted[1]), f"{first} has had {len(found)} identities"

    async def _host(self, key: str) -> str:
        return next(
            event.value.decode().partition('"host":"')[2].partition('"')[0]
            for event in _history(self.cluster)
            if event.key == key and event.value is not None
        )

    async def members(self, wanted: list[str]) -> str:
        found = (await self.cluster.storage.range(Span.of_prefix("/restow/servers/"))).items
        ids = [item.key.rpartition("/")[2] for item in found]
        return " ".join(sorted(self.cluster.name_of(server_id) for server_id in ids)) or NONE


Seen = str | tuple[bool, str]
EXPECTATIONS: dict[str, Callable[[Runner, list[str]], Awaitable[Seen]]] = {
    "common": Runner.common,
    "selected": Runner.selected,
    "candidates": Runner.candidates,
    "entries": Runner.entries,
    "members": Runner.members,
    "stored": Runner.stored,
    "epoch": Runner.epoch,
    "persisted": Runner.persisted,
    "condition": Runner.condition,
    "keys": Runner.keys,
    "sealed": Runner.sealed,
    "persisted-keys": Runner.persisted_keys,
    "keys-equal": Runner.keys_equal,
    "ready": Runner.ready,
    "waiting": Runner.waiting,
    "refused": Runner.refused,
    "accepted": Runner.accepted,
    "identities": Runner.renamed,
}


def _key_name(key_id: str) -> str:
    """The key's name in scenarios."""
    return key_id.split(":")[1] if ":" in key_id else IDENTITY


def _short(version: str | None) -> str:
    return NONE if version is None else version.removeprefix(f"{GROUP}/")


def _history(cluster: Cluster) -> list[Event]:
    return [event for entry in cluster.storage._log for event in entry.events]
