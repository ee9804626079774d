"""Service account tokens: TokenRequest, authentication, and validity bound to the account."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from restow.aio import Runtime, SystemClock
from restow.apimachinery.jwt_keys import KeySet, SigningKey
from restow.apiserver.service_accounts import AccountRules
from restow.authentication import service_accounts_claims
from restow.authentication.service_accounts import AccountTrust
from restow.endpoints.handlers.token_request import TokenLimits
from restow.storage.interface import Storage
from tests.conformance.api.servers import NS, OTHER_TOKEN, TOKEN, RunningServer, start_server
from tests.support.api_client import ApiClient, Reply

ISSUER, OLD_ISSUER, AUDIENCE = "https://issuer.example", "https://old.example", "https://api"
KEY = SigningKey(ec.generate_private_key(ec.SECP256R1()))
OLD_PRIVATE = rsa.generate_private_key(65537, 2048)
OLD_KEY = SigningKey(OLD_PRIVATE)
RULES = AccountRules(
    trust=AccountTrust(
        signing=KEY,
        keys=KeySet([KEY.public, OLD_KEY.public]),
        issuers=(ISSUER, OLD_ISSUER),
        audiences=(AUDIENCE,),
    ),
    limits=TokenLimits(seconds_max=7200, extends=True),
)
ACCOUNTS = f"{NS}/serviceaccounts"
TOKENS = f"{ACCOUNTS}/bob/token"
BOB = "system:serviceaccount:default:bob"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
EXPIRY_SECONDS_MAX = 10.0


class MovableClock(SystemClock):
    """Real time with an adjustable date."""

    ahead = timedelta(0)

    def wall(self) -> datetime:
        return super().wall() + self.ahead


class TokenServer:
    """A server with the account `bob`."""

    def __init__(self, server: RunningServer, clock: MovableClock) -> None:
        self.server = server
        self.clock = clock
        self.api = server.client
        self.uid = ""

    async def settle(self) -> None:
        for path, name in (("/api/v1/namespaces", "default"), (ACCOUNTS, "bob")):
            reply = await self.api.post(path, {"metadata": {"name": name}})
            assert reply.status == 201
            self.uid = reply.json["metadata"]["uid"]

    async def token(self, **spec: Any) -> str:
        reply = await self.api.post(TOKENS, {"spec": spec})
        assert reply.status == 201, reply.body
        return str(reply.json["status"]["token"])

    async def user_of(self, token: str) -> str:
        """The username that the server authenticates this token as; empty if it is refused."""
        client = ApiClient(self.server.port, token=token)
        try:
            reply = await client.get("/api/v1/namespaces/nowhere/secrets/nothing")
        finally:
            await client.close()
        if reply.status == 401:
            assert reply.reason == "Unauthorized"
            assert reply.message == "Unauthorized"
            return ""
        assert reply.status == 403, reply.body
        return reply.message.split('User "')[1].split('"')[0]

    async def review(self, token: str, *audiences: str) -> dict[str, Any]:
        reply = await self.api.post(REVIEWS, {"spec": {"token": token, "audiences": audiences}})
        assert reply.status == 201, reply.body
        said: dict[str, Any] = reply.json["status"]
        return said

    async def until_refused(self, token: str) -> None:
        async with asyncio.timeout(EXPIRY_SECONDS_MAX):
            while await self.user_of(token):  # noqa: ASYNC110 - a client can only poll
                await asyncio.sleep(0.01)

    def sign(self, key: SigningKey = KEY, **changes: Any) -> str:
        """Signs a token for bob with claims changed; None omits a claim."""
        now = int(self.clock.wall().timestamp())
        claims = service_accounts_claims.make(
            issuer=ISSUER,
            namespace="default",
            account=("bob", self.uid),
            audiences=[AUDIENCE],
            bound={},
            token_id="an-id",
            now=now,
            expires=now + 600,
        )
        claims |= changes
        return key.sign({name: each for name, each in claims.items() if each is not None})


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """Use the in-memory store unless a test selects another; the store does not matter here."""
    return str(getattr(request, "param", "memory"))


@pytest_asyncio.fixture
async def token_server(open_store: Callable[[], Awaitable[Storage]]) -> AsyncIterator[TokenServer]:
    clock = MovableClock()
    runtime = replace(Runtime.system(), clock=clock)
    server = await start_server(await open_store(), accounts=RULES, runtime=runtime)
    token_server = TokenServer(server, clock)
    await token_server.settle()
    yield token_server
    await server.stop()


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(payload + "=" * 3))
    return claims


async def test_token_request_returns_the_claims_of_the_reference(token_server: TokenServer) -> None:
    """A TokenRequest returns a token with the claims of the reference."""
    reply = await token_server.api.post(TOKENS, {})
    assert reply.status == 201
    request = reply.json
    assert request["kind"] == "TokenRequest"
    assert request["apiVersion"] == "authentication.k8s.io/v1"
    assert request["metadata"].items() >= {"name": "bob", "namespace": "default"}.items()
    assert request["spec"] == {
        "audiences": [AUDIENCE],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    claims = claims_of(request["status"]["token"])
    now = claims["iat"]
    assert claims.pop("jti")
    assert claims == {
        "iss": ISSUER,
        "sub": BOB,
        "aud": [AUDIENCE],
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "bob", "uid": token_server.uid},
        },
    }
    until = datetime.fromisoformat(request["status"]["expirationTimestamp"])
    assert int(until.timestamp()) == now + 3600


async def test_a_token_authenticates_its_account(token_server: TokenServer) -> None:
    """A request with the token is authenticated as the account, with its groups and its UID."""
    token = await token_server.token()
    assert await token_server.user_of(token) == BOB
    credential = f"JTI={claims_of(token)['jti']}"
    assert await token_server.review(token) == {
        "authenticated": True,
        "user": {
            "username": BOB,
            "uid": token_server.uid,
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ],
            "extra": {"authentication.kubernetes.io/credential-id": [credential]},
        },
        "audiences": [AUDIENCE],
    }


BAD_REQUESTS: list[tuple[dict[str, Any], int, str]] = [
    ({"spec": {"expirationSeconds": 599}}, 422, "less than 10 minutes"),
    ({"spec": {"expirationSeconds": -1}}, 422, "less than 10 minutes"),
    ({"spec": {"expirationSeconds": 0}}, 422, "less than 10 minutes"),
    ({"spec": {"expirationSeconds": 2**32 + 1}}, 422, "larger than 2^32 seconds"),
    ({"spec": {"expirationSeconds": "600"}}, 400, ""),
    ({"spec": {"expirationSeconds": 2**63}}, 400, ""),
    ({"spec": {"audiences": "x"}}, 400, ""),
    ({"spec": {"audiences": ["x" * 20_000]}}, 422, "spec.audiences"),
    ({"spec": []}, 400, ""),
    ({"kind": "Pod", "apiVersion": "v1"}, 400, ""),
    ({"metadata": {"name": "eve"}}, 422, "must match the service account name"),
    ({"metadata": {"namespace": "kube-system"}}, 400, "does not match the namespace"),
    ({"metadata": {"uid": "another"}}, 409, "does not match the UID of the service account"),
    ({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}, 404, "p"),
    (
        {"spec": {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "../x"}}},
        404,
        "nodes",
    ),
    (
        {"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}}},
        400,
        "cannot bind token to object of type /v1, Kind=ConfigMap",
    ),
    (
        {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}},
        400,
        "cannot bind token to object of type apps/v1, Kind=Pod",
    ),
    ({"spec": {"boundObjectRef": {}}}, 400, "cannot bind token"),
    (
        {"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1"}}},
        400,
        "Name parameter required.",
    ),
]


async def test_invalid_token_requests(token_server: TokenServer) -> None:
    """An invalid TokenRequest is refused with the reference's message."""
    for body, code, message in BAD_REQUESTS:
        reply = await token_server.api.post(TOKENS, body)
        assert (reply.status, reply.json["kind"]) == (code, "Status"), body
        assert message in reply.message, body


