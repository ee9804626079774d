"""Authentication over HTTP: exact answers to given credentials."""

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
NO_CREDENTIALS = {
    "nothing": {},
    "headers of a proxy": {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
    "headers of a proxy, otherwise": {"x-remote-user": "admin", "X-REMOTE-EXTRA-a": "b"},
    "the server's own name": {"X-Remote-User": "system:apiserver"},
    "a name in a query that is not read": {"X-Forwarded-User": "admin", "Cookie": "user=admin"},
}


async def test_a_bad_credential_is_a_401_on_all_paths(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad credential gets 401 even where anonymous access is allowed, and is never logged."""
    with caplog.at_level(logging.DEBUG):
        for case, headers in BAD.items():
            client = ApiClient(server.port)  # repeated refusals are throttled
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


async def test_unauthenticated_requests_are_anonymous(server: RunningServer) -> None:
    """Without a credential, headers that only a trusted proxy may send have no effect, even with
    the server's own name in them: its internal identity cannot be assumed from outside."""
    client = ApiClient(server.port)
    for case, headers in NO_CREDENTIALS.items():
        reply = await client.get("/version", headers=headers)
        assert reply.status == 200, case
        refused = await client.get(CONFIG_MAPS, headers=headers)
        assert (refused.status, refused.reason) == (403, "Forbidden"), case
        assert 'User "system:anonymous" cannot list' in refused.message
    await client.close()


async def test_proxy_headers_are_ignored_beside_a_token(server: RunningServer) -> None:
    """A request with a token is authenticated by the token alone."""
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


async def test_system_masters_may_impersonate_anyone(api: ApiClient) -> None:
    """The request is then authorized and reviewed as the impersonated user."""
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


async def test_every_request_path_uses_the_impersonated_user(api: ApiClient) -> None:
    """Reads served from cached headers, lists, watches and writes all run as the impersonated user,
    whatever was requested before on the same connection."""
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


async def test_impersonation_needs_permission(server: RunningServer) -> None:
    """Other users may impersonate no user and no group, and none may impersonate system:masters;
    anonymous requests may not either."""
    jane, anonymous = ApiClient(server.port, token=OTHER_TOKEN), ApiClient(server.port)
    for client, name in ((jane, "jane"), (anonymous, "system:anonymous")):
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


async def test_incomplete_impersonation_headers_are_refused(api: ApiClient) -> None:
    """A group, UID or extra header without a user gets 400, on reads and on writes."""
    for headers in (
        {"Impersonate-Group": "devs"},
        {"Impersonate-Uid": "7"},
        {"Impersonate-Extra-Scopes": "a"},
        {"Impersonate-Foo": "a"},
    ):
        for method, body in (("GET", None), ("POST", made("x"))):
            reply = await api.request(method, CONFIG_MAPS, body, headers=headers)
            assert (reply.status, reply.reason) == (400, "BadRequest"), headers


async def test_only_unauthenticated_clients_are_throttled(server: RunningServer) -> None:
    """Refusals of an authenticated user without permissions are not delayed, however many."""
    for token, is_slowed in ((OTHER_TOKEN, False), (None, True)):
        before = server.listener.counters.requests_slowed
        client = ApiClient(server.port, token=token)
        replies = [(await client.get(CONFIG_MAPS)).status for _ in range(13)]
        assert replies == [403] * 13
        assert (server.listener.counters.requests_slowed > before) is is_slowed
        await client.close()
