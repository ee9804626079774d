"""Tokens of an OpenID Connect issuer over HTTP: the first requests wait for its keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authentication_options import AuthenticationOptions, OidcOptions
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation
from restow.httpserver import Listener
from restow.request.context import User
from restow.request.responses import error_body
from restow.storage.drivers import open_storage
from tests.conformance.api.servers import BUILTIN, CONFIG_MAPS, SECRETS, TOKEN
from tests.conformance.api.servers import config_map as made
from tests.support.api_client import ApiClient
from tests.support.certificates import make_certificate
from tests.unit.authentication.issuers import AUDIENCE, DISCOVERY, JWKS, FakeIssuer, json

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class IssuerServer:
    """An issuer, and the port of a server that trusts it."""

    def __init__(self, issuer: FakeIssuer, runtime: Runtime) -> None:
        self.issuer = issuer
        self._clock = runtime.clock
        self.port = 0

    def token(self, name: str = "jane") -> str:
        ends = int(self._clock.wall().timestamp()) + 600
        claims = {"iss": self.issuer.url, "aud": [AUDIENCE], "exp": ends, "sub": name}
        return self.issuer.key.sign({**claims, "groups": ["system:masters"]})

    def client(self, token: str) -> ApiClient:
        return ApiClient(self.port, token=token)


@pytest_asyncio.fixture
async def issuer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[IssuerServer]:
    """The server fetches from the issuer at start, so the issuer's response is set before."""
    runtime = Runtime.system()
    files = make_certificate(tmp_path, name="issuer")
    issuer = FakeIssuer(files)
    issuer.answers |= getattr(request, "param", {})
    await issuer.start()
    made_world = IssuerServer(issuer, runtime)
    oidc = OidcOptions(
        issuer_url=issuer.url,
        client_id=AUDIENCE,
        username_prefix="-",
        groups_claim="groups",
        signing_algs=("ES256",),
        ca_file=files.ca_file,
    )
    authenticators = await Authenticators.load(
        AuthenticationOptions(oidc=oidc),
        runtime,
        tokens={TOKEN: User("admin", ("system:masters",))},
    )
    storage = await open_storage("memory:", runtime)
    assembly = await assemble(
        Foundation(storage=storage, catalog=BUILTIN, runtime=runtime),
        AccessOptions(secrets=SECRETS, authenticators=authenticators),
        EndpointOptions(address="127.0.0.1:6443"),
    )
    listener = await Listener.start(
        assembly.app,
        bind="127.0.0.1",
        port=0,
        runtime=runtime,
        gate=assembly.app.gate,
        quick=assembly.app.quick,
        error_body=error_body,
    )
    made_world.port = listener.port
    yield made_world
    await listener.stop(grace_seconds=1)
    await assembly.close()
    await authenticators.close()
    await storage.close()
    await issuer.stop()


async def test_concurrent_requests_wait_for_one_fetch(issuer: IssuerServer) -> None:
    """Reads, writes with a body, and token reviews wait; afterwards the keys are cached."""
    clients = [issuer.client(issuer.token(name)) for name in ("ann", "bob", "eve")]
    admin = issuer.client(TOKEN)
    replies = await asyncio.gather(
        clients[0].request("POST", REVIEWS, {}),
        clients[1].request("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}),
        clients[2].get("/api/v1/namespaces"),
        admin.request("POST", TOKEN_REVIEWS, {"spec": {"token": issuer.token("zoe")}}),
    )
    assert [reply.status for reply in replies] == [201, 201, 200, 201]
    assert replies[0].json["status"]["userInfo"]["username"] == "ann"
    assert replies[3].json["status"]["authenticated"] is True
    assert replies[3].json["status"]["user"]["username"] == "zoe"
    assert issuer.issuer.asked == [DISCOVERY, JWKS]
    assert (await clients[0].request("POST", CONFIG_MAPS, made("a"))).status == 201
    for _ in range(3):
        assert (await clients[0].get(f"{CONFIG_MAPS}/a")).status == 200
    for client in (*clients, admin):
        await client.close()


@pytest.mark.parametrize("issuer", [{JWKS: lambda: json({}, code=500)}], indirect=True)
async def test_a_failing_issuer_affects_only_its_own_tokens(issuer: IssuerServer) -> None:
    """Its tokens get 401, and token reviews reject them; all other tokens are accepted."""
    jane, admin = issuer.client(issuer.token()), issuer.client(TOKEN)
    refused = await jane.get("/version")
    assert (refused.status, refused.reason) == (401, "Unauthorized")
    review = await admin.request("POST", TOKEN_REVIEWS, {"spec": {"token": issuer.token()}})
    assert review.status == 201
    assert review.json["status"].get("authenticated") is not True
    assert (await admin.get("/api/v1/namespaces")).status == 200
    await jane.close()
    await admin.close()