async def test_token_of_a_missing_account(token_server: TokenServer) -> None:
    """Without the account or its namespace there is no token; nor by another verb."""
    missing = await token_server.api.post(f"{ACCOUNTS}/eve/token", {})
    assert (missing.status, missing.message) == (404, 'serviceaccounts "eve" not found')
    nowhere = await token_server.api.post("/api/v1/namespaces/zz/serviceaccounts/bob/token", {})
    assert (nowhere.status, nowhere.message) == (404, 'namespaces "zz" not found')
    assert (await token_server.api.get(TOKENS)).status == 405
    strict = await token_server.api.post(f"{TOKENS}?fieldValidation=Strict", {"spec": {"bar": 1}})
    assert strict.status == 400
    assert strict.message.startswith('TokenRequest in version "v1" cannot be handled')
    assert (await token_server.api.post(f"{TOKENS}?dryRun=Some", {})).status == 422


async def test_token_requests_need_permission(token_server: TokenServer) -> None:
    """`create` on `serviceaccounts/token` is a permission of its own; users without it get no
    token."""
    client = ApiClient(token_server.server.port, token=OTHER_TOKEN)
    reply = await client.post(TOKENS, {})
    await client.close()
    assert (reply.status, reply.reason) == (403, "Forbidden")


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "no audience": {"aud": None},
    "empty audience": {"aud": []},
    "audience of another": {"aud": ["vault"]},
    "audience that begins alike": {"aud": [AUDIENCE + "/"]},
    "audience a number": {"aud": 7},
    "no issuer": {"iss": None},
    "issuer of another": {"iss": "https://elsewhere"},
    "issuer a list": {"iss": [ISSUER]},
    "no end": {"exp": None},
    "end a text": {"exp": "2000000000"},
    "end beyond all time": {"exp": 10**18},
    "over": {"exp": 1_000_000_000},
    "not yet": {"nbf": 4_000_000_000},
    "begin a text": {"nbf": "0"},
    "made in the future": {"iat": 4_000_000_000},
    "subject of another": {"sub": "system:serviceaccount:kube-system:bob"},
    "no subject": {"sub": None},
    "subject an admin": {"sub": "restow-admin"},
    "no account": {"kubernetes.io": None},
    "account a text": {"kubernetes.io": "bob"},
    "no uid": {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "bob"}}},
    "another uid": {
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "bob", "uid": "another"},
        }
    },
    "name a path": {
        "sub": "system:serviceaccount:x:default/bob",
        "kubernetes.io": {
            "namespace": "x",
            "serviceaccount": {"name": "default/bob", "uid": "another"},
        },
    },
    "pod without uid": {
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "bob", "uid": "u"},
            "pod": {"name": "p"},
        }
    },
    "Secret's token without its Secret": {"iss": "kubernetes/serviceaccount"},
}


