"""The look at a request before its body is read."""

from __future__ import annotations

from restow.apiserver.assembly import AuthParts
from restow.authentication import Authentication
from restow.httpserver import Headers, HttpRequest, HttpResponse, Peer
from restow.request.context import User
from restow.request.request_info import RequestInfo
from restow.storage.errors import Unavailable
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, start_server


class Failing:
    """An authorizer that cannot say, and has not thought of it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def allows(self, user: User, info: RequestInfo) -> bool:
        raise self.error

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


async def test_an_error_is_the_same_as_with_a_body() -> None:
    """What goes wrong while somebody is judged is told, and counted, as if the body were there."""
    authorizer = Failing(Unavailable("the disk is gone"))
    auth_parts = AuthParts(authentication=Authentication([]), authorizer=authorizer)
    server = await start_server(MemoryStorage(), auth_parts=auth_parts)
    app = server.assembly.app
    try:
        for error, code in ((Unavailable("the disk is gone"), 503), (KeyError("name"), 500)):
            authorizer.error = error
            early, whole = (
                ask(HttpRequest("POST", CONFIG_MAPS, "", Headers([]), b"{}", Peer(1), 0.0))
                for ask in (app.gate, app)
            )
            assert isinstance(early, HttpResponse)
            assert isinstance(whole, HttpResponse)
            assert (early.status, early.body) == (whole.status, whole.body)
            assert early.status == code
    finally:
        await server.stop()
