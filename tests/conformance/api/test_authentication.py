"""Who is let in over HTTP, and in whose name: exact answers to named credentials."""

from __future__ import annotations

import logging

import pytest

from tests.conformance.api.servers import CONFIG_MAPS, NS, OTHER_TOKEN, TOKEN, RunningServer
from tests.conformance.api.servers import config_map as made
from tests.support.api_client import ApiClient

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CANARY = "c4nary-t0ken-that-nobody-knows"

BAD = {
    "an unknown token": {"Authorization": f"Bearer {CANARY}"},
    "a token and more": {"Authorization": f"Bearer {TOKEN} {CANARY}"},
    "a password": {"Authorization": "Basic YWRtaW46YWRtaW4="},
    "no scheme": {"Authorization": TOKEN},
    "an empty token": {"Authorization": "Bearer "},
    "alg none": {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."},
    "a long token": {"Authorization": "Bearer " + CANARY * 500},
    "a token with a right to impersonate that it has not": {
        "Authorization": f"Bearer {CANARY}",
        "Impersonate-User": "admin",
        "Impersonate-Group": "system:masters",
    },
    "a page's bad token": {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Protocol": f"base64url.bearer.authorization.k8s.io.{CANARY}, x",
    },
}
NOBODY = {
    "nothing": {},
    "headers of a proxy": {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
    "headers of a proxy, otherwise": {"x-remote-user": "admin", "X-REMOTE-EXTRA-a": "b"},
    "the server's own name": {"X-Remote-User": "system:apiserver"},
    "a name in a query that is not read": {"X-Forwarded-User": "admin", "Cookie": "user=admin"},
}


async def test_a_bad_credential_is_a_401_on_all_paths(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Where anybody is let in, too; and no log, at no level, shows what was sent."""
    with caplog.at_level(logging.DEBUG):
        for case, headers in BAD.items():
            client = ApiClient(server.port)  # one that is refused again and again is held up
            for path in ("/version", "/healthz", CONFIG_MAPS, f"{CONFIG_MAPS}/a"):
                reply = await client.get(path, headers=headers)
                assert (reply.status, reply.reason) == (401, "Unauthorized"), (case, path)
                assert reply.message == "Unauthorized"
                assert CANARY.encode() not in reply.body
            if "Upgrade" not in headers:  # such a request has no body
                posted = await client.request("POST", CONFIG_MAPS, made("a"), headers=headers)
                assert posted.status == 401, case
            await client.close()
    assert CANARY not in caplog.text
    assert TOKEN not in caplog.text


async def test_whoever_shows_nothing_is_nobody(server: RunningServer) -> None:
    """Headers that only a trusted proxy may send, or the server's own name in them, are nothing:
    there is no identity of the server's that could be reached from outside."""
    client = ApiClient(server.port)
    for case, headers in NOBODY.items():
        reply = await client.get("/version", headers=headers)
        assert reply.status == 200, case
        refused = await client.get(CONFIG_MAPS, headers=headers)
        assert (refused.status, refused.reason) == (403, "Forbidden"), case
        assert 'User "system:anonymous" cannot list' in refused.message
    await client.close()


async def test_headers_of_a_proxy_add_nothing_to_a_token(server: RunningServer) -> None:
    """Whoever has a token is who the token says."""
    client = ApiClient(server.port, token=OTHER_TOKEN)
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    reply = await client.request("POST", REVIEWS, {}, headers=headers)
    assert reply.json["status"]["userInfo"]["username"] == "jane"
    await client.close()


async def who(client: ApiClient, headers: dict[str, str]) -> dict[str, object]:
    reply = await client.request("POST", REVIEWS, {}, headers=headers)
    assert reply.status == 201, reply.body
    found: dict[str, object] = reply.json["status"]["userInfo"]
    return found


async def test_a_master_may_be_anybody(api: ApiClient) -> None:
    """From then on it is the other who asks: who they are, and what they may."""
    assert (await who(api, {"Impersonate-User": "bob"}))["username"] == "bob"
    told = await who(
        api, {"Impersonate-User": "bob", "Impersonate-Group": "devs", "Impersonate-Uid": "7"}
    )
    assert told["groups"] == ["devs", "system:authenticated"]
    assert told["uid"] == "7"
    account = await who(api, {"Impersonate-User": "system:serviceaccount:default:sa"})
    assert account["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]


async def test_no_way_is_taken_as_the_sender(api: ApiClient) -> None:
    """Reads that are answered from what is known of header lines, lists, watches and writes are
    all done as the other, whatever was asked before on the same connection."""
    assert (await api.request("POST", CONFIG_MAPS, made("a"))).status == 201
    as_bob = {"Impersonate-User": "bob"}
    for _ in range(3):
        assert (await api.get(f"{CONFIG_MAPS}/a")).status == 200
        refused = await api.get(f"{CONFIG_MAPS}/a", headers=as_bob)
        assert refused.status == 403
        assert 'User "bob" cannot get resource "configmaps"' in refused.message
    for method, target, body in (
        ("GET", CONFIG_MAPS, None),
        ("GET", f"{CONFIG_MAPS}?watch=1", None),
        ("POST", CONFIG_MAPS, made("b")),
        ("PUT", f"{CONFIG_MAPS}/a", made("a")),
        ("DELETE", f"{CONFIG_MAPS}/a", None),
        ("DELETE", CONFIG_MAPS, None),
        ("GET", f"{NS}/../x", None),
    ):
        reply = await api.request(method, target, body, headers=as_bob)
        assert reply.status in ({400} if ".." in target else {403}), (method, target)
    masters = {**as_bob, "Impersonate-Group": "system:masters"}
    assert (await api.get(f"{CONFIG_MAPS}/a", headers=masters)).status == 200


async def test_nobody_else_may_be_another(server: RunningServer) -> None:
    """Not by name, not by group, and least of all a master; nor may they without a credential."""
    jane, nobody = ApiClient(server.port, token=OTHER_TOKEN), ApiClient(server.port)
    for client, name in ((jane, "jane"), (nobody, "system:anonymous")):
        for headers in (
            {"Impersonate-User": "admin"},
            {"Impersonate-User": name},
            {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        ):
            reply = await client.get("/version", headers=headers)
            assert (reply.status, reply.reason) == (403, "Forbidden")
            wanted = headers["Impersonate-User"]
            assert reply.message == (
                f'users "{wanted}" is forbidden: User "{name}" cannot impersonate resource "users"'
                ' in API group "" at the cluster scope'
            )
        await client.close()


async def test_half_a_wish_is_refused(api: ApiClient) -> None:
    """A group, a uid or an extra without a user is a 400, on reads and on writes."""
    for headers in (
        {"Impersonate-Group": "devs"},
        {"Impersonate-Uid": "7"},
        {"Impersonate-Extra-Scopes": "a"},
        {"Impersonate-Foo": "a"},
    ):
        for method, body in (("GET", None), ("POST", made("x"))):
            reply = await api.request(method, CONFIG_MAPS, body, headers=headers)
            assert (reply.status, reply.reason) == (400, "BadRequest"), headers


async def test_only_strangers_are_held_up_by_refusals(server: RunningServer) -> None:
    """Who is known and may do nothing is refused as often as they ask, at once."""
    for token, is_slowed in ((OTHER_TOKEN, False), (None, True)):
        before = server.listener.counters.requests_slowed
        client = ApiClient(server.port, token=token)
        replies = [(await client.get(CONFIG_MAPS)).status for _ in range(13)]
        assert replies == [403] * 13
        assert (server.listener.counters.requests_slowed > before) is is_slowed
        await client.close()