async def test_refuses_wrong_claims(token_server: TokenServer) -> None:
    """A correctly signed token with wrong claims is refused."""
    for name, changes in BAD_CLAIMS.items():
        token = token_server.sign(**changes)
        assert await token_server.user_of(token) == "", name
        review = await token_server.review(token)
        assert "authenticated" not in review, name
        assert review["user"] == {}
        assert review["error"].lstrip("[").startswith("invalid bearer token")
        assert token not in review["error"]


async def test_refuses_forgeries(token_server: TokenServer) -> None:
    """A token with a foreign key, a changed claim or an absurd length is refused."""
    foreign_key = SigningKey(ec.generate_private_key(ec.SECP256R1()))
    good = token_server.sign()
    head, _, signature = good.split(".")
    forged = token_server.sign(sub="system:serviceaccount:kube-system:admin").split(".")[1]
    bad = [
        token_server.sign(foreign_key),
        f"{head}.{forged}.{signature}",
        good + "x",
        "a" * 15_000,
        "a.b.c",
    ]
    assert [await token_server.user_of(token) for token in bad] == [""] * len(bad)
    assert await token_server.user_of(good) == BOB


async def test_retired_keys_and_issuers(token_server: TokenServer) -> None:
    """Tokens of a retired key or issuer stay valid as long as that key and issuer are trusted."""
    assert await token_server.user_of(token_server.sign(OLD_KEY, iss=OLD_ISSUER)) == BOB


