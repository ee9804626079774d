"""An in-memory API server behind the transport interface: one resource, with faults.

It has resource versions, pages at a version, watches from a version, compaction and conflicts: all
that a client can observe. Tests change `refuse` and `cut` to make it fail.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import StatusError
from restow.client import ApiClient, InProcessResponse, InProcessTransport, Object

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
_NAMES = GroupResource("", "configmaps")


@dataclass(frozen=True)
class Sent:
    """A request as received by the server."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Sent:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return cls(method, parts.path, query, headers, orjson.loads(body) if body else None)


class FakeApi:
    """The server. Objects are stored by path."""

    def __init__(self) -> None:
        self.version = 10
        self.compacted = 0
        self.objects: dict[str, Object] = {}
        self.events: list[tuple[int, str, str, Object]] = []
        self.sent: list[Sent] = []
        self.refuse: list[StatusError | Exception] = []
        """Raised by the next requests, one each."""
        self.lost_answers = 0
        """The number of writes that are executed without a response."""
        self.watches = 0
        self._changed = asyncio.Event()
        self._cuts = 0

    # Used by tests.

    def put(self, path: str, value: Object, *, kind: str = "MODIFIED") -> Object:
        """Store an object under a path such as `/api/v1/namespaces/a/configmaps/b`."""
        self.version += 1
        stored = copy.deepcopy(value)
        metadata = stored.setdefault("metadata", {})
        metadata["name"] = path.rsplit("/", 1)[1]
        if "/namespaces/" in path:
            metadata["namespace"] = path.split("/namespaces/")[1].partition("/")[0]
        metadata.setdefault("uid", f"uid-{self.version}")
        metadata["resourceVersion"] = str(self.version)
        kind = kind if path in self.objects else "ADDED"
        self.objects[path] = stored
        self._record(kind, path, stored)
        return stored

    def remove(self, path: str) -> None:
        self.version += 1
        gone = copy.deepcopy(self.objects.pop(path))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._record("DELETED", path, gone)

    def compact(self) -> None:
        """Discard the history."""
        self.compacted = self.version
        self.events.clear()

    def cut(self) -> None:
        """Break all open watches."""
        self._cuts += 1
        self._wake()

    def _record(self, kind: str, path: str, value: Object) -> None:
        self.events.append((self.version, kind, path, value))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # The server.

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        await asyncio.sleep(0)
        sent = Sent.of(method, target, headers, body)
        self.sent.append(sent)
        try:
            if self.refuse:
                raise self.refuse.pop(0)
            if "watch" in sent.query:
                return InProcessResponse(200, self._watch(sent))
            answer = self._answer(sent)
        except StatusError as error:
            return InProcessResponse(error.code, error.to_bytes(), _headers_of(error))
        if method != "GET" and self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionResetError
        return InProcessResponse(201 if method == "POST" else 200, orjson.dumps(answer))

    def _answer(self, sent: Sent) -> Object:
        match sent.method:
            case "GET" if _is_named(sent.path):
                return self._found(sent.path)
            case "GET":
                return self._list(sent)
            case "POST":
                path = f"{sent.path}/{sent.body['metadata']['name']}"
                if path in self.objects:
                    raise status.already_exists(_NAMES, path)
                return self.put(path, sent.body)
            case "PUT":
                self._check(sent.path, sent.body["metadata"].get("resourceVersion"))
                return self.put(sent.path, sent.body)
            case "DELETE":
                conditions = sent.body.get("preconditions", {})
                self._check(sent.path, conditions.get("resourceVersion"))
                self.remove(sent.path)
                return {"kind": "Status", "status": "Success"}
            case _:
                raise status.method_not_allowed()

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise status.not_found(_NAMES, path.rsplit("/", 1)[1])
        return self.objects[path]

    def _check(self, path: str, version: str | None) -> None:
        if version and self._found(path)["metadata"]["resourceVersion"] != version:
            raise status.conflict(_NAMES, path)

    def _list(self, sent: Sent) -> Object:
        begin, version = 0, self.version
        if token := sent.query.get("continue"):
            begin, version = map(int, token.split("-"))
            if 0 < version <= self.compacted:
                raise status.expired("too old", continue_token=f"{begin}-0")
            version = version or self.version
        paths = sorted(path for path in self.objects if _is_under(path, sent.path))
        limit = int(sent.query.get("limit", 0)) or len(paths)
        end = begin + limit
        metadata: Object = {"resourceVersion": str(version)}
        if end < len(paths):
            metadata |= {"continue": f"{end}-{version}", "remainingItemCount": len(paths) - end}
        items = [self.objects[path] for path in paths[begin:end]]
        return {
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": copy.deepcopy(items),
        }

    async def _watch(self, sent: Sent) -> AsyncIterator[bytes]:
        self.watches += 1
        cuts, seen = self._cuts, int(sent.query["resourceVersion"])
        try:
            while True:
                if seen < self.compacted:
                    error = status.resource_version_too_old(seen, self.compacted).to_dict()
                    yield _line("ERROR", error)
                    return
                for version, kind, path, value in list(self.events):
                    if version > seen and _is_under(path, sent.path):
                        yield _line(kind, value)
                    seen = max(seen, version)
                if self._cuts != cuts:
                    raise ConnectionResetError
                await self._changed.wait()
        finally:
            self.watches -= 1


def _is_named(path: str) -> bool:
    """Whether the path is that of an object, not of a collection."""
    parts = path.split("/")[1:]
    return len(parts[3 if parts[0] == "apis" else 2 :]) % 2 == 0


def _is_under(path: str, collection: str) -> bool:
    if path.startswith(f"{collection}/"):
        return True
    resource = collection.rsplit("/", 1)[1]
    return "/namespaces/" not in collection and f"/{resource}/" in path


def _line(kind: str, value: Object) -> bytes:
    return orjson.dumps({"type": kind, "object": value}) + b"\n"


def _headers_of(error: StatusError) -> dict[str, str]:
    seconds = error.retry_after_seconds
    return {"Retry-After": str(seconds)} if seconds else {}


def new_client(api: FakeApi, *, seed: str = "client") -> tuple[ApiClient, SimulatedClock]:
    """A client of an in-memory server, with a clock that the test controls."""
    clock = SimulatedClock()
    runtime = Runtime.simulated(seed, clock=clock)
    return ApiClient(InProcessTransport(api.handle), runtime=runtime), clock
