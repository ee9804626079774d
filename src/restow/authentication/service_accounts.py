"""Authentication of service accounts by tokens that the cluster's servers signed.

    signature -> issuer -> audience -> times -> the account exists, with the same uid
        -> so does the object that the token is bound to

The signature and claims of a token are verified once and cached by its hash, so a repeated token
costs a lookup; times and objects are checked each time. An invalid token of this cluster is
rejected, without trying other authenticators.

Not here: claims (`service_accounts_claims`), the freshness of objects (`service_accounts_objects`),
and TokenRequests (`restow.endpoints.handlers`).
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
from restow.authentication.credentials import WITHOUT_END, Credential
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
"""How long a connection may reuse the result. The cached objects may be another half second old, so
a deleted account is rejected within a second."""
KNOWN_MAX: Final = 10_000
INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"


class TokenRefused(Exception):
    """A token is rejected. The message contains the reason, and not the token."""


class Identified(NamedTuple):
    """The user of a token, and the requested audiences that it is valid for."""

    user: User
    audiences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTrust:
    """The keys that sign and verify tokens."""

    signing: SigningKey = field(repr=False)
    keys: KeySet
    """Verification keys, including the public half of `signing`."""
    issuers: tuple[str, ...]
    """The first one is used for new tokens; all are accepted."""
    audiences: tuple[str, ...]
    """The audiences of this server."""


class _ObjectState(NamedTuple):
    """The state of an object that a token depends on."""

    revision: int
    uid: str
    deleted_at: float
    """When its deletion takes effect, in seconds since the epoch."""
    token: bytes
    """The hash of a Secret's token; empty for other kinds."""
    is_invalid: bool


class _VerifiedToken:
    """A token with a valid signature."""

    __slots__ = ("claims", "states")

    def __init__(self, claims: TokenClaims) -> None:
        self.claims = claims
        self.states: dict[BoundObject, _ObjectState] = {}


class AccountAuthenticator:
    """Authenticates service accounts. Satisfies `Authenticator`."""

    keeps_seconds: float = KEEPS_SECONDS

    def __init__(self, trust: AccountTrust, objects: AccountObjects, clock: Clock) -> None:
        self._trust = trust
        self._objects = objects
        self._clock = clock
        self._verified: dict[bytes, _VerifiedToken] = {}
        """By hash of the token, the oldest first."""

    def authenticate(self, request: HttpRequest) -> User | None:
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def credential_of(self, request: HttpRequest) -> Credential:
        verified = self._verified.get(_digest(bearer_token(request) or ""))
        if verified is None or verified.claims.expires is None:
            return WITHOUT_END
        return Credential(verified.claims.expires + LEEWAY_SECONDS)

    def user_of(self, token: str) -> User | None:
        """Return the service account of a token for this server, or None if it is another token.
        Raises 401."""
        try:
            found = self.identify(token, self._trust.audiences)
        except TokenRefused as error:
            raise status.unauthorized() from error
        return None if found is None else found.user

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Return the service account of a token for one of the audiences, or None if this cluster
        did not sign it.

        Raises TokenRefused, `DoAgain` when objects must be loaded, or a 503.
        """
        if len(token) > jwt.TOKEN_LENGTH_MAX:
            return None  # a TokenReview may contain one of any length
        digest = _digest(token)
        try:
            verified = self._verified.get(digest) or self._verify(token, digest)
            if verified is None:
                return None
            claims = verified.claims
            accepted = self._accepted_audiences(claims, audiences)
            now = self._clock.wall().timestamp()
            claims.check_time(now)
            self._check_objects(verified, now, digest)
        except JwtInvalid as error:
            raise TokenRefused(str(error)) from error
        return Identified(claims.user, accepted)

    def _verify(self, token: str, digest: bytes) -> _VerifiedToken | None:
        try:
            read = jwt.read(token)
            issuer = jwt.text(read.claims, "iss")
        except JwtInvalid:
            return None  # not a service account token, or one of another cluster
        if issuer != LEGACY_ISSUER and issuer not in self._trust.issuers:
            return None
        self._trust.keys.check(read)
        is_legacy = issuer == LEGACY_ISSUER
        reader = account_claims.read_legacy if is_legacy else account_claims.read
        verified = _VerifiedToken(reader(read.claims))
        while len(self._verified) >= KNOWN_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified
        return verified

    def _accepted_audiences(self, claims: TokenClaims, wanted: Sequence[str]) -> tuple[str, ...]:
        named = self._trust.audiences if claims.is_legacy else claims.audiences
        accepted = tuple(each for each in named if each in wanted)
        if not accepted:
            raise TokenRefused(
                f"token audiences {_listed(named)} is invalid for the target audiences"
                f" {_listed(wanted)}"
            )
        return accepted

    def _check_objects(self, verified: _VerifiedToken, now: float, digest: bytes) -> None:
        claims = verified.claims
        account = BoundObject("ServiceAccount", claims.name, claims.uid)
        state = self._object_state(verified, account)
        if state is None:
            raise TokenRefused(f'serviceaccounts "{claims.name}" not found')
        if state.uid != claims.uid:
            raise TokenRefused(
                f"service account UID ({state.uid}) does not match claim ({claims.uid})"
            )
        if now > state.deleted_at:
            account_text = f"{claims.namespace}/{claims.name}"
            raise TokenRefused(f"service account {account_text} has been deleted")
        for bound in claims.bound:
            state = self._object_state(verified, bound)
            if state is None or now > state.deleted_at:
                raise TokenRefused("service account token has been invalidated")
            if claims.is_legacy:
                _check_held(state, digest)
            elif state.uid != bound.uid:
                kind_text = bound.kind.lower()
                raise TokenRefused(
                    f"{kind_text} UID ({state.uid}) does not match service account "
                    f"{kind_text} ref claim"
                    f" ({bound.uid})"
                )

    def _object_state(self, verified: _VerifiedToken, bound: BoundObject) -> _ObjectState | None:
        """Return the state of an object, parsed only if the object changed."""
        namespace = "" if bound.kind == "Node" else verified.claims.namespace
        entry = self._objects.find(bound.kind, namespace, bound.name)
        if entry is None:
            return None
        state = verified.states.get(bound)
        if state is None or state.revision != entry[0]:
            state = verified.states[bound] = _read_state(entry, bound.kind)
        return state


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read_state(entry: Entry, kind: str) -> _ObjectState:
    obj: dict[str, Any] = orjson.loads(entry[2])
    metadata, deleted_at, token_hash = obj["metadata"], math.inf, b""
    if deleted := metadata.get("deletionTimestamp"):
        deleted_at = parse_time(deleted).timestamp() + LEEWAY_SECONDS
    if kind == "Secret":
        # Only the hash is kept, so that no token can be read from memory.
        with suppress(ValueError):
            token_hash = hashlib.sha256(
                b64decode((obj.get("data") or {}).get("token") or "")
            ).digest()
    is_invalid = bool((metadata.get("labels") or {}).get(INVALID_SINCE))
    return _ObjectState(entry[0], metadata.get("uid") or "", deleted_at, token_hash, is_invalid)


def _check_held(secret: _ObjectState, digest: bytes) -> None:
    """Check that the Secret still contains the token. A legacy token has no expiry."""
    if not hmac.compare_digest(secret.token, digest):
        raise TokenRefused("Token does not match server's copy")
    if secret.is_invalid:
        raise TokenRefused("the token has been marked invalid")


def _listed(strings: Sequence[str]) -> str:
    """Format a list of quoted strings like Go's `%q`."""
    return f"[{' '.join(orjson.dumps(each).decode() for each in strings)}]"