async def test_validity_period(token_server: TokenServer) -> None:
    """A token is valid from `nbf` to `exp`, with one minute of clock skew allowed."""
    token = await token_server.token(expirationSeconds=600)
    for seconds, user in ((600, BOB), (655, BOB), (665, ""), (-55, BOB), (-65, "")):
        token_server.clock.ahead = timedelta(seconds=seconds)
        assert await token_server.user_of(token) == user, seconds
    token_server.clock.ahead = timedelta(seconds=665)
    said = (await token_server.review(token))["error"]
    assert said == "[invalid bearer token, service account token has expired]"


async def test_an_expired_token_on_an_open_connection(token_server: TokenServer) -> None:
    """A token that expires is refused on an open connection too; cached results expire with it."""
    client = ApiClient(
        token_server.server.port, token=await token_server.token(expirationSeconds=600)
    )
    assert (await client.get(f"{ACCOUNTS}/bob")).status == 403
    token_server.clock.ahead = timedelta(seconds=700)
    async with asyncio.timeout(EXPIRY_SECONDS_MAX):
        while (await client.get(f"{ACCOUNTS}/bob")).status != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.close()


async def test_maximum_expiration(token_server: TokenServer) -> None:
    """A longer expiration than the server's maximum is shortened, with a warning."""
    reply = await token_server.api.post(TOKENS, {"spec": {"expirationSeconds": 86_400}})
    assert reply.json["spec"]["expirationSeconds"] == 7200
    claims = claims_of(reply.json["status"]["token"])
    assert claims["exp"] - claims["iat"] == 7200
    assert "requested expiration of 86400 seconds shortened to 7200 seconds" in reply.warnings[0]


@pytest.mark.parametrize("driver", ["sqlite", "etcd"], indirect=True)
async def test_deleted_and_recreated_account(token_server: TokenServer) -> None:
    """A token becomes invalid with its account, and stays so when the name is created again."""
    token = await token_server.token()
    assert await token_server.user_of(token) == BOB
    assert (await token_server.api.delete(f"{ACCOUNTS}/bob")).status == 200
    await token_server.until_refused(token)
    error = (await token_server.review(token))["error"]
    assert error == '[invalid bearer token, serviceaccounts "bob" not found]'
    again = await token_server.api.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    assert again.json["metadata"]["uid"] != token_server.uid
    assert await token_server.user_of(token) == ""
    assert "does not match claim" in (await token_server.review(token))["error"]
    assert await token_server.user_of(await token_server.token()) == BOB


async def test_deleted_on_another_server(
    token_server: TokenServer, open_store: Callable[[], Awaitable[Storage]]
) -> None:
    """An account deleted through one server is soon refused by the others."""
    other = await start_server(await open_store(), accounts=RULES)
    try:
        token = await token_server.token()
        assert await token_server.user_of(token) == BOB
        assert (await other.client.delete(f"{ACCOUNTS}/bob")).status == 200
        await token_server.until_refused(token)
    finally:
        await other.stop()


async def test_terminating_account_is_refused_after_a_minute(token_server: TokenServer) -> None:
    """An account that finalizers hold is refused one minute after its deletion."""
    held = {"metadata": {"name": "held", "finalizers": ["example.com/wait"]}}
    assert (await token_server.api.post(ACCOUNTS, held)).status == 201
    reply = await token_server.api.post(f"{ACCOUNTS}/held/token", {})
    token = reply.json["status"]["token"]
    await token_server.api.delete(f"{ACCOUNTS}/held")
    assert await token_server.user_of(token) != ""
    token_server.clock.ahead = timedelta(seconds=62)
    assert await token_server.user_of(token) == ""


async def _bind(token_server: TokenServer, kind: str, name: str, **more: Any) -> Reply:
    reference = {"kind": kind, "apiVersion": "v1", "name": name, **more}
    return await token_server.api.post(TOKENS, {"spec": {"boundObjectRef": reference}})


