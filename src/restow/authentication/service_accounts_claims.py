"""Claims of service account tokens: building and parsing. It has no side effects.

    {"iss": …, "sub": "system:serviceaccount:NS:NAME", "aud": […], "exp": …, "nbf": …, "iat": …,
     "jti": …, "kubernetes.io": {"namespace": NS, "serviceaccount": {"name": …, "uid": …},
                                 "pod" | "secret" | "node": {"name": …, "uid": …}}}

Legacy tokens, which a Secret contains, have no expiry, no audience, and other claim names.

Not here: signatures (`restow.apimachinery.jwt_keys`), and whether the named objects exist.
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
"""Allows for clock skew, like kube-apiserver."""

USER_PREFIX: Final = "system:serviceaccount:"
GROUP: Final = "system:serviceaccounts"

_PRIVATE: Final = "kubernetes.io"
_LEGACY: Final = "kubernetes.io/serviceaccount"
_EXTRA: Final = "authentication.kubernetes.io"


class BoundObject(NamedTuple):
    """An object whose deletion invalidates a token."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """The claims of a token with a verified signature."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    """Empty for a legacy token, which is valid for the API server only."""
    expires: float | None
    not_before: float | None
    issued: float | None
    bound: tuple[BoundObject, ...]
    """Objects besides the account that must exist, with these uids."""
    user: User
    is_legacy: bool = False

    def check_time(self, now_epoch_seconds: float) -> None:
        """Raises JwtInvalid outside the token's validity period."""
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
    """Build the claims of a new token. `account` is a name and uid; `bound` is by claim name."""
    name, uid = account
    private: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
    private |= bound
    if warn_after is not None:
        private["warnafter"] = warn_after
    return {
        "iss": issuer,
        "sub": user_name(namespace, name),
        "aud": list(audiences),
        "exp": expires,
        "iat": now,
        "nbf": now,
        "jti": token_id,
        _PRIVATE: private,
    }


def make_legacy(*, namespace: str, account: tuple[str, str], secret: str) -> dict[str, Any]:
    """Build the claims of a legacy token, which a Secret contains."""
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
    """Parse the claims of a token with an expiry. Raises JwtInvalid for a missing claim."""
    private = _section(claims, _PRIVATE)
    account = _section(private, "serviceaccount")
    namespace = _required(private, "namespace")
    name, uid = _required(account, "name"), _required(account, "uid")
    if jwt.text(claims, "sub") != user_name(namespace, name):
        raise JwtInvalid("sub claim is invalid")
    audiences, expires = jwt.audiences(claims), jwt.moment(claims, "exp")
    if not audiences or expires is None:
        raise JwtInvalid("the aud or exp claim is missing")
    secret, pod, node = (_reference(private, each) for each in ("secret", "pod", "node"))
    bound = [each for each in (secret, pod) if each is not None]
    if node is not None and pod is None:
        bound.append(node)  # next to a pod, the node is informational
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
    """Parse the claims of a legacy token."""
    namespace, secret, name, uid = (
        _required(claims, f"{_LEGACY}/{each}")
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
    """Return the credential ID of a token in the audit log."""
    return f"JTI={token_id}"


def account_user(namespace: str, name: str, uid: str, extra: dict[str, str]) -> User:
    """Return the user of a service account."""
    extra_values = tuple((key, (extra[key],)) for key in sorted(extra))
    return User(user_name(namespace, name), (GROUP, f"{GROUP}:{namespace}"), uid, extra_values)


def _section(claims: dict[str, Any], name: str) -> dict[str, Any]:
    found = claims.get(name)
    if not isinstance(found, dict):
        raise JwtInvalid(f"{name} claim is missing")
    return found


def _required(claims: dict[str, Any], name: str) -> str:
    found = claims.get(name)
    # A name becomes a part of a key, so it must not contain a slash.
    if not isinstance(found, str) or not found or "/" in found:
        raise JwtInvalid(f"{name} claim is missing")
    return found


def _reference(private: dict[str, Any], name: str) -> BoundObject | None:
    if name not in private:
        return None
    found = _section(private, name)
    # The node of a pod may not exist when the token is created; then it has no uid.
    uid = jwt.text(found, "uid") if name == "node" and "pod" in private else _required(found, "uid")
    return BoundObject(name.capitalize(), _required(found, "name"), uid)
