"""Writers: each creates, updates, patches, deletes and reads objects that all of them share.

They share a common rate. Each write has a unique token, so that it is found in the log of the store
whatever happened to its response. Not here: connections (`clients`), and checks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Final, TypedDict

from restow.aio import Clock, SeededRandomness, SystemClock
from tests.support.api_client import JSON, MERGE_PATCH, Reply
from tests.support.fire.clients import Connections, Health, NoAnswer, NotSent, Target
from tests.support.fire.objects import (
    END,
    NAMES,
    NAMESPACES,
    WIDGETS,
    Kind,
    Spec,
    is_written,
)
from tests.support.fire.record import NOT_SENT, NOT_SERVED, PUT_OFF, Operation, Shown, Verb

WRITERS: Final = 16
OPERATIONS_MAX: Final = 2_000_000
"""Maximum of operations of one writer."""
END_ATTEMPTS_MAX: Final = 60
END_SECONDS: Final = 0.25
STALE: Final = 0
"""Stands for the unknown revision of an object that another writer changed: read it first."""
_METHODS: Final[dict[Verb, str]] = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "get": "GET",
    "list": "GET",
}
# Percentages of operations on an existing object.
_UPDATES, _PATCHES, _GUARDED_PATCHES, _DELETES, _GUARDED_DELETES, _GETS = 40, 70, 78, 83, 90, 96


class _Known(TypedDict):
    """The last response about an object, shared by all writers."""

    revision: int
    spec: Spec


class Pace:
    """Limits all writers together to so many operations per second; delays are not caught up."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._gap_seconds = 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        now = self._clock.monotonic()
        self._next = max(self._next + self._gap_seconds, now)
        await self._clock.sleep(self._next - now)


