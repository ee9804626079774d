"""What remote APIs have in a namespace is deleted, and what they do wrong is theirs alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
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
    """An API and what its documents say."""
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
    """Documents as a test says."""

    def __init__(self, versions: list[RemoteVersion]) -> None:
        super().__init__()
        self._all = versions

    def versions(self) -> Iterable[RemoteVersion]:
        return self._all


class World:
    """The servers of some APIs: each path has an answer, or one after another."""

    def __init__(self, *versions: RemoteVersion) -> None:
        self.clock = SimulatedClock()
        self.answers: dict[str, list[Any]] = {}
        """By method and target; the last one stays."""
        self.asked: list[str] = []
        self.listeners: list[Callable[[], None]] = []
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
        """Nothing is open."""

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


async def test_only_what_can_be_in_a_namespace_is_asked_for() -> None:
    """Each namespaced resource that can be deleted is asked for once, in its first version."""
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


async def test_an_api_that_was_not_discovered_is_said() -> None:
    """An API of which nothing is known yet holds up the namespace, and is not asked."""
    fresh = known("a.example.com", "v1", offer("notes", *ALL))
    world = World(RemoteVersion(api=fresh.api, resources=fresh.resources))
    left = await world.empty()
    assert left
    assert left.undiscovered == {"a.example.com/v1": "it was not discovered yet"}
    assert world.asked == []


async def test_objects_are_deleted_one_by_one_if_need_be() -> None:
    """A server without deletecollection, even one that claims it, is asked for each, page by page;
    names are no paths."""
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


async def test_what_stays_is_counted() -> None:
    """Objects that are still there are counted, with those that were not listed, and finalizers."""
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
        (b"<html>", "the list cannot be read"),
        (b'{"items":[{"metadata":{"name":7}}]}', "the list cannot be read"),
        (b"[" * 5_000, "the list cannot be read"),
    ],
)
async def test_a_wrong_answer_is_noted_and_the_rest_goes_on(wrong: object, why: str) -> None:
    """What a server says wrongly of one resource keeps the namespace, and no other resource."""
    world = World(known("a.example.com", "v1", offer("bad", *ALL), offer("notes", *ALL)))
    world.answers |= {
        listing("bad"): [wrong],
        listing("notes"): [items("x"), EMPTY],
        f"DELETE {place('notes')}": [EMPTY],
    }
    left = await world.empty()
    assert left.failures == [f"bad.a.example.com: {why}"]
    assert f"DELETE {place('notes')}" in world.asked


async def test_a_server_that_hangs_or_breaks_holds_up_itself() -> None:
    """Another API is emptied while one does not answer at all, and that one is given up."""
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
