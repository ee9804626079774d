"""The clients of a world: they write, read, list and watch all the time, and check every response.

Each write has a unique stamp, so that a stored value identifies its write. Responses are compared
with the ledger on arrival: acknowledged writes are stored, reads are not older than writes
acknowledged before the request, a conflict has a reason, and there is no status 500.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from restow.client import InProcessResponse
from restow.migration.names import PROOF_ANNOTATION
from restow.migration.records import record_of
from restow.storage.interface import Key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.support.sim.ledger import FORGED, Ledger
from tests.support.sim.loop import SimulatedLoop
from tests.support.sim.routes import Route

REQUEST_SECONDS_MAX: Final = 12.0
JSON: Final = {"content-type": "application/json"}
MERGE: Final = {"content-type": "application/merge-patch+json"}
REQUESTS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
CACHED_LISTS: Final = 0.5
RESET_SECONDS_MAX: Final = 8.0
"""Time after an operator accepted a store, in which responses from the former may arrive."""
NAMES_MAX: Final = 24
"""Number of objects that a client creates, changes and deletes repeatedly."""
_CLOSING: Final = b"while custom resource definition is terminating"
_BROKEN: Final = (OSError, EOFError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of the written objects."""

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]

    @property
    def root(self) -> str:
        return f"/registry/{self.group}/{self.plural}/"

    def path(self, version: str, name: str = "") -> str:
        base = f"/apis/{self.group}/{version}/namespaces/default/{self.plural}"
        return f"{base}/{name}" if name else base


