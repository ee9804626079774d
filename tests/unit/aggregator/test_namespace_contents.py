"""Objects of remote APIs in a namespace are deleted; an error affects its own API only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import pytest

from restow.aggregator.documents_index import NoRemotes, RemoteVersion
from restow.aggregator.interface import RemoteApi, ServiceRef
from restow.aggregator.namespace_contents import (
    API_SECONDS_MAX,
    PAGE,
    RemoteNamespaceContents,
)
from restow.aio import SimulatedClock
from restow.aio.events import EventChannel
from restow.client.transport import (
    ClientRequest,
    ClientResponse,
    InProcessResponse,
    InProcessTransport,
)
from restow.controllers.namespace_conditions import Leftovers

ALL = ("delete", "deletecollection", "get", "list")
EMPTY: dict[str, Any] = {"items": []}


def offer(name: str, *verbs: str, scope: str = "Namespaced") -> dict[str, Any]:
    return {"resource": name, "scope": scope, "verbs": list(verbs)}


def known(group: str, version: str = "v1", *offers: dict[str, Any]) -> RemoteVersion:
    """An API with the resources of its documents."""
    api = RemoteApi(
        name=f"{version}.{group}",
        uid=f"uid-{version}-{group}",
        group=group,
        version=version,
        service=ServiceRef(namespace="default", name="some"),
    )
    members = b",".join(orjson.dumps(each) for each in offers)
    return RemoteVersion(api=api, is_fresh=True, resources=members)


class Known(NoRemotes):
    """Documents defined by the test."""

    def __init__(self, versions: list[RemoteVersion]) -> None:
        super().__init__()
        self._all = versions

    def versions(self) -> Iterable[RemoteVersion]:
        return self._all


class World:
    """The servers of some APIs: each path has one response, or a sequence."""

    def __init__(self, *versions: RemoteVersion) -> None:
        self.clock = SimulatedClock()
        self.answers: dict[str, list[Any]] = {}
        """By method and target; the last one is repeated."""
        self.asked: list[str] = []
        self.changed: EventChannel[[]] = EventChannel()
        self.failed: list[str] = []
        self.contents = RemoteNamespaceContents(
            self, Known(list(versions)), self, self.clock, on_failed=self.failed.append
        )

    def find(self, group: str, version: str) -> RemoteApi | None:
        raise AssertionError("never asked")

    def all(self) -> list[RemoteApi]:
        raise AssertionError("never asked")

    def unavailable(self, api: RemoteApi) -> str | None:
        return None

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        async def handle(
            method: str, target: str, _: Mapping[str, str], body: bytes
        ) -> InProcessResponse:
            key = f"{method} {target}"
            self.asked.append(key)
            answers = self.answers.get(key, [404])
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(found, asyncio.Event):
                await found.wait()
            if isinstance(found, OSError):
                raise found
            if isinstance(found, int):
                return InProcessResponse(found, b'{"message":"because"}')
            return InProcessResponse(
                200, found if isinstance(found, bytes) else orjson.dumps(found)
            )

        return InProcessTransport(handle, server="some").send(request)

    async def close(self) -> None:
        """Nothing to close."""

    async def empty(self) -> Leftovers:
        left = Leftovers()
        await self.contents.empty("n", left)
        return left


def place(resource: str, group: str = "a.example.com", version: str = "v1") -> str:
    return f"/apis/{group}/{version}/namespaces/n/{resource}"


def listing(resource: str, *, token: str = "", group: str = "a.example.com") -> str:
    more = f"&continue={token}" if token else ""
    return f"GET {place(resource, group)}?limit={PAGE}{more}"


def items(*names: str, token: str = "") -> dict[str, Any]:
    listed = [{"metadata": {"name": each}} for each in names]
    return {"metadata": {"continue": token}, "items": listed}


async def test_only_namespaced_resources_are_requested() -> None:
    """Each namespaced, deletable resource is requested once, in its first version."""
    world = World(
        known(
            "a.example.com",
            "v1",
            offer("notes", *ALL),
            offer("readings", "get", "list"),
            offer("clusters", *ALL, scope="Cluster"),
        ),
        known("a.example.com", "v1beta1", offer("notes", *ALL)),
    )
    world.answers[listing("notes")] = [EMPTY]
    assert not await world.empty()
    assert world.asked == [listing("notes")]


async def test_an_undiscovered_api_is_reported() -> None:
    """An API whose resources are unknown blocks the namespace, and is not called."""
    fresh = known("a.example.com", "v1", offer("notes", *ALL))
    world = World(RemoteVersion(api=fresh.api, resources=fresh.resources))
    left = await world.empty()
    assert left
    assert left.undiscovered == {"a.example.com/v1": "it has not been discovered yet"}
    assert world.asked == []


async def test_objects_are_deleted_one_by_one_if_need_be() -> None:
    """At a server without deletecollection, even one that claims it, objects are deleted one by
    one, page by page; names are escaped in paths."""
    for verbs in (ALL, ("delete", "list")):
        world = World(known("a.example.com", "v1", offer("notes", *verbs)))
        world.answers |= {
            listing("notes"): [items("x"), items("x", "y/z", token="t"), EMPTY],
            listing("notes", token="t"): [items("last")],
            **{f"DELETE {place('notes')}/{name}": [EMPTY] for name in ("x", "y%2Fz", "last")},
        }
        assert not await world.empty()
        deleted = [each for each in world.asked if each.startswith("DELETE ")]
        names = [each.rpartition("/")[2] for each in deleted if not each.endswith("/notes")]
        assert names == ["x", "y%2Fz", "last"]


async def test_remaining_objects_are_counted() -> None:
    """Remaining objects are counted, including those that were not listed, and their finalizers."""
    world = World(known("a.example.com", "v1", offer("notes", *ALL)))
    held = {"metadata": {"name": "x", "finalizers": ["hold"]}}
    world.answers[listing("notes")] = [{"metadata": {"remainingItemCount": 4}, "items": [held]}]
    world.answers[f"DELETE {place('notes')}"] = [EMPTY]
    left = await world.empty()
    assert left.counts == {"notes.a.example.com": 5}
    assert left.finalizers == {"hold": 1}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (403, "status 403: because"),
        (500, "status 500: because"),
        (302, "status 302: because"),
        (b"<html>", "invalid list response"),
        (b'{"items":[{"metadata":{"name":7}}]}', "invalid list response"),
        (b"[" * 5_000, "invalid list response"),
    ],
)
async def test_a_wrong_answer_is_noted_and_the_rest_goes_on(wrong: object, why: str) -> None:
    """An invalid response for one resource blocks the namespace, but no other resource."""
    world = World(known("a.example.com", "v1", offer("bad", *ALL), offer("notes", *ALL)))
    world.answers |= {
        listing("bad"): [wrong],
        listing("notes"): [items("x"), EMPTY],
        f"DELETE {place('notes')}": [EMPTY],
    }
    left = await world.empty()
    assert left.failures == [f"bad.a.example.com: {why}"]
    assert f"DELETE {place('notes')}" in world.asked


async def test_a_hanging_or_broken_server_delays_no_others() -> None:
    """Other APIs are emptied while one does not respond at all, which times out."""
    world = World(
        known("hangs.example.com", "v1", offer("notes", *ALL), offer("more", *ALL)),
        known("breaks.example.com", "v1", offer("notes", *ALL)),
        known("a.example.com", "v1", offer("notes", *ALL)),
    )
    for resource in ("notes", "more"):
        world.answers[listing(resource, group="hangs.example.com")] = [asyncio.Event()]
    world.answers[listing("notes", group="breaks.example.com")] = [ConnectionResetError()]
    world.answers[listing("notes")] = [items("x"), EMPTY]
    world.answers[f"DELETE {place('notes')}"] = [EMPTY]
    emptying = asyncio.create_task(world.empty())
    await world.clock.settle()
    assert f"DELETE {place('notes')}" in world.asked
    await world.clock.advance(API_SECONDS_MAX)
    left = await emptying
    said = {each.partition(":")[0] for each in left.failures}
    assert said == set(world.failed) == {"v1.hangs.example.com", "v1.breaks.example.com"}