async def test_bound_to_a_secret(token_server: TokenServer) -> None:
    """A token bound to a Secret is valid as long as the Secret with that UID exists."""
    secret = await token_server.api.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    uid = secret.json["metadata"]["uid"]
    other = await _bind(token_server, "Secret", "s", uid="other")
    assert other.status == 409
    assert "The object might have been deleted and then recreated" in other.message
    token = (await _bind(token_server, "Secret", "s", uid=uid)).json["status"]["token"]
    assert claims_of(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": uid}
    assert await token_server.user_of(token) == BOB
    await token_server.api.delete(f"{NS}/secrets/s")
    await token_server.until_refused(token)
    await token_server.api.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    assert await token_server.user_of(token) == ""
    assert (
        "does not match service account secret ref" in (await token_server.review(token))["error"]
    )


async def test_bound_to_a_pod(token_server: TokenServer) -> None:
    """A token bound to a pod names its node, and is issued for the pod's own account only."""
    node = await token_server.api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    await token_server.api.post(ACCOUNTS, {"metadata": {"name": "eve"}})
    for name, account in (("p", "bob"), ("q", "eve")):
        spec = {"serviceAccountName": account, "nodeName": "n"}
        spec["containers"] = [{"name": "c", "image": "i"}]  # type: ignore[assignment]
        pod = await token_server.api.post(f"{NS}/pods", {"metadata": {"name": name}, "spec": spec})
        assert pod.status == 201, pod.body
    foreign = await _bind(token_server, "Pod", "q")
    assert foreign.status == 400
    assert "different serviceaccount name" in foreign.message
    pod = await token_server.api.get(f"{NS}/pods/p")
    token = (await _bind(token_server, "Pod", "p")).json["status"]["token"]
    extra = (await token_server.review(token))["user"]["extra"]
    prefix = "authentication.kubernetes.io"
    assert extra[f"{prefix}/pod-name"] == ["p"]
    assert extra[f"{prefix}/pod-uid"] == [pod.json["metadata"]["uid"]]
    assert extra[f"{prefix}/node-name"] == ["n"]
    assert extra[f"{prefix}/node-uid"] == [node.json["metadata"]["uid"]]
    # The node is only a claim here; a token bound to the node becomes invalid with it.
    of_node = (await _bind(token_server, "Node", "n")).json["status"]["token"]
    await token_server.api.delete("/api/v1/nodes/n")
    await token_server.until_refused(of_node)
    assert await token_server.user_of(token) == BOB
    await token_server.api.delete(f"{NS}/pods/p?gracePeriodSeconds=0")
    await token_server.until_refused(token)


async def test_extended_expiration_for_pods(token_server: TokenServer) -> None:
    """With the flag, a pod that requests 3607 seconds gets a token for a year, and is told 3607."""
    spec = {"serviceAccountName": "bob", "containers": [{"name": "c", "image": "i"}]}
    await token_server.api.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": spec})
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    requested = {"expirationSeconds": 3607, "boundObjectRef": reference}
    claims = claims_of(await token_server.token(**requested))
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    claims = claims_of(await token_server.token(**requested, audiences=["vault"]))
    assert claims["exp"] - claims["iat"] == 3607


async def test_audiences(token_server: TokenServer) -> None:
    """A token for other audiences is refused; a TokenReview returns the matching audiences."""
    token = await token_server.token(audiences=["vault", "db"])
    assert await token_server.user_of(token) == ""
    assert (await token_server.review(token))["error"] == (
        '[invalid bearer token, token audiences ["vault" "db"] is invalid for the target audiences'
        f' ["{AUDIENCE}"]]'
    )
    assert (await token_server.review(token, "x", "db"))["audiences"] == ["db"]
    assert "authenticated" not in await token_server.review(token, "x")


async def test_review_of_other_tokens(token_server: TokenServer) -> None:
    """Static tokens are valid for this server's audience; an unknown token is no error."""
    assert await token_server.review(OTHER_TOKEN) == {
        "authenticated": True,
        "user": {
            "username": "jane",
            "uid": "u-1",
            "groups": ["developers", "system:authenticated"],
        },
        "audiences": [AUDIENCE],
    }
    assert await token_server.review(OTHER_TOKEN, "vault") == {
        "user": {},
        "error": "invalid bearer token",
    }
    assert await token_server.review("nobody's") == {"user": {}, "error": "invalid bearer token"}
    none = await token_server.api.post(REVIEWS, {"spec": {}})
    assert (none.status, none.reason) == (400, "BadRequest")


async def test_published_keys_verify_tokens(token_server: TokenServer) -> None:
    """The published keys suffice to verify a token without restow's code."""
    reply = await token_server.api.get("/.well-known/openid-configuration")
    assert reply.header("content-type") == "application/json"
    assert reply.json == {
        "issuer": ISSUER,
        "jwks_uri": "https://127.0.0.1:6443/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "RS256"],
    }
    reply = await token_server.api.get("/openid/v1/jwks")
    assert reply.header("content-type") == "application/jwk-set+json"
    assert reply.header("cache-control") == "public, max-age=3600"
    keys = {key["kid"]: key for key in reply.json["keys"]}
    for token in (await token_server.token(), token_server.sign(OLD_KEY)):
        head, body, signature = token.split(".")
        _verify(keys[_json(head)["kid"]], f"{head}.{body}".encode(), _bytes(signature))
    assert {"/openid/v1/jwks", "/.well-known/openid-configuration"} <= set(
        (await token_server.api.get("/")).json["paths"]
    )
    assert (await token_server.api.get("/openid/v1")).status == 404
    assert (await token_server.api.post("/openid/v1/jwks", {})).status == 405


def _verify(key: dict[str, str], data: bytes, signature: bytes) -> None:
    """Verifies a JWT as RFC 7515 describes, with another library. Raises InvalidSignature."""
    numbers = {
        name: int.from_bytes(_bytes(key[name])) for name in ("n", "e", "x", "y") if name in key
    }
    if key["kty"] == "RSA":
        rsa.RSAPublicNumbers(numbers["e"], numbers["n"]).public_key().verify(
            signature, data, padding.PKCS1v15(), hashes.SHA256()
        )
        return
    public = ec.EllipticCurvePublicNumbers(numbers["x"], numbers["y"], ec.SECP256R1()).public_key()
    r, s = (int.from_bytes(half) for half in (signature[:32], signature[32:]))
    public.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _json(text: str) -> Any:
    return orjson.loads(_bytes(text))


async def test_admin_token_is_untouched(token_server: TokenServer) -> None:
    """Tokens that are not JWTs are still found among the static tokens."""
    assert (await token_server.review(TOKEN))["user"]["username"] == "admin"


async def test_tokens_of_secrets(token_server: TokenServer) -> None:
    """A legacy token without expiration is valid while its Secret holds it and is not marked
    invalid."""
    account = ("bob", token_server.uid)
    token = RULES.sign_for_secret("default", account, "s")
    assert await token_server.user_of(token) == ""
    metadata = {"name": "s", "annotations": {"kubernetes.io/service-account.name": "bob"}}
    secret = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
    held = base64.b64encode(token.encode()).decode()
    reply = await token_server.api.post(f"{NS}/secrets", {**secret, "data": {"token": held}})
    assert reply.status == 201, reply.body
    assert await token_server.user_of(token) == BOB
    assert await token_server.review(token, "vault") == {
        "user": {},
        "error": f'[invalid bearer token, token audiences ["{AUDIENCE}"] is invalid for the target'
        ' audiences ["vault"]]',
    }
    for changes, user in (
        ({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2024-01-01"}}}, ""),
        ({"metadata": {"labels": None}}, BOB),
        ({"data": {"token": base64.b64encode(b"another").decode()}}, ""),
        ({"data": {"token": held}}, BOB),
    ):
        assert (await token_server.api.patch(f"{NS}/secrets/s", changes)).status == 200
        assert await token_server.user_of(token) == user, changes
    await token_server.api.delete(f"{NS}/secrets/s")
    await token_server.until_refused(token)
