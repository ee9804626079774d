"""Tokens of OpenID Connect issuers: valid and invalid ones, and issuers that fail."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.jwt import encode_base64
from restow.apimachinery.status_error import StatusError
from restow.authentication import Authentication, TokenAuthenticator
from restow.authentication.oidc import OidcAuthenticator
from restow.authentication.oidc_config import (
    ClaimMapping,
    ClaimMappings,
    ClaimRule,
    ExtraMapping,
    IssuerConfiguration,
    JwtAuthenticator,
    UserRule,
)
from restow.authentication.oidc_keys import (
    DOCUMENT_BYTES_MAX,
    FETCH_SECONDS_MAX,
    FRESH_SECONDS,
    MISS_FETCH_SECONDS_MIN,
    REFETCH_SECONDS,
)
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.httpserver.response import HttpResponse
from restow.registry.errors import DoAgain
from restow.request.context import User
from tests.support.certificates import CertificateFiles, make_certificate
from tests.unit.authentication.issuers import (
    AUDIENCE,
    DISCOVERY,
    JWKS,
    FakeIssuer,
    forged,
    json,
    never,
    redirect,
)

AGAIN_MAX = 4
NAMES = ClaimMappings(
    username=ClaimMapping(claim="sub", prefix="oidc:"),
    groups=ClaimMapping(claim="groups", prefix="oidc:"),
)


class World:
    """An issuer, a server that trusts it, and a simulated clock."""

    def __init__(self, issuer: FakeIssuer) -> None:
        self.issuer = issuer
        self.clock = SimulatedClock()
        self.runtime = Runtime.simulated(1, clock=self.clock)
        self.issuers = OidcAuthenticator(self.runtime)
        self.chain = Authentication(
            [TokenAuthenticator({"static": User("bob")}), self.issuers],
        )

    def trust(self, mappings: ClaimMappings = NAMES, **more: Any) -> None:
        issuer = IssuerConfiguration(
            url=self.issuer.url,
            audiences=(AUDIENCE,),
            certificate_authority=more.pop("ca_pem", self.issuer.ca_pem),
        )
        self.issuers.take([JwtAuthenticator(issuer=issuer, claim_mappings=mappings, **more)])

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(self.clock.wall().timestamp())
        claims = {"iss": self.issuer.url, "aud": AUDIENCE, "sub": "jane", "exp": now + 3600, **more}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **more: Any) -> str:
        return self.issuer.key.sign(self.claims(**more))

    async def user(self, token: str) -> User:
        """Authenticate like a request: retry after `DoAgain`."""
        for _ in range(AGAIN_MAX):
            try:
                return self.chain.authenticate(_request(token))
            except DoAgain as lack:
                await lack.settle()
        raise AssertionError("there is no end to it")

    async def refused(self, token: str) -> bool:
        with pytest.raises(StatusError) as error:
            await self.user(token)
        return (error.value.code, str(error.value)) == (401, "Unauthorized")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("issuer"), name="issuer")


@pytest_asyncio.fixture
async def world(files: CertificateFiles) -> AsyncIterator[World]:
    issuer = FakeIssuer(files)
    await issuer.start()
    made = World(issuer)
    yield made
    await made.issuers.close()
    await issuer.stop()


async def test_a_valid_token(world: World) -> None:
    """The keys are fetched once, and the first request waits for them."""
    world.trust()
    user = await world.user(world.token(groups=["a", "b"], jti="7"))
    assert user == User(
        "oidc:jane",
        ("oidc:a", "oidc:b", "system:authenticated"),
        "",
        (("authentication.kubernetes.io/credential-id", ("JTI=7",)),),
    )
    assert (await world.user(world.token(groups="one"))).groups[0] == "oidc:one"
    assert world.issuer.asked == [DISCOVERY, JWKS]


Claims = Callable[[int], dict[str, Any]]
BAD_CLAIMS: dict[str, Claims] = {
    "another audience": lambda _: {"aud": "other"},
    "no audience": lambda _: {"aud": None},
    "an audience that is a number": lambda _: {"aud": 7},
    "an empty list of audiences": lambda _: {"aud": []},
    "no end": lambda _: {"exp": None},
    "an end that is over": lambda now: {"exp": now - 1},
    "an end that is a text": lambda now: {"exp": str(now + 60)},
    "an end beyond all time": lambda _: {"exp": 10**18},
    "a beginning to come": lambda now: {"nbf": now + 400},
    "no name": lambda _: {"sub": None},
    "an empty name": lambda _: {"sub": ""},
    "a name that is a number": lambda _: {"sub": 7},
    "groups that are a number": lambda _: {"groups": 7},
    "a group that is a number": lambda _: {"groups": ["a", 7]},
    "too many groups": lambda _: {"groups": ["g"] * 1001},
}


async def test_a_token_with_bad_claims_is_a_401(world: World) -> None:
    """Each invalid claim alone invalidates the token."""
    world.trust()
    now = int(world.clock.wall().timestamp())
    await world.user(world.token())
    for case, claims in BAD_CLAIMS.items():
        assert await world.refused(world.token(**claims(now))), case


async def test_a_token_with_an_invalid_signature_is_a_401(world: World) -> None:
    """The algorithm and key that the header names make no difference, and trigger no fetch."""
    world.trust()
    good = world.token()
    await world.user(good)
    key_id = world.issuer.key.public.key_id
    jwk = orjson.dumps(world.issuer.key.public.as_jwk())
    head, body, signature = good.split(".")
    other = encode_base64(orjson.dumps(world.claims(sub="eve")))
    signed = f"{encode_base64(orjson.dumps({'alg': 'HS256', 'kid': key_id}))}.{body}"
    by_public_key = hmac.digest(jwk, signed.encode(), hashlib.sha256)
    cases = {
        "no signature": f"{head}.{body}.",
        "alg none": forged({"alg": "none", "kid": key_id}, world.claims(), b""),
        "alg none with a signature": forged({"alg": "none", "kid": key_id}, world.claims(), b"x"),
        "the public key as a secret": f"{signed}.{encode_base64(by_public_key)}",
        "other claims": f"{head}.{other}.{signature}",
        "a cut signature": f"{head}.{body}.{signature[:-4]}",
        "a key of its own": forged(
            {"alg": "ES256", "kid": key_id, "jwk": world.issuer.key.public.as_jwk()},
            world.claims(),
            b"x" * 64,
        ),
        "another algorithm": forged({"alg": "RS256", "kid": key_id}, world.claims(), b"x" * 256),
    }
    for case, token in cases.items():
        assert await world.refused(token), case
    assert world.issuer.asked == [DISCOVERY, JWKS]


async def test_an_unknown_key_is_fetched_at_a_limited_rate(world: World) -> None:
    """Keys are fetched again for an unknown key, at a limited rate."""
    world.trust()
    await world.user(world.token())
    world.issuer.rotate()
    assert await world.refused(world.token())  # too soon after the first fetch
    await world.clock.advance(MISS_FETCH_SECONDS_MIN)
    assert (await world.user(world.token())).name == "oidc:jane"
    assert world.issuer.asked == [DISCOVERY, JWKS] * 2
    for name in ("../../x", "k" * 200, "other"):
        assert await world.refused(forged({"alg": "ES256", "kid": name}, world.claims(), b"x" * 64))
    assert world.issuer.asked == [DISCOVERY, JWKS] * 2


async def test_a_revoked_key_is_removed(world: World) -> None:
    """Keys are fetched periodically, so that a revoked key is removed."""
    world.trust()
    old = world.token()
    await world.user(old)
    world.issuer.rotate()
    world.issuer.asked_something.clear()
    await world.clock.advance(FRESH_SECONDS)
    await world.issuer.asked_something.wait()
    while len(world.issuer.asked) < 4:
        await world.clock.settle()
    assert (await world.user(world.token())).name == "oidc:jane"
    await world.clock.advance(MISS_FETCH_SECONDS_MIN)
    assert await world.refused(old)


BAD_ISSUERS: dict[str, tuple[str, Callable[[FakeIssuer], Any], str]] = {
    "a redirect of the document": (
        DISCOVERY, lambda it: redirect(f"{it.url}/else"), "returned status 302"),
    "a redirect of the keys": (JWKS, lambda it: redirect(f"{it.url}/else"), "returned status 302"),
    "an error": (JWKS, lambda _: json({}, code=500), "returned status 500"),
    "another issuer": (
        DISCOVERY, lambda it: json({"issuer": f"{it.url}/", "jwks_uri": f"{it.url}{JWKS}"}),
        "names another issuer"),
    "keys without TLS": (
        DISCOVERY, lambda it: json({"issuer": it.url, "jwks_uri": "http://localhost/keys"}),
        "has no https jwks_uri"),
    "a document too large": (
        DISCOVERY, lambda _: HttpResponse(200, b" " * (DOCUMENT_BYTES_MAX + 1)), "is larger than"),
    "no JSON": (JWKS, lambda _: HttpResponse(200, b"{"), "did not return a JSON object"),
    "a list": (JWKS, lambda _: json([]), "did not return a JSON object"),
    "no keys": (JWKS, lambda _: json({"keys": []}), "none of its keys can be used"),
    "keys that are none": (JWKS, lambda _: json({"keys": [7, {}, {"kty": "oct", "k": "AA"}]}),
        "none of its keys can be used"),
    "keys that are no list": (JWKS, lambda _: json({"keys": {}}), "has no list of keys"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ISSUERS)
async def test_a_failing_issuer_is_reported_and_its_tokens_are_401(
    world: World, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No redirects are followed; other tokens still work; after recovery the tokens of the issuer
    are valid again."""
    path, answer, why = BAD_ISSUERS[case]
    well = world.issuer.answers[path]
    world.issuer.answers["/else"] = well
    world.issuer.answers[path] = lambda: answer(world.issuer)
    world.trust()
    token = world.token()
    with caplog.at_level(logging.DEBUG):
        assert await world.refused(token)
    assert "/else" not in world.issuer.asked
    (trouble,) = world.issuers.fetch_failures()
    assert why in trouble[1]
    assert why in caplog.text
    assert token not in caplog.text
    assert token.split(".")[2] not in caplog.text
    assert (await world.user("static")).name == "bob"
    world.issuer.answers[path] = well
    await world.clock.advance(REFETCH_SECONDS)
    assert (await world.user(token)).name == "oidc:jane"
    assert not list(world.issuers.fetch_failures())