class Writer:
    """One client that changes objects of one kind."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        route: Route,
        ledger: Ledger,
        loop: SimulatedLoop,
        *,
        seed: str,
        gap_seconds: float,
        reads_caches: bool = False,
    ) -> None:
        """`reads_caches`: some of its lists may be served from the caches of a server."""
        self.name = name
        self._kind = kind
        self._route = route
        self._ledger = ledger
        self._loop = loop
        self._random = Random(seed)
        self._gap_seconds = gap_seconds
        self._reads_caches = reads_caches
        self._sent = 0
        self._read: dict[str, dict[str, Any]] = {}
        """Objects as this client has last seen them."""
        self._branch = 0
        self._outdated: set[str] = set()
        """Objects that it has last seen in a store that was replaced since."""
        self.is_over = False
        self.acknowledged = 0
        self.last_at = 0.0
        """Time of the last acknowledged write."""

    async def run(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._random.random() * 2 * self._gap_seconds)
            act: Callable[[], Awaitable[None]] = self._random.choices(
                (
                    *(self._create, self._replace, self._patch, self._delete),
                    *(self._get, self._list, self._discover),
                ),
                (4, 4, 3, 1.5, 2, 1, 0.5),
            )[0]
            try:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    await act()
            except _BROKEN:
                self._ledger.counts["unanswered"] += 1

    # Operations.

    async def _create(self) -> None:
        name = f"{self.name}-{self._random.randrange(NAMES_MAX)}"
        if name in self._read:
            return
        stamp, version = self._stamp(), self._version()
        body = self._object(version, {"name": name}, {"stamp": stamp})
        known = len(self._ledger.revisions[self._key(name)])
        answer = await self._send("POST", self._kind.path(version), body)
        self._ledger.checked["F9"] += 1
        if answer.status == 409:
            # Only this client uses the name: an existing object was created by an earlier write
            # of its own, whose response was lost; or by this one, which must not be.
            stored = self._ledger.current(self._key(name))
            if stored is not None and stored.stamp == stamp:
                self._ledger.problem(f"F9: {name} is refused because this write has created it")
            if stored is None and len(self._ledger.revisions[self._key(name)]) == known:
                self._ledger.problem(f"F2: {name} is refused as existing, and does not exist")
            await self._look(name)
        else:
            self._judge(answer, name, stamp)

    async def _replace(self) -> None:
        if not self._read:
            return
        name = self._random.choice(list(self._read))
        seen, stamp, version = self._read[name], self._stamp(), self._version()
        metadata = {"name": name, "resourceVersion": seen["metadata"]["resourceVersion"]}
        spec = {"stamp": stamp, "base": seen["spec"]["stamp"]}
        body = self._object(version, metadata, spec)
        answer = await self._send("PUT", self._kind.path(version, name), body)
        if answer.status == 409:
            if name not in self._outdated:
                self._check_conflict(name, stamp, int(metadata["resourceVersion"]))
            await self._look(name)
        else:
            self._judge(answer, name, stamp)

    async def _patch(self) -> None:
        if not self._read:
            return
        name, stamp = self._random.choice(list(self._read)), self._stamp()
        body = {"spec": {"stamp": stamp, "base": None}}
        answer = await self._send("PATCH", self._kind.path(self._version(), name), body, MERGE)
        self._judge(answer, name, stamp)

    async def _delete(self) -> None:
        if not self._read:
            return
        name = self._random.choice(list(self._read))
        answer = await self._send("DELETE", self._kind.path(self._version(), name))
        if answer.status in (200, 404):
            self._read.pop(name, None)
        self._check_code(answer)

    async def _get(self) -> None:
        if self._read:
            await self._look(self._random.choice(list(self._read)))

    async def _look(self, name: str) -> None:
        answer = await self._send("GET", self._kind.path(self._version(), name))
        self._check_code(answer)
        if answer.status == 404:
            self._read.pop(name, None)
        elif answer.status == 200:
            seen = self._read[name] = orjson.loads(_body(answer))
            self._outdated.discard(name)
            self._ledger.checked["A2"] += 1
            if seen["spec"]["stamp"] in self._ledger.lost:
                self._note_lost(f"{name} is read as {seen['spec']}")
            elif seen["spec"]["stamp"] not in self._ledger.stamps:
                self._ledger.problem(f"A2: {name} is read with {seen['spec']}, never stored")

    async def _list(self) -> None:
        if self._reads_caches and self._random.random() < CACHED_LISTS:
            await self._list_cached()
            return
        ledger, newest = self._ledger, self._ledger.counts["acknowledged"]
        answer = await self._send("GET", self._kind.path(self._version()))
        self._check_code(answer)
        if answer.status != 200:
            return
        found = orjson.loads(_body(answer))
        revision = int(found["metadata"]["resourceVersion"])
        ledger.checked["A5"] += 1
        if revision < newest:
            ledger.problem(f"A5: a list at {revision} began after {newest} was acknowledged")
        items = {
            f"default/{each['metadata']['name']}": str((each.get("spec") or {}).get("stamp", ""))
            for each in found["items"]
        }
        ledger.checked["A4"] += 1
        if gone := ledger.lost.intersection(items.values()):
            self._note_lost(f"a list at {revision} has {sorted(gone)}")
        stored = ledger.at(self._kind.root, revision)
        if items != stored:
            lost, more = stored.items() - items.items(), items.items() - stored.items()
            ledger.problem(f"A4: a list at {revision} lacks {sorted(lost)}, has {sorted(more)}")

    async def _list_cached(self) -> None:
        """A cached list may be old, but not from a store that was replaced."""
        ledger = self._ledger
        answer = await self._send("GET", f"{self._kind.path(self._version())}?resourceVersion=0")
        self._check_code(answer)
        if answer.status != 200:
            return
        items = orjson.loads(_body(answer))["items"]
        stamps = {str((each.get("spec") or {}).get("stamp", "")) for each in items}
        ledger.checked["S7"] += ledger.accepted_at is None
        since = max(ledger.branch_at, ledger.unpaused_at) + RESET_SECONDS_MAX
        if ledger.now() > since and (gone := ledger.lost.intersection(stamps)):
            self._note_lost(f"a cached list has {sorted(gone)}")

    def _note_lost(self, what: str) -> None:
        """A read returned a write that the store lacks: its server must have noticed. When a store
        goes back by less than the writes in flight, a server may see no older revision."""
        server = self._route.asked
        is_known = server is not None and server.has_seen_another_store
        if is_known or self._ledger.accepted_at is not None:
            self._ledger.problem(f"S7: {what}, which is not stored")

    async def _discover(self) -> None:
        """The server itself checks whether its discovery is correct (`servers`)."""
        self._ledger.checked["D1"] += 1
        await self._send("GET", f"/apis/{self._kind.group}/{self._version()}")

    # Checks.

    def _judge(self, answer: InProcessResponse, name: str, stamp: str) -> None:
        """Check the response to a write."""
        self._check_code(answer)
        if answer.status in (404, 410):
            self._read.pop(name, None)
        self._ledger.checked["S7"] += self._ledger.accepted_at is None
        if answer.status not in (200, 201):
            return
        seen = self._read[name] = orjson.loads(_body(answer))
        self._outdated.discard(name)
        revision, ledger = int(seen["metadata"]["resourceVersion"]), self._ledger
        ledger.checked["A2"] += 1
        self._check_suspect(stamp)
        stored = ledger.stamps.get(stamp)
        if stored is None:
            ledger.problem(f"A2: {stamp} of {name} is acknowledged, and not stored")
        elif stored.revision != revision:
            ledger.problem(f"A2: {stamp} is stored at {stored.revision}, answered {revision}")
        ledger.counts["acknowledged"] = max(ledger.counts["acknowledged"], revision)
        self.acknowledged += 1
        self.last_at = self._loop.time()

    def _check_conflict(self, name: str, stamp: str, base: int) -> None:
        """Another client has changed it; a failed fence is not a conflict."""
        self._ledger.checked["F2"] += 1
        key = self._key(name)
        later = [
            stored
            for number, stored in zip(
                self._ledger.revisions[key], self._ledger.history[key], strict=True
            )
            if number > base
        ]
        if not later:
            self._ledger.problem(f"F2: {name} is reported as changed since {base}, and was not")
        elif later[0] is not None and later[0].stamp == stamp:
            self._ledger.problem(f"F9: {name} is refused because this write has changed it")

    def _check_code(self, answer: InProcessResponse) -> None:
        self._ledger.counts[f"answer {answer.status}"] += 1
        self._ledger.checked["F3"] += 1
        if answer.status >= 500 and answer.status not in (503, 504):
            self._ledger.problem(f"F3: a response {answer.status}: {_body(answer)[:300]!r}")
        elif answer.status == 403 and _CLOSING in _body(answer):
            # Creates are rejected while the CRD is terminating.
            self._ledger.counts["closing"] += 1
        elif answer.status in (400, 403, 405, 422):
            self._ledger.problem(f"F3: refused with {answer.status}: {_body(answer)[:300]!r}")

    def _object(self, version: str, metadata: dict[str, Any], spec: dict[str, Any]) -> Any:
        kind = self._kind
        head = {"apiVersion": f"{kind.group}/{version}", "kind": kind.kind}
        return {**head, "metadata": metadata, "spec": spec}

    def _stamp(self) -> str:
        self._sent += 1
        return f"{self.name}/{self._sent}"

    def _version(self) -> str:
        return self._random.choice(self._kind.versions)

    def _key(self, name: str) -> Key:
        return Key(f"{self._kind.root}default/{name}")

    async def _send(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> InProcessResponse:
        data = b"" if body is None else orjson.dumps(body)
        branch = self._note_branch()
        answer = await self._route.handle(method, path, JSON if headers is None else headers, data)
        if self._note_branch() != branch:
            # The store of the response is unknown; but a write to another one is not acknowledged.
            if isinstance(body, dict) and answer.status in (200, 201):
                self._check_suspect(str(body["spec"]["stamp"]))
            raise ConnectionResetError("the store was replaced meanwhile")
        return answer

    def _check_suspect(self, stamp: str) -> None:
        is_known = self._ledger.suspect.get(stamp)
        if is_known is not None and is_known():
            self._ledger.problem(f"S7: {stamp} is acknowledged, on a store that was not accepted")

    def _note_branch(self) -> int:
        if self._branch != self._ledger.branch:
            self._branch = self._ledger.branch
            self._outdated = set(self._read)
        return self._branch


class Watcher:
    """A client that lists, watches, and resumes where it was after an interruption."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        route: Route,
        ledger: Ledger,
        *,
        seed: str,
        patience_seconds: float,
    ) -> None:
        self.name = name
        self._kind = kind
        self._route = route
        self._ledger = ledger
        self._random = Random(seed)
        self._patience_seconds = patience_seconds
        self._known: dict[str, tuple[int, str]] = {}
        """Revisions and stamps of the existing objects."""
        self._position = 0
        self._branch = 0
        """Of the store that it has listed."""
        self.is_over = False
        self.events = 0

    async def run(self) -> None:
        while not self.is_over:
            try:
                if not self._position:
                    await self._list()
                await self._watch()
            except _BROKEN:
                self._ledger.counts["watches cut"] += 1
            except _Expired:
                self._position = 0
            await asyncio.sleep(self._random.random())

    async def _list(self) -> None:
        path, branch = self._kind.path(self._kind.versions[0]), self._ledger.branch
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            answer = await self._route.handle("GET", path, JSON, b"")
        if answer.status != 200 or branch != self._ledger.branch:
            raise OSError(answer.status)
        self._branch = branch
        found = orjson.loads(_body(answer))
        self._position = int(found["metadata"]["resourceVersion"])
        self._known = {
            each["metadata"]["name"]: (
                int(each["metadata"]["resourceVersion"]),
                str((each.get("spec") or {}).get("stamp", "")),
            )
            for each in found["items"]
        }

    async def _watch(self) -> None:
        path = self._kind.path(self._random.choice(self._kind.versions))
        query = f"?watch=1&resourceVersion={self._position}&allowWatchBookmarks=true"
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            answer = await self._route.handle("GET", path + query, JSON, b"")
        if answer.status == 410:
            self._ledger.checked["S8"] += self._is_abandoned
            raise _Expired
        if answer.status != 200 or isinstance(answer.body, bytes):
            raise OSError(answer.status)
        rest, pieces = b"", answer.body
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        try:
            async with asyncio.timeout_at(deadline):
                async for piece in pieces:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        self._take(orjson.loads(line))
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    def _take(self, event: dict[str, Any]) -> None:
        """Check one event: in order, once, with the correct previous state, and none missing."""
        ledger, kind, obj = self._ledger, event["type"], event["object"]
        if kind == "ERROR":
            if obj.get("code") == 410:
                ledger.checked["S8"] += self._is_abandoned
                raise _Expired
            raise OSError(obj.get("code"))
        if self._branch != ledger.branch:
            self._check_reset(kind, obj)
            return
        revision = int(obj["metadata"]["resourceVersion"])
        if kind != "BOOKMARK" and revision <= self._position:
            ledger.problem(f"A3: {self.name} got {revision} after {self._position}")
        if kind == "BOOKMARK":
            missed = ledger.between(self._kind.root, self._position, revision + 1)
            if missed:
                ledger.problem(f"A3: {self.name} is at {revision}, and did not get {missed}")
            self._position = max(self._position, revision)
            return
        missed = ledger.between(self._kind.root, self._position, revision)
        self.events += 1
        ledger.checked["A3"] += 1
        if missed:
            ledger.problem(f"A3: {self.name} got {revision}, and not {missed}")
        name = obj["metadata"]["name"]
        if (kind == "ADDED") == (name in self._known):
            ledger.problem(f"A3: {self.name} got {kind} of {name}, known {self._known.get(name)}")
        if kind == "DELETED":
            self._known.pop(name, None)
        else:
            stamp = str((obj.get("spec") or {}).get("stamp", ""))
            self._known[name] = revision, stamp
            stored = ledger.stamps.get(stamp)
            if stamp and (stored is None or stored.name != name):
                ledger.problem(f"A3: {self.name} got {stamp}, which was never stored")
        self._position = revision

    @property
    def _is_abandoned(self) -> bool:
        """Whether its position never existed in the present store."""
        ledger = self._ledger
        return self._branch != ledger.branch and self._position > ledger.branch_floor

    def _check_reset(self, kind: str, obj: dict[str, Any]) -> None:
        """The store was replaced since the list: events in flight may still arrive, and then the
        watch ends."""
        ledger, accepted_at = self._ledger, self._ledger.accepted_at
        revision = int(obj["metadata"]["resourceVersion"])
        if self._is_abandoned and accepted_at is not None:
            since = max(accepted_at, ledger.unpaused_at) + RESET_SECONDS_MAX
            if ledger.now() > since:
                ledger.problem(
                    f"S8: {self.name} was at {self._position} of a store that was replaced, and"
                    f" got {kind} of {revision}"
                )
        if not self._is_abandoned:
            self._position = max(self._position, revision)


