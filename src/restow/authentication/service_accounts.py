"""Service accounts: who they are is told by tokens that the servers of the cluster have signed.

    signature -> issuer -> audience -> time -> the account is there, by that uid
        -> so is what the token is bound to

What a token says is found out once and kept by its hash, so one that comes again costs a look-up;
whether it is still good is asked each time. Who has a token of ours that is not good is refused,
and not asked for by others.

Not here: what a token says (`service_accounts_claims`), how new what is known of objects must be
(`service_accounts_objects`), and how tokens are asked for (`restow.endpoints.handlers`).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from restow.aio import Clock
from restow.apimachinery import jwt, status
from restow.apimachinery.jwt import JwtInvalid
from restow.apimachinery.jwt_keys import KeySet, SigningKey
from restow.apimachinery.type_values import parse_time
from restow.authentication import service_accounts_claims as account_claims
from restow.authentication.service_accounts_claims import (
    LEEWAY_SECONDS,
    LEGACY_ISSUER,
    BoundObject,
    TokenClaims,
)
from restow.authentication.service_accounts_objects import AccountObjects
from restow.authentication.tokens import bearer_token
from restow.httpserver.request import HttpRequest
from restow.registry.watch_cache import Entry
from restow.request.context import User

KEEPS_SECONDS: Final = 0.5
"""With half a second for what is known of objects: who was deleted is out within a second."""
KNOWN_MAX: Final = 10_000
INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"


class TokenRefused(Exception):
    """Why a token is not taken, in words that hold nothing of it."""


class Identified(NamedTuple):
    """Whose a token is, and for whom of those who were asked for."""

    user: User
    audiences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTrust:
    """Which tokens are signed, and which are believed."""

    signing: SigningKey = field(repr=False)
    keys: KeySet
    """Those believed; the public half of `signing` is one of them."""
    issuers: tuple[str, ...]
    """The first signs, all are believed."""
    audiences: tuple[str, ...]
    """What this server is called by those who ask for tokens."""


class _Seen(NamedTuple):
    """What was found of an object that a token needs."""

    revision: int
    uid: str
    gone_at: float
    """When its deletion begins to count, in seconds of the epoch."""
    token: bytes
    """What a Secret holds, hashed; empty for all else."""
    is_invalid: bool


class _Known:
    """A token whose signature is good."""

    __slots__ = ("claims", "seen")

    def __init__(self, claims: TokenClaims) -> None:
        self.claims = claims
        self.seen: dict[BoundObject, _Seen] = {}


class AccountAuthenticator:
    """Knows accounts by their tokens. Satisfies `Authenticator`."""

    keeps_seconds: float = KEEPS_SECONDS

    def __init__(self, trust: AccountTrust, objects: AccountObjects, clock: Clock) -> None:
        self._trust = trust
        self._objects = objects
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        """By hash of the token; the oldest first."""

    def authenticate(self, request: HttpRequest) -> User | None:
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def user_of(self, token: str) -> User | None:
        """The account of a token for this server; None: it is no account's. Raises 401."""
        try:
            found = self.identify(token, self._trust.audiences)
        except TokenRefused as error:
            raise status.unauthorized() from error
        return None if found is None else found.user

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """The account of a token for one of these; None: it is not signed in our name.

        Raises TokenRefused, `DoAgain` when something must be waited for, or a 503.
        """
        if len(token) > jwt.TOKEN_LENGTH_MAX:
            return None  # a review may bring one of any length
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        try:
            known = self._known.get(digest) or self._verify(token, digest)
            if known is None:
                return None
            claims = known.claims
            good_for = self._good_for(claims, audiences)
            now = self._clock.wall().timestamp()
            claims.check_time(now)
            self._check_objects(known, now, digest)
        except JwtInvalid as error:
            raise TokenRefused(str(error)) from error
        return Identified(claims.user, good_for)

    def _verify(self, token: str, digest: bytes) -> _Known | None:
        try:
            read = jwt.read(token)
            issuer = jwt.text(read.claims, "iss")
        except JwtInvalid:
            return None  # no such token at all, or somebody else's
        if issuer != LEGACY_ISSUER and issuer not in self._trust.issuers:
            return None
        self._trust.keys.check(read)
        is_legacy = issuer == LEGACY_ISSUER
        reader = account_claims.read_legacy if is_legacy else account_claims.read
        known = _Known(reader(read.claims))
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[digest] = known
        return known

    def _good_for(self, claims: TokenClaims, wanted: Sequence[str]) -> tuple[str, ...]:
        named = self._trust.audiences if claims.is_legacy else claims.audiences
        good_for = tuple(each for each in named if each in wanted)
        if not good_for:
            raise TokenRefused(
                f"token audiences {_listed(named)} is invalid for the target audiences"
                f" {_listed(wanted)}"
            )
        return good_for

    def _check_objects(self, known: _Known, now: float, digest: bytes) -> None:
        claims = known.claims
        account = BoundObject("ServiceAccount", claims.name, claims.uid)
        seen = self._look(known, account)
        if seen is None:
            raise TokenRefused(f'serviceaccounts "{claims.name}" not found')
        if seen.uid != claims.uid:
            raise TokenRefused(
                f"service account UID ({seen.uid}) does not match claim ({claims.uid})"
            )
        if now > seen.gone_at:
            place = f"{claims.namespace}/{claims.name}"
            raise TokenRefused(f"service account {place} has been deleted")
        for bound in claims.bound:
            seen = self._look(known, bound)
            if seen is None or now > seen.gone_at:
                raise TokenRefused("service account token has been invalidated")
            if claims.is_legacy:
                _check_held(seen, digest)
            elif seen.uid != bound.uid:
                word = bound.kind.lower()
                raise TokenRefused(
                    f"{word} UID ({seen.uid}) does not match service account {word} ref claim"
                    f" ({bound.uid})"
                )

    def _look(self, known: _Known, bound: BoundObject) -> _Seen | None:
        """What there is of an object; it is read anew only if it has changed."""
        namespace = "" if bound.kind == "Node" else known.claims.namespace
        entry = self._objects.find(bound.kind, namespace, bound.name)
        if entry is None:
            return None
        seen = known.seen.get(bound)
        if seen is None or seen.revision != entry[0]:
            seen = known.seen[bound] = _see(entry, bound.kind)
        return seen


def _see(entry: Entry, kind: str) -> _Seen:
    obj: dict[str, Any] = orjson.loads(entry[2])
    metadata, gone_at, held = obj["metadata"], math.inf, b""
    if deleted := metadata.get("deletionTimestamp"):
        gone_at = parse_time(deleted).timestamp() + LEEWAY_SECONDS
    if kind == "Secret":
        # Kept as a hash: a memory that is looked into holds no token.
        with suppress(ValueError):
            held = hashlib.sha256(b64decode((obj.get("data") or {}).get("token") or "")).digest()
    is_invalid = bool((metadata.get("labels") or {}).get(INVALID_SINCE))
    return _Seen(entry[0], metadata.get("uid") or "", gone_at, held, is_invalid)


def _check_held(secret: _Seen, digest: bytes) -> None:
    """A token without an end is good as long as its Secret holds it, letter by letter."""
    if not hmac.compare_digest(secret.token, digest):
        raise TokenRefused("Token does not match server's copy")
    if secret.is_invalid:
        raise TokenRefused("the token has been marked invalid")


def _listed(texts: Sequence[str]) -> str:
    """As Go prints a list of quoted texts."""
    return f"[{' '.join(orjson.dumps(each).decode() for each in texts)}]"