class Writers:
    """All writers of a load, and the last known state of the objects."""

    def __init__(
        self,
        target: Target,
        *,
        tls: ssl.SSLContext,
        seed: int,
        per_second: float,
        has_record: bool = True,
        kinds: Sequence[Kind] = (WIDGETS,),
    ) -> None:
        self._kinds = tuple(kinds)
        self.operations: list[Operation] = []
        self.acknowledged = 0
        self.count = 0
        """Operations that were begun, recorded or not."""
        self._has_record = has_record
        self._clock = SystemClock()
        self._health = Health(len(target.ports), self._clock)
        self._pace = Pace(per_second, self._clock)
        self._seed = seed
        self._target, self._tls = target, tls
        self._known: dict[tuple[str, str, str], _Known] = {}
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Run until `stop`; then wait for operations in flight."""
        writers = [
            group.create_task(self._write(number), name=f"writer {number}")
            for number in range(WRITERS)
        ]
        await asyncio.wait(writers)

    async def write_ends(self) -> bool:
        """Write the last object of every namespace and kind; whether all succeeded."""
        connections = Connections(self._target, self._tls)
        chance = SeededRandomness(f"{self._seed}/ends")
        done = [
            await self._write_end(connections, chance, kind, each)
            for kind in self._kinds
            for each in NAMESPACES
        ]
        connections.abort()
        return all(done)

    async def _write_end(
        self, connections: Connections, chance: SeededRandomness, kind: Kind, namespace: str
    ) -> bool:
        for attempt in range(END_ATTEMPTS_MAX):
            token = f"end.{kind.plural}.{namespace}.{attempt}"
            operation = await self._send(
                connections,
                Operation(
                    writer=WRITERS,
                    server=self._health.pick(chance),
                    verb="create",
                    resource=kind.resource_name,
                    namespace=namespace,
                    name=END,
                    token=token,
                    spec={"token": token, "counts": {}},
                    began=0.0,
                ),
            )
            if operation.is_done or operation.status == 409:
                return True
            await self._clock.sleep(END_SECONDS)
        return False

    async def _write(self, number: int) -> None:
        connections = Connections(self._target, self._tls)
        chance = SeededRandomness(f"{self._seed}/writer/{number}")
        for turn in range(OPERATIONS_MAX):
            await self._pace.wait()
            if self._stopping:
                break
            await self._send(connections, self._next(number, turn, chance))
        connections.abort()

    def _next(self, writer: int, turn: int, chance: SeededRandomness) -> Operation:
        kind = chance.choice(self._kinds)
        namespace, name = chance.choice(NAMESPACES), chance.choice(NAMES)
        known = self._known.get((kind.resource_name, namespace, name))
        token = f"{writer}.{turn}"
        counts = {f"c{writer}": turn}
        mine: Spec = {"token": token, "counts": counts}
        operation = Operation(
            writer=writer,
            server=self._health.pick(chance),
            verb="create",
            resource=kind.resource_name,
            namespace=namespace,
            name=name,
            token=token,
            spec=mine,
            began=0.0,
        )
        if known is None:
            return operation
        draw = chance.randrange(100)
        if known["revision"] == STALE:
            operation.verb, operation.spec, operation.token = "get", {}, ""
        elif draw < _UPDATES:
            operation.verb, operation.precondition = "update", known["revision"]
            others = known["spec"].get("counts", {})
            operation.spec = {"token": token, "counts": others | counts}
        elif draw < _GUARDED_PATCHES:
            operation.verb = "patch"
            operation.precondition = 0 if draw < _PATCHES else known["revision"]
        elif draw < _GUARDED_DELETES:
            operation.verb, operation.spec = "delete", {}
            operation.precondition = 0 if draw < _DELETES else known["revision"]
        else:
            operation.verb, operation.spec, operation.token = "get", {}, ""
            if draw >= _GETS:
                operation.verb, operation.name = "list", ""
        return operation

    async def _send(self, connections: Connections, operation: Operation) -> Operation:
        """Execute and record it."""
        operation.began = self._clock.monotonic()
        versions = operation.kind.versions
        self.count += 1
        if self._has_record:
            self.operations.append(operation)
        try:
            reply = await connections.request(
                operation.server,
                _METHODS[operation.verb],
                *_request(operation, versions[self.count % len(versions)]),
            )
        except (NotSent, NoAnswer) as error:
            if isinstance(error, NotSent):
                operation.status = NOT_SENT
            self._health.avoid(operation.server)
        else:
            take_answer(operation, reply)
            if operation.status in PUT_OFF:
                self._health.avoid(operation.server)
            self._learn(operation, reply)
        operation.ended = self._clock.monotonic()
        self.acknowledged += operation.is_write and operation.is_done
        return operation

    def _learn(self, operation: Operation, reply: Reply) -> None:
        place = (operation.resource, operation.namespace, operation.name)
        match operation.verb, operation.status:
            case "list", _:
                pass
            case ("delete", 200) | (_, 404):
                self._known.pop(place, None)
            case _, 409:
                self._known[place] = {"revision": STALE, "spec": {}}
            case _, 200 | 201:
                known = self._known.get(place)
                if known is None or known["revision"] < operation.revision:
                    spec = reply.json.get("spec", {})
                    self._known[place] = {"revision": operation.revision, "spec": spec}
            case _:
                pass


def take_answer(operation: Operation, reply: Reply) -> None:
    """Copy the response into the operation."""
    operation.status = reply.status
    if not operation.is_done:
        operation.reason = reply.reason
        if reply.status == 404 and not _names_object(reply):
            operation.status = NOT_SERVED
        return
    body: dict[str, Any] = reply.json
    if operation.verb == "list":
        operation.revision = int(body["metadata"]["resourceVersion"])
        operation.shown = tuple(
            show(operation.kind, item)
            for item in body["items"]
            if is_written(item["metadata"]["name"])
        )
    elif operation.verb == "delete":
        operation.uid = body["details"]["uid"]
    else:
        metadata = body["metadata"]
        operation.revision, operation.uid = int(metadata["resourceVersion"]), metadata["uid"]
        operation.content = operation.kind.content_of(body)
        if operation.verb == "create":
            operation.created_at = metadata["creationTimestamp"]


def _names_object(reply: Reply) -> bool:
    """Whether a 404 is about an object, and not about a path that is not served."""
    return bool(reply.reason) and bool(reply.json.get("details", {}).get("name"))


def show(kind: Kind, item: dict[str, Any]) -> Shown:
    metadata = item["metadata"]
    return Shown(
        metadata["namespace"],
        metadata["name"],
        int(metadata["resourceVersion"]),
        kind.content_of(item),
    )


def _request(operation: Operation, version: str) -> tuple[str, Any, str]:
    """The path, the body and its type."""
    namespace, name, precondition = operation.namespace, operation.name, operation.precondition
    kind = operation.kind
    path = kind.path_of(version, namespace, name)
    match operation.verb:
        case "create":
            body = kind.body_of(version, name, operation.spec)
            return kind.path_of(version, namespace), body, JSON
        case "update":
            return path, kind.body_of(version, name, operation.spec, precondition), JSON
        case "patch":
            patch = kind.fields_of(operation.spec)
            if precondition:
                patch["metadata"] = {"resourceVersion": str(precondition)}
            return path, patch, MERGE_PATCH
        case "delete":
            guards = {"preconditions": {"resourceVersion": str(precondition)}}
            return path, guards if precondition else None, JSON
        case "get" | "list":
            return path, None, JSON