class Forger:
    """A client that tries forbidden writes."""

    def __init__(self, route: Route, ledger: Ledger, name: str) -> None:
        self._route = route
        self._ledger = ledger
        self._name = name

    async def run(self) -> None:
        """Try each forbidden write once."""
        await self._forge_report()
        if self._ledger.is_fenced:
            await self._forge_migrations()
            await self._forge_state()

    async def _forge_migrations(self) -> None:
        """Mark every migration of the trigger as succeeded and verified. The epoch is a wrong one,
        as one with the right epoch is compared with what is stored (M1)."""
        found = await self._send("GET", REQUESTS)
        for each in [] if found is None else found["items"]:
            marks = each["metadata"].get("annotations") or {}
            record = record_of(marks)
            if record is None:
                continue
            mark = f"{record.storage_version.partition('/')[0]}/epoch/0"
            proof = orjson.dumps({"target": record.target, "mark": mark}).decode()
            path = f"{REQUESTS}/{each['metadata']['name']}"
            await self._send(
                "PATCH", path, {"metadata": {"annotations": {PROOF_ANNOTATION: proof}}}
            )
            done = [{"type": "Succeeded", "status": "True"}]
            await self._send("PATCH", f"{path}/status", {"status": {"conditions": done}})

    async def _forge_state(self) -> None:
        """Remove one hash after the other from the state."""
        group, _, plural = self._name.rpartition(".")
        path = f"/apis/migration.k8s.io/v1alpha1/storagestates/{plural}.{group}"
        found = await self._send("GET", path)
        hashes = (found or {}).get("status", {}).get("persistedStorageVersionHashes") or []
        for each in hashes if len(hashes) > 1 else ():
            if each == UNKNOWN_HASH or UNKNOWN_HASH not in hashes:
                left = [other for other in hashes if other != each]
                read = {"resourceVersion": found["metadata"]["resourceVersion"]}
                status = {"metadata": read, "status": {"persistedStorageVersionHashes": left}}
                self._ledger.checked["M5"] += 1
                if await self._send("PATCH", f"{path}/status", status) is not None:
                    self._ledger.problem(f"M5: a client has removed {each} from {path}")

    async def _send(self, method: str, path: str, body: object = None) -> Any:
        """The response; None if the request failed."""
        data = b"" if body is None else orjson.dumps(body)
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                answer = await self._route.handle(method, path, MERGE, data)
        except _BROKEN:
            return None
        return orjson.loads(_body(answer)) if answer.status < 300 else None

    async def _forge_report(self) -> None:
        base = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{self._name}"
        version = f"{FORGED}/v9"
        entry = {
            "apiServerID": FORGED,
            "encodingVersion": version,
            "decodableVersions": [version],
        }
        status = {"status": {"storageVersions": [entry], "commonEncodingVersion": version}}
        for method, path in (("PATCH", f"{base}/status"), ("PATCH", base), ("DELETE", base)):
            body = b"" if method == "DELETE" else orjson.dumps(status)
            try:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    answer = await self._route.handle(method, path, MERGE, body)
            except _BROKEN:
                continue
            self._ledger.checked["R3"] += 1
            if answer.status < 300 and FORGED.encode() in _body(answer):
                self._ledger.problem(f"R3: {method} {path} was accepted: {_body(answer)[:300]!r}")


class _Expired(Exception):
    """410 (Gone): the server no longer has the history since."""


def _body(answer: InProcessResponse) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b""