async def test_an_unresponsive_issuer_delays_requests_only_until_the_timeout(world: World) -> None:
    """Its tokens get a 401 after the timeout, and other tokens do not wait."""
    world.issuer.answers[DISCOVERY] = never
    world.trust()
    with pytest.raises(DoAgain) as lack:
        world.chain.authenticate(_request(world.token()))
    assert (await world.user("static")).name == "bob"
    await world.issuer.asked_something.wait()
    await world.clock.advance(FETCH_SECONDS_MAX)
    await lack.value.settle()
    assert await world.refused(world.token())


async def test_an_issuer_is_verified_by_its_ca(world: World, tmp_path: Path) -> None:
    """A server with a certificate of another CA is not trusted as the issuer."""
    other = make_certificate(tmp_path, name="other")
    world.trust(ca_pem=other.ca_file.read_text())
    assert await world.refused(world.token())
    assert world.issuer.asked == []


async def test_tokens_of_other_issuers_are_ignored(world: World) -> None:
    """Tokens of other issuers are passed on to the next authenticator without a fetch."""
    world.trust()
    await world.user(world.token())
    for token in (world.token(iss="https://other"), world.token(iss=None), "a.b.c", "x"):
        assert world.issuers.user_of(token) is None
        assert await world.refused(token)
    assert world.issuer.asked == [DISCOVERY, JWKS]


