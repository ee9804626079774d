"""Who a token of an issuer stands for: from its claims to a user, by what the configuration says.

The token's signature, audience and times were looked at before. A claim that is not what it should
be makes the token good for nothing; nobody gets a name that was guessed.

Not here: keys and signatures.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.jwt import JwtInvalid
from restow.authentication.certificates import CREDENTIAL_ID
from restow.authentication.oidc_config import JwtAuthenticator, Mapped
from restow.authentication.oidc_expressions import ExpressionFailed, of_claims, of_user
from restow.request.context import User

GROUPS_MAX: Final = 1_000

Claims = dict[str, Any]


def user_of_claims(config: JwtAuthenticator, claims: Claims) -> User:
    """The user. Raises JwtInvalid, with nothing of the claims in it."""
    mappings = config.claim_mappings
    extra: list[tuple[str, tuple[str, ...]]] = []
    if isinstance(jti := claims.get("jti"), str) and jti:
        extra.append((CREDENTIAL_ID, (f"JTI={jti}",)))
    for each in mappings.extra:
        place = f"extra {each.key}"
        if values := _texts(_value(each.value_expression, claims, place), place):
            extra.append((each.key, values))
    user = User(
        _user_name(mappings.username, claims),
        _groups(mappings.groups, claims),
        _uid(mappings.uid, claims),
        tuple(extra),
    )
    _check_claims(config, claims)
    _check_user(config, user)
    return user


def _user_name(mapped: Mapped, claims: Claims) -> str:
    if mapped.expression:
        name = _value(mapped.expression, claims, "username")
    else:
        name = claims.get(mapped.claim)
        if mapped.claim == "email" and claims.get("email_verified", True) is not True:
            raise JwtInvalid("its email is not verified")
    if not isinstance(name, str) or not name:
        raise JwtInvalid("what should name its user is no text")
    return (mapped.prefix or "") + name


def _groups(mapped: Mapped, claims: Claims) -> tuple[str, ...]:
    if mapped.expression:
        return _texts(_value(mapped.expression, claims, "groups"), "groups")
    prefix = mapped.prefix or ""
    found = claims.get(mapped.claim) if mapped.claim else None
    # Some issuers tell one group as a text.
    texts = _texts(found, f"claim {mapped.claim}")
    return tuple(prefix + each for each in texts)


def _uid(mapped: Mapped, claims: Claims) -> str:
    if not mapped.claim and not mapped.expression:
        return ""
    found = (
        _value(mapped.expression, claims, "uid") if mapped.expression else claims.get(mapped.claim)
    )
    if not isinstance(found, str):
        raise JwtInvalid("what should be the uid of its user is no text")
    return found


def _check_claims(config: JwtAuthenticator, claims: Claims) -> None:
    for number, rule in enumerate(config.claim_validation_rules):
        if rule.claim:
            if rule.claim not in claims:
                raise JwtInvalid(f"required claim {rule.claim} not present in ID token")
            if claims[rule.claim] != rule.required_value:
                raise JwtInvalid(f"required claim {rule.claim} value does not match")
        elif _value(rule.expression, claims, f"claimValidationRules[{number}]") is not True:
            why = rule.message or f"claimValidationRules[{number}]"
            raise JwtInvalid(f"validation expression failed: {why}")


def _check_user(config: JwtAuthenticator, user: User) -> None:
    if not config.user_validation_rules:
        return
    seen = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra},
    }
    for number, rule in enumerate(config.user_validation_rules):
        try:
            is_good = of_user(rule.expression, seen)
        except ExpressionFailed as error:
            raise JwtInvalid(f"userValidationRules[{number}]: {error}") from None
        if is_good is not True:
            why = rule.message or f"userValidationRules[{number}]"
            raise JwtInvalid(f"validation expression failed: {why}")


def _value(expression: str, claims: Claims, place: str) -> Any:
    try:
        return of_claims(expression, claims)
    except ExpressionFailed as error:
        raise JwtInvalid(f"{place}: {error}") from None


def _texts(value: Any, place: str) -> tuple[str, ...]:
    """A text, or a list of texts, without empty ones."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise JwtInvalid(f"{place} is neither a text nor a list of texts")
    if len(value) > GROUPS_MAX:
        raise JwtInvalid(f"{place} has more than {GROUPS_MAX} texts")
    return tuple(each for each in value if each)
