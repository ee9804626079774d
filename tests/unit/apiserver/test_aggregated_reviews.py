"""Reviews by the main servers: sent once, cached for seconds, 503 without a response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.status import ServiceUnavailable
from restow.apiserver.aggregated_reviews import Reviews
from restow.client import NO_RETRY, ApiClient, InProcessResponse, InProcessTransport
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.registry.errors import DoAgain
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo

LIST = RequestInfo(method="GET", path="/", verb="list", is_resource=True, resource="parts")


class Main:
    """A main server that knows one token, and permits its user to list."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.is_away = False

    async def __call__(
        self, _method: str, _path: str, _headers: Mapping[str, str], sent: bytes
    ) -> InProcessResponse:
        if self.is_away:
            return InProcessResponse(503, b"{}")
        body = orjson.loads(sent)
        self.asked.append(body)
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            user = {"username": "jane", "uid": "7", "groups": ["a"], "extra": {"k": ["v"]}}
            known = {"authenticated": True, "user": user}
            body["status"] = known if spec["token"] == "good" else {"authenticated": False}
        else:
            verb = (spec.get("resourceAttributes") or {}).get("verb")
            body["status"] = {"allowed": verb == "list"}
        return InProcessResponse(201, orjson.dumps(body))


def request(token: str = "") -> HttpRequest:
    lines = [("authorization", f"Bearer {token}")] if token else []
    return HttpRequest(
        method="GET",
        path="/",
        query="",
        headers=Headers(lines),
        body=b"",
        peer=Peer(1),
        received_seconds=0.0,
    )


async def settled(ask: Any) -> Any:
    """Return the result, after waiting for it as the handler chain does."""
    for _ in range(3):
        try:
            return ask()
        except DoAgain as lack:
            await lack.settle()
    raise AssertionError("never settled")


@pytest.fixture
def main() -> Main:
    return Main()


@pytest.fixture
async def reviews(main: Main) -> Any:
    runtime = Runtime.system()
    client = ApiClient(InProcessTransport(main), runtime=runtime, retry=NO_RETRY)
    made = Reviews(client, runtime)
    yield made
    await made.close()


async def test_a_token_is_reviewed_once(reviews: Reviews, main: Main) -> None:
    """Many requests with one token send one review, and get all attributes of the user."""
    asked = [settled(lambda: reviews.authenticate(request("good"))) for _ in range(5)]
    users = await asyncio.gather(*asked)
    assert set(users) == {User("jane", ("a",), "7", (("k", ("v",)),))}
    assert len(main.asked) == 1
    assert await settled(lambda: reviews.authenticate(request("bad"))) is None
    assert reviews.authenticate(request()) is None


async def test_rights_are_reviewed(reviews: Reviews, main: Main) -> None:
    """Permissions are those of the main servers; masters need no review, and anonymous clients may
    only read health checks."""
    jane = User("jane", extra=(("k", ("v",)),))
    assert await settled(lambda: reviews.allows(jane, LIST)) is True
    assert main.asked[-1]["spec"]["extra"] == {"k": ["v"]}
    create = RequestInfo(method="POST", path="/", verb="create", is_resource=True)
    assert await settled(lambda: reviews.allows(jane, create)) is False
    before = len(main.asked)
    assert reviews.allows(User("root", ("system:masters",)), create)
    health = RequestInfo(method="GET", path="/readyz/ping", verb="get")
    assert reviews.allows(ANONYMOUS, health)
    assert not reviews.allows(ANONYMOUS, LIST)
    assert len(main.asked) == before


async def test_without_an_answer_it_is_503(reviews: Reviews, main: Main) -> None:
    """While the main servers are unavailable no request is accepted, and none is rejected as
    401."""
    main.is_away = True
    with pytest.raises(ServiceUnavailable, match="cannot authenticate or authorize"):
        await settled(lambda: reviews.authenticate(request("good")))
    main.is_away = False
    assert await settled(lambda: reviews.authenticate(request("good"))) is not None
