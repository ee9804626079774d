"""The server for the tests of custom resources, and helpers for requests to it.

It is a real process, so that CRDs take the full path: controllers accept their names, resources are
registered and then served. All tests of a worker share it, each in an API group of its own, so none
has to clean up.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.crds.building import CRDS, Family, Json
from tests.support.api_client import ApiClient, Reply
from tests.support.server_process import ServerProcess

WAIT_SECONDS_MAX: Final = 20.0
POLL_SECONDS: Final = 0.02
SHOWN_CHARACTERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a server, and the credentials of its administrator."""

    port: int
    token: str
    ca_pem: str

    def client(self) -> ApiClient:
        tls = ssl.create_default_context(cadata=self.ca_pem)
        return ApiClient(self.port, token=self.token, tls=tls)


def place_of(server: ServerProcess) -> Place:
    return Place(server.port, server.token, server.ca_pem)


async def until(
    ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], *, what: str = ""
) -> Any:
    """Repeats a request until the response is as wanted; returns the response."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = await ask()
        if holds(found):
            return found
        last = str(found)[-SHOWN_CHARACTERS_MAX:]
        assert time.monotonic() < deadline, f"{what or 'it'} did not come; the last was ...{last}"
        await asyncio.sleep(POLL_SECONDS)


def condition(definition: Json, name: str) -> Json:
    """Returns a condition of a CRD; empty if it has none of this type."""
    for each in definition.get("status", {}).get("conditions") or []:
        if each["type"] == name:
            return dict(each)
    return {}


def is_true(name: str) -> Callable[[Reply], bool]:
    """Returns a check that a response has a condition with status True."""
    return lambda reply: condition(reply.json, name).get("status") == "True"


@dataclass(frozen=True, slots=True)
class Custom:
    """A server, with helpers for custom resources."""

    api: ApiClient

    async def define(self, definition: Json) -> Json:
        """Creates a CRD and waits until it is established."""
        reply = await self.api.post(CRDS, definition)
        assert reply.status == 201, reply.body
        return await self.established(definition["metadata"]["name"])

    async def established(self, name: str) -> Json:
        reply = await until(
            lambda: self.api.get(f"{CRDS}/{name}"), is_true("Established"), what="Established"
        )
        return dict(reply.json)

    async def use(self, family: Family) -> Family:
        """Creates a family's CRD and waits until its objects can be listed."""
        await self.define(family.definition)
        await until(lambda: self.api.get(family.path()), lambda reply: reply.status == 200)
        return family

    async def create(self, family: Family, obj: Json, **where: str) -> Json:
        reply = await self.api.post(family.path(**where), obj)
        assert reply.status == 201, reply.body
        return dict(reply.json)

    async def redefine(self, name: str, change: Callable[[Json], None]) -> Json:
        """Changes a CRD, with retries on conflicts; returns the response."""

        async def attempt() -> Reply:
            found = (await self.api.get(f"{CRDS}/{name}")).json
            change(found)
            return await self.api.put(f"{CRDS}/{name}", found)

        reply = await until(attempt, lambda reply: reply.status != 409)
        assert reply.status == 200, reply.body
        return dict(reply.json)

    async def wait_until_deleted(self, path: str) -> None:
        await until(lambda: self.api.get(path), lambda reply: reply.status == 404, what="404")


def causes(reply: Reply) -> list[tuple[str, str, str]]:
    """Returns the causes of a refusal: (field, reason, message), sorted."""
    found = reply.json.get("details", {}).get("causes", [])
    return sorted((each.get("field", ""), each["reason"], each["message"]) for each in found)
