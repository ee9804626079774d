"""What the token of a service account says: made here, and read here. Pure.

    {"iss": …, "sub": "system:serviceaccount:NS:NAME", "aud": […], "exp": …, "nbf": …, "iat": …,
     "jti": …, "kubernetes.io": {"namespace": NS, "serviceaccount": {"name": …, "uid": …},
                                 "pod" | "secret" | "node": {"name": …, "uid": …}}}

Tokens that a Secret holds are older: no end, no audience, and other names for the same things.
Not here: signatures (`restow.apimachinery.jwt_keys`), and whether what a token names is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from restow.apimachinery import jwt
from restow.apimachinery.jwt import JwtInvalid
from restow.request.context import User

LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
LEEWAY_SECONDS: Final = 60.0
"""Clocks of machines differ; as the reference allows for."""

USER_PREFIX: Final = "system:serviceaccount:"
GROUP: Final = "system:serviceaccounts"

_OWN: Final = "kubernetes.io"
_LEGACY: Final = "kubernetes.io/serviceaccount"
_EXTRA: Final = "authentication.kubernetes.io"


class BoundObject(NamedTuple):
    """An object that a token is good as long as."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """What a token says, once it is known who has signed it."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    """None for a token of a Secret: that is for the API server alone."""
    expires: float | None
    not_before: float | None
    issued: float | None
    bound: tuple[BoundObject, ...]
    """Objects besides the account that must be there, by these uids."""
    user: User
    is_legacy: bool = False

    def check_time(self, now_epoch_seconds: float) -> None:
        """Raises JwtInvalid before and after the time that a token is good for."""
        if self.not_before is not None and now_epoch_seconds + LEEWAY_SECONDS < self.not_before:
            raise JwtInvalid("service account token is not valid yet")
        if self.expires is not None and now_epoch_seconds - LEEWAY_SECONDS > self.expires:
            raise JwtInvalid("service account token has expired")
        if self.issued is not None and now_epoch_seconds + LEEWAY_SECONDS < self.issued:
            raise JwtInvalid("service account token is issued in the future")


def user_name(namespace: str, name: str) -> str:
    return f"{USER_PREFIX}{namespace}:{name}"


def make(
    *,
    issuer: str,
    namespace: str,
    account: tuple[str, str],
    audiences: Sequence[str],
    bound: dict[str, dict[str, str]],
    token_id: str,
    now: int,
    expires: int,
    warn_after: int | None = None,
) -> dict[str, Any]:
    """The claims of a new token. `account` is its name and uid; `bound` by what it is called."""
    name, uid = account
    own: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
    own |= bound
    if warn_after is not None:
        own["warnafter"] = warn_after
    return {
        "iss": issuer,
        "sub": user_name(namespace, name),
        "aud": list(audiences),
        "exp": expires,
        "iat": now,
        "nbf": now,
        "jti": token_id,
        _OWN: own,
    }


def make_legacy(*, namespace: str, account: tuple[str, str], secret: str) -> dict[str, Any]:
    """The claims of a token that a Secret holds."""
    name, uid = account
    return {
        "iss": LEGACY_ISSUER,
        "sub": user_name(namespace, name),
        f"{_LEGACY}/namespace": namespace,
        f"{_LEGACY}/secret.name": secret,
        f"{_LEGACY}/service-account.name": name,
        f"{_LEGACY}/service-account.uid": uid,
    }


def read(claims: dict[str, Any]) -> TokenClaims:
    """The claims of a token of limited time. Raises JwtInvalid for what lacks one."""
    own = _section(claims, _OWN)
    account = _section(own, "serviceaccount")
    namespace = _needed(own, "namespace")
    name, uid = _needed(account, "name"), _needed(account, "uid")
    if jwt.text(claims, "sub") != user_name(namespace, name):
        raise JwtInvalid("sub claim is invalid")
    audiences, expires = jwt.audiences(claims), jwt.moment(claims, "exp")
    if not audiences or expires is None:
        raise JwtInvalid("it does not say for whom and until when")
    secret, pod, node = (_reference(own, each) for each in ("secret", "pod", "node"))
    bound = [each for each in (secret, pod) if each is not None]
    if node is not None and pod is None:
        bound.append(node)  # for that of a pod it is only told where it runs
    extra = {}
    if pod is not None:
        extra[f"{_EXTRA}/pod-name"] = pod.name
        extra[f"{_EXTRA}/pod-uid"] = pod.uid
    if node is not None:
        extra[f"{_EXTRA}/node-name"] = node.name
        if node.uid:
            extra[f"{_EXTRA}/node-uid"] = node.uid
    if token_id := jwt.text(claims, "jti"):
        extra[f"{_EXTRA}/credential-id"] = credential_id(token_id)
    return TokenClaims(
        namespace=namespace,
        name=name,
        uid=uid,
        audiences=audiences,
        expires=expires,
        not_before=jwt.moment(claims, "nbf"),
        issued=jwt.moment(claims, "iat"),
        bound=tuple(bound),
        user=account_user(namespace, name, uid, extra),
    )


def read_legacy(claims: dict[str, Any]) -> TokenClaims:
    """The same of a token that a Secret holds."""
    namespace, secret, name, uid = (
        _needed(claims, f"{_LEGACY}/{each}")
        for each in ("namespace", "secret.name", "service-account.name", "service-account.uid")
    )
    if jwt.text(claims, "sub") != user_name(namespace, name):
        raise JwtInvalid("sub claim is invalid")
    return TokenClaims(
        namespace=namespace,
        name=name,
        uid=uid,
        audiences=(),
        expires=jwt.moment(claims, "exp"),
        not_before=jwt.moment(claims, "nbf"),
        issued=jwt.moment(claims, "iat"),
        bound=(BoundObject("Secret", secret, ""),),
        user=account_user(namespace, name, uid, {}),
        is_legacy=True,
    )


def credential_id(token_id: str) -> str:
    """What a token is called in the audit log."""
    return f"JTI={token_id}"


def account_user(namespace: str, name: str, uid: str, extra: dict[str, str]) -> User:
    """Who an account is."""
    told = tuple((key, (extra[key],)) for key in sorted(extra))
    return User(user_name(namespace, name), (GROUP, f"{GROUP}:{namespace}"), uid, told)


def _section(claims: dict[str, Any], name: str) -> dict[str, Any]:
    found = claims.get(name)
    if not isinstance(found, dict):
        raise JwtInvalid(f"{name} claim is missing")
    return found


def _needed(claims: dict[str, Any], name: str) -> str:
    found = claims.get(name)
    # A name is a part of a path; what is no name leads nowhere, and not elsewhere.
    if not isinstance(found, str) or not found or "/" in found:
        raise JwtInvalid(f"{name} claim is missing")
    return found


def _reference(own: dict[str, Any], name: str) -> BoundObject | None:
    if name not in own:
        return None
    found = _section(own, name)
    # The node of a pod may be gone when the token is made; then it has no uid.
    uid = jwt.text(found, "uid") if name == "node" and "pod" in own else _needed(found, "uid")
    return BoundObject(name.capitalize(), _needed(found, "name"), uid)
