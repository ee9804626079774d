"""Service accounts: tokens are asked for, let their account in, and are good as long as it is."""

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
GONE_SECONDS_MAX = 10.0


class MovableClock(SystemClock):
    """Real time, but for what day it is."""

    ahead = timedelta(0)

    def wall(self) -> datetime:
        return super().wall() + self.ahead


class House:
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
        """Whom the server takes a request with this token for; empty: it is refused."""
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
        async with asyncio.timeout(GONE_SECONDS_MAX):
            while await self.user_of(token):  # noqa: ASYNC110  (nobody tells when it is)
                await asyncio.sleep(0.01)

    def sign(self, key: SigningKey = KEY, **changes: Any) -> str:
        """A token of bob's, with claims changed; None leaves one out."""
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
    """In memory, where a test does not ask for another: what it is about is not the store."""
    return str(getattr(request, "param", "memory"))


@pytest_asyncio.fixture
async def house(open_store: Callable[[], Awaitable[Storage]]) -> AsyncIterator[House]:
    clock = MovableClock()
    runtime = replace(Runtime.system(), clock=clock)
    server = await start_server(await open_store(), accounts=RULES, runtime=runtime)
    house = House(server, clock)
    await house.settle()
    yield house
    await server.stop()


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(payload + "=" * 3))
    return claims


async def test_a_token_says_who_it_is(house: House) -> None:
    """A request for a token is answered with one that carries the claims of the reference."""
    reply = await house.api.post(TOKENS, {})
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
            "serviceaccount": {"name": "bob", "uid": house.uid},
        },
    }
    until = datetime.fromisoformat(request["status"]["expirationTimestamp"])
    assert int(until.timestamp()) == now + 3600


