"""The user of an OpenID Connect token: applies the configured claim mappings and rules.

Signature, audience and times are verified before. An invalid claim invalidates the token.

Not here: keys and signatures.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.jwt import JwtInvalid
from restow.authentication.certificates import CREDENTIAL_ID
from restow.authentication.oidc_config import ClaimMapping, JwtAuthenticator
from restow.authentication.oidc_expressions import ExpressionFailed, evaluate_claims, evaluate_user
from restow.request.context import User

GROUPS_MAX: Final = 1_000

Claims = dict[str, Any]


def user_of_claims(config: JwtAuthenticator, claims: Claims) -> User:
    """Return the user. Raises JwtInvalid; its message contains no values of claims."""
    mappings = config.claim_mappings
    extra: list[tuple[str, tuple[str, ...]]] = []
    if isinstance(jti := claims.get("jti"), str) and jti:
        extra.append((CREDENTIAL_ID, (f"JTI={jti}",)))
    for each in mappings.extra:
        field = f"extra {each.key}"
        if values := _strings(_value(each.value_expression, claims, field), field):
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


def _user_name(mapped: ClaimMapping, claims: Claims) -> str:
    if mapped.expression:
        name = _value(mapped.expression, claims, "username")
    else:
        name = claims.get(mapped.claim)
        if mapped.claim == "email" and claims.get("email_verified", True) is not True:
            raise JwtInvalid("its email is not verified")
    if not isinstance(name, str) or not name:
        raise JwtInvalid("the username is not a non-empty string")
    return (mapped.prefix or "") + name


def _groups(mapped: ClaimMapping, claims: Claims) -> tuple[str, ...]:
    if mapped.expression:
        return _strings(_value(mapped.expression, claims, "groups"), "groups")
    prefix = mapped.prefix or ""
    found = claims.get(mapped.claim) if mapped.claim else None
    # Some issuers send a single group as a string.
    strings = _strings(found, f"claim {mapped.claim}")
    return tuple(prefix + each for each in strings)


def _uid(mapped: ClaimMapping, claims: Claims) -> str:
    if not mapped.claim and not mapped.expression:
        return ""
    found = (
        _value(mapped.expression, claims, "uid") if mapped.expression else claims.get(mapped.claim)
    )
    if not isinstance(found, str):
        raise JwtInvalid("the uid is not a string")
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
            is_good = evaluate_user(rule.expression, seen)
        except ExpressionFailed as error:
            raise JwtInvalid(f"userValidationRules[{number}]: {error}") from None
        if is_good is not True:
            why = rule.message or f"userValidationRules[{number}]"
            raise JwtInvalid(f"validation expression failed: {why}")


def _value(expression: str, claims: Claims, field: str) -> Any:
    try:
        return evaluate_claims(expression, claims)
    except ExpressionFailed as error:
        raise JwtInvalid(f"{field}: {error}") from None


def _strings(value: Any, field: str) -> tuple[str, ...]:
    """Return a string or a list of strings as a tuple, without empty ones."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise JwtInvalid(f"{field} is neither a string nor a list of strings")
    if len(value) > GROUPS_MAX:
        raise JwtInvalid(f"{field} has more than {GROUPS_MAX} values")
    return tuple(each for each in value if each)