async def test_rules_and_expressions_decide(world: World) -> None:
    """Required claims, rejected users, and mapped names."""
    mappings = ClaimMappings(
        username=ClaimMapping(expression="'x:' + claims.sub"),
        groups=ClaimMapping(expression="claims.?roles.orValue([]).map(each, 'r:' + each)"),
        uid=ClaimMapping(claim="sub"),
        extra=(ExtraMapping(key="acme.io/big", value_expression="claims.n > 3 ? 'yes' : ''"),),
    )
    world.trust(
        mappings,
        claim_validation_rules=(
            ClaimRule(claim="hd", required_value="acme"),
            ClaimRule(expression="claims.n < 10", message="too much"),
        ),
        user_validation_rules=(UserRule(expression="!user.username.startsWith('x:system:')"),),
    )
    user = await world.user(world.token(hd="acme", n=4, roles=["a"]))
    assert user == User(
        "x:jane", ("r:a", "system:authenticated"), "jane", (("acme.io/big", ("yes",)),)
    )
    for bad in (
        {"n": 4},
        {"hd": "other", "n": 4},
        {"hd": "acme", "n": 11},
        {"hd": "acme"},
        {"hd": "acme", "n": "4"},
        {"hd": "acme", "n": 4, "sub": "system:admin"},
        {"hd": "acme", "n": 4, "roles": [7]},
    ):
        assert await world.refused(world.token(**bad)), bad


async def test_an_email_must_be_verified(world: World) -> None:
    """An unverified email is rejected as a username."""
    world.trust(ClaimMappings(username=ClaimMapping(claim="email", prefix="")))
    address = "jane@example.com"
    assert (await world.user(world.token(email=address))).name == address
    assert (await world.user(world.token(email=address, email_verified=True))).name == address
    for said in (False, "true", 1):
        assert await world.refused(world.token(email=address, email_verified=said))


async def test_issuers_can_be_added_changed_and_removed(world: World) -> None:
    """Replacing the issuers takes effect with the next request; an unchanged issuer keeps its
    keys."""
    token = world.token()
    assert await world.refused(token)
    world.trust()
    assert (await world.user(token)).name == "oidc:jane"
    world.trust()
    assert (await world.user(token)).name == "oidc:jane"
    assert world.issuer.asked == [DISCOVERY, JWKS]
    world.trust(ClaimMappings(username=ClaimMapping(claim="sub", prefix="other:")))
    assert (await world.user(token)).name == "other:jane"
    world.issuers.take([])
    assert await world.refused(token)


def _request(token: str) -> HttpRequest:
    lines = [("authorization", f"Bearer {token}")]
    return HttpRequest("GET", "/api", "", Headers(lines), b"", Peer(1), 0.0)