async def test_a_token_lets_its_account_in(house: House) -> None:
    """Whoever shows the token is the account, in its groups, by its uid."""
    token = await house.token()
    assert await house.user_of(token) == BOB
    credential = f"JTI={claims_of(token)['jti']}"
    assert await house.review(token) == {
        "authenticated": True,
        "user": {
            "username": BOB,
            "uid": house.uid,
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


async def test_refuses_requests(house: House) -> None:
    """A request that makes no sense is refused in the words of the reference."""
    for body, code, message in BAD_REQUESTS:
        reply = await house.api.post(TOKENS, body)
        assert (reply.status, reply.json["kind"]) == (code, "Status"), body
        assert message in reply.message, body


async def test_nobody_to_ask_for(house: House) -> None:
    """Without the account, or its namespace, there is no token; nor by another verb."""
    missing = await house.api.post(f"{ACCOUNTS}/eve/token", {})
    assert (missing.status, missing.message) == (404, 'serviceaccounts "eve" not found')
    nowhere = await house.api.post("/api/v1/namespaces/zz/serviceaccounts/bob/token", {})
    assert (nowhere.status, nowhere.message) == (404, 'namespaces "zz" not found')
    assert (await house.api.get(TOKENS)).status == 405
    strict = await house.api.post(f"{TOKENS}?fieldValidation=Strict", {"spec": {"bar": 1}})
    assert strict.status == 400
    assert strict.message.startswith('TokenRequest in version "v1" cannot be handled')
    assert (await house.api.post(f"{TOKENS}?dryRun=Some", {})).status == 422


async def test_who_may_not_ask(house: House) -> None:
    """A token is a right to be someone: who was not given it gets none."""
    client = ApiClient(house.server.port, token=OTHER_TOKEN)
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


async def test_refuses_claims(house: House) -> None:
    """A token that we have signed, but that says something else, lets nobody in."""
    for name, changes in BAD_CLAIMS.items():
        token = house.sign(**changes)
        assert await house.user_of(token) == "", name
        review = await house.review(token)
        assert "authenticated" not in review, name
        assert review["user"] == {}
        assert review["error"].lstrip("[").startswith("invalid bearer token")
        assert token not in review["error"]


async def test_refuses_forgeries(house: House) -> None:
    """Neither a stranger's key, nor a changed claim, nor an absurd length lets anybody in."""
    stranger = SigningKey(ec.generate_private_key(ec.SECP256R1()))
    good = house.sign()
    head, _, signature = good.split(".")
    forged = house.sign(sub="system:serviceaccount:kube-system:admin").split(".")[1]
    bad = [house.sign(stranger), f"{head}.{forged}.{signature}", good + "x", "a" * 15_000, "a.b.c"]
    assert [await house.user_of(token) for token in bad] == [""] * len(bad)
    assert await house.user_of(good) == BOB


async def test_keys_and_issuers_of_before(house: House) -> None:
    """Tokens of a key and an issuer that sign no more are good as long as they are trusted."""
    assert await house.user_of(house.sign(OLD_KEY, iss=OLD_ISSUER)) == BOB


async def test_time(house: House) -> None:
    """A token is good from its beginning to its end, give or take a minute for clocks."""
    token = await house.token(expirationSeconds=600)
    for seconds, user in ((600, BOB), (655, BOB), (665, ""), (-55, BOB), (-65, "")):
        house.clock.ahead = timedelta(seconds=seconds)
        assert await house.user_of(token) == user, seconds
    house.clock.ahead = timedelta(seconds=665)
    said = (await house.review(token))["error"]
    assert said == "[invalid bearer token, service account token has expired]"


async def test_a_kept_connection_does_not_outlive_a_token(house: House) -> None:
    """Who stays connected is refused, too, when the token is over: what is kept is not kept."""
    client = ApiClient(house.server.port, token=await house.token(expirationSeconds=600))
    assert (await client.get(f"{ACCOUNTS}/bob")).status == 403
    house.clock.ahead = timedelta(seconds=700)
    async with asyncio.timeout(GONE_SECONDS_MAX):
        while (await client.get(f"{ACCOUNTS}/bob")).status != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.close()


async def test_longest_time(house: House) -> None:
    """More than the server's limit is shortened, with a warning."""
    reply = await house.api.post(TOKENS, {"spec": {"expirationSeconds": 86_400}})
    assert reply.json["spec"]["expirationSeconds"] == 7200
    claims = claims_of(reply.json["status"]["token"])
    assert claims["exp"] - claims["iat"] == 7200
    assert "requested expiration of 86400 seconds shortened to 7200 seconds" in reply.warnings[0]


@pytest.mark.parametrize("driver", ["sqlite", "etcd"], indirect=True)
async def test_deleted_and_made_anew(house: House) -> None:
    """Tokens die with their account, and do not come back with one of the same name."""
    token = await house.token()
    assert await house.user_of(token) == BOB
    assert (await house.api.delete(f"{ACCOUNTS}/bob")).status == 200
    await house.until_refused(token)
    error = (await house.review(token))["error"]
    assert error == '[invalid bearer token, serviceaccounts "bob" not found]'
    again = await house.api.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    assert again.json["metadata"]["uid"] != house.uid
    assert await house.user_of(token) == ""
    assert "does not match claim" in (await house.review(token))["error"]
    assert await house.user_of(await house.token()) == BOB


async def test_deleted_on_another_server(
    house: House, open_store: Callable[[], Awaitable[Storage]]
) -> None:
    """What one server deletes is soon refused by the others."""
    other = await start_server(await open_store(), accounts=RULES)
    try:
        token = await house.token()
        assert await house.user_of(token) == BOB
        assert (await other.client.delete(f"{ACCOUNTS}/bob")).status == 200
        await house.until_refused(token)
    finally:
        await other.stop()


async def test_waits_for_finalizers_a_minute(house: House) -> None:
    """An account that is to go, but is held, is one no more after a minute."""
    held = {"metadata": {"name": "held", "finalizers": ["example.com/wait"]}}
    assert (await house.api.post(ACCOUNTS, held)).status == 201
    reply = await house.api.post(f"{ACCOUNTS}/held/token", {})
    token = reply.json["status"]["token"]
    await house.api.delete(f"{ACCOUNTS}/held")
    assert await house.user_of(token) != ""
    house.clock.ahead = timedelta(seconds=62)
    assert await house.user_of(token) == ""


async def _bind(house: House, kind: str, name: str, **more: Any) -> Reply:
    reference = {"kind": kind, "apiVersion": "v1", "name": name, **more}
    return await house.api.post(TOKENS, {"spec": {"boundObjectRef": reference}})


async def test_bound_to_a_secret(house: House) -> None:
    """A token is good as long as the Secret that it is bound to, by its uid."""
    secret = await house.api.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    uid = secret.json["metadata"]["uid"]
    other = await _bind(house, "Secret", "s", uid="other")
    assert other.status == 409
    assert "The object might have been deleted and then recreated" in other.message
    token = (await _bind(house, "Secret", "s", uid=uid)).json["status"]["token"]
    assert claims_of(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": uid}
    assert await house.user_of(token) == BOB
    await house.api.delete(f"{NS}/secrets/s")
    await house.until_refused(token)
    await house.api.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    assert await house.user_of(token) == ""
    assert "does not match service account secret ref" in (await house.review(token))["error"]


async def test_bound_to_a_pod(house: House) -> None:
    """A token of a pod tells where it runs, and is for the pod's own account."""
    node = await house.api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    await house.api.post(ACCOUNTS, {"metadata": {"name": "eve"}})
    for name, account in (("p", "bob"), ("q", "eve")):
        spec = {"serviceAccountName": account, "nodeName": "n"}
        spec["containers"] = [{"name": "c", "image": "i"}]  # type: ignore[assignment]
        pod = await house.api.post(f"{NS}/pods", {"metadata": {"name": name}, "spec": spec})
        assert pod.status == 201, pod.body
    foreign = await _bind(house, "Pod", "q")
    assert foreign.status == 400
    assert "different serviceaccount name" in foreign.message
    pod = await house.api.get(f"{NS}/pods/p")
    token = (await _bind(house, "Pod", "p")).json["status"]["token"]
    extra = (await house.review(token))["user"]["extra"]
    prefix = "authentication.kubernetes.io"
    assert extra[f"{prefix}/pod-name"] == ["p"]
    assert extra[f"{prefix}/pod-uid"] == [pod.json["metadata"]["uid"]]
    assert extra[f"{prefix}/node-name"] == ["n"]
    assert extra[f"{prefix}/node-uid"] == [node.json["metadata"]["uid"]]
    # The node is only told; a token of the node itself goes with it.
    of_node = (await _bind(house, "Node", "n")).json["status"]["token"]
    await house.api.delete("/api/v1/nodes/n")
    await house.until_refused(of_node)
    assert await house.user_of(token) == BOB
    await house.api.delete(f"{NS}/pods/p?gracePeriodSeconds=0")
    await house.until_refused(token)


async def test_extended_for_pods_of_old(house: House) -> None:
    """With the flag, a pod that asks for an hour and 7 seconds gets a year, and is told it."""
    spec = {"serviceAccountName": "bob", "containers": [{"name": "c", "image": "i"}]}
    await house.api.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": spec})
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    requested = {"expirationSeconds": 3607, "boundObjectRef": reference}
    claims = claims_of(await house.token(**requested))
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    claims = claims_of(await house.token(**requested, audiences=["vault"]))
    assert claims["exp"] - claims["iat"] == 3607


async def test_audiences(house: House) -> None:
    """A token for others is none for this server, and a review says for whom it is."""
    token = await house.token(audiences=["vault", "db"])
    assert await house.user_of(token) == ""
    assert (await house.review(token))["error"] == (
        '[invalid bearer token, token audiences ["vault" "db"] is invalid for the target audiences'
        f' ["{AUDIENCE}"]]'
    )
    assert (await house.review(token, "x", "db"))["audiences"] == ["db"]
    assert "authenticated" not in await house.review(token, "x")


async def test_review_of_other_tokens(house: House) -> None:
    """Tokens that are known in advance are for this server; what nobody knows is no error."""
    assert await house.review(OTHER_TOKEN) == {
        "authenticated": True,
        "user": {
            "username": "jane",
            "uid": "u-1",
            "groups": ["developers", "system:authenticated"],
        },
        "audiences": [AUDIENCE],
    }
    assert await house.review(OTHER_TOKEN, "vault") == {
        "user": {},
        "error": "invalid bearer token",
    }
    assert await house.review("nobody's") == {"user": {}, "error": "invalid bearer token"}
    none = await house.api.post(REVIEWS, {"spec": {}})
    assert (none.status, none.reason) == (400, "BadRequest")


async def test_keys_are_published(house: House) -> None:
    """Whoever reads the published keys can verify a token without any code of ours."""
    reply = await house.api.get("/.well-known/openid-configuration")
    assert reply.header("content-type") == "application/json"
    assert reply.json == {
        "issuer": ISSUER,
        "jwks_uri": "https://127.0.0.1:6443/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "RS256"],
    }
    reply = await house.api.get("/openid/v1/jwks")
    assert reply.header("content-type") == "application/jwk-set+json"
    assert reply.header("cache-control") == "public, max-age=3600"
    keys = {key["kid"]: key for key in reply.json["keys"]}
    for token in (await house.token(), house.sign(OLD_KEY)):
        head, body, signature = token.split(".")
        _verify(keys[_json(head)["kid"]], f"{head}.{body}".encode(), _bytes(signature))
    assert {"/openid/v1/jwks", "/.well-known/openid-configuration"} <= set(
        (await house.api.get("/")).json["paths"]
    )
    assert (await house.api.get("/openid/v1")).status == 404
    assert (await house.api.post("/openid/v1/jwks", {})).status == 405


def _verify(key: dict[str, str], data: bytes, signature: bytes) -> None:
    """By the standard's own words, with another library. Raises InvalidSignature."""
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


async def test_admin_token_is_untouched(house: House) -> None:
    """Tokens that are no signed ones are found as before."""
    assert (await house.review(TOKEN))["user"]["username"] == "admin"


async def test_tokens_of_secrets(house: House) -> None:
    """A token without an end is good as long as its Secret holds that very token, unmarked."""
    account = ("bob", house.uid)
    token = RULES.sign_for_secret("default", account, "s")
    assert await house.user_of(token) == ""
    metadata = {"name": "s", "annotations": {"kubernetes.io/service-account.name": "bob"}}
    secret = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
    held = base64.b64encode(token.encode()).decode()
    reply = await house.api.post(f"{NS}/secrets", {**secret, "data": {"token": held}})
    assert reply.status == 201, reply.body
    assert await house.user_of(token) == BOB
    assert await house.review(token, "vault") == {
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
        assert (await house.api.patch(f"{NS}/secrets/s", changes)).status == 200
        assert await house.user_of(token) == user, changes
    await house.api.delete(f"{NS}/secrets/s")
    await house.until_refused(token)
