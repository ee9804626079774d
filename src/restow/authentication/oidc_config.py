"""The AuthenticationConfiguration (`apiserver.config.k8s.io/v1`), or the older flags: trusted
issuers and their claim mappings.

    jwt:
    - issuer: {url: https://issuer.example.com, audiences: [restow]}
      claimMappings:
        username: {claim: sub, prefix: "oidc:"}
        groups: {claim: groups, prefix: "oidc:"}
    anonymous: {enabled: true, conditions: [{path: /livez}]}

It is validated like in kube-apiserver; each problem is reported with its field path.

Not here: keys (`oidc_keys`), and the evaluation of claims (`oidc_claims`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from restow.apimachinery.certificates import read_pem
from restow.apimachinery.name_formats import subdomain_problem
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.yaml_codec import YAML_SIZE_MAX, decode
from restow.authentication.anonymous import AnonymousAccess
from restow.authentication.oidc_expressions import check_claims_rule, check_user_rule

API_VERSIONS: Final = frozenset(
    f"apiserver.config.k8s.io/{each}" for each in ("v1", "v1beta1", "v1alpha1")
)
KIND: Final = "AuthenticationConfiguration"
ISSUERS_MAX: Final = 64
FILE_BYTES_MAX: Final = YAML_SIZE_MAX
PROBLEMS_SHOWN_MAX: Final = 10
ALGORITHMS: Final = tuple(
    f"{kind}{bits}" for kind in ("RS", "ES", "PS") for bits in (256, 384, 512)
)
"""Asymmetric algorithms only, because the keys of issuers are public."""

_NOT_WITH_EXPRESSION: Final = "Invalid value: may not be specified when expression is set"
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_PATH_CHARACTERS: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


class _Part(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file. Unknown fields are refused."""


class ClaimMapping(_Part, frozen=True):
    """The source of a user field: a claim, or an expression over all claims."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class ExtraMapping(_Part, frozen=True):
    key: str = ""
    value_expression: str = ""


class ClaimMappings(_Part, frozen=True):
    username: ClaimMapping = ClaimMapping()
    groups: ClaimMapping = ClaimMapping()
    uid: ClaimMapping = ClaimMapping()
    extra: tuple[ExtraMapping, ...] = ()


class ClaimRule(_Part, frozen=True):
    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class UserRule(_Part, frozen=True):
    expression: str = ""
    message: str = ""


class IssuerConfiguration(_Part, frozen=True):
    url: str = ""
    discovery_url: str = field(default="", name="discoveryURL")
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""

    @property
    def document_url(self) -> str:
        """The URL of the discovery document."""
        return self.discovery_url or self.url.rstrip("/") + _WELL_KNOWN


class JwtAuthenticator(_Part, frozen=True):
    """One issuer."""

    issuer: IssuerConfiguration = IssuerConfiguration()
    claim_validation_rules: tuple[ClaimRule, ...] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: tuple[UserRule, ...] = ()


class _Condition(_Part, frozen=True):
    path: str = ""


class _Anonymous(_Part, frozen=True):
    enabled: bool = False
    conditions: tuple[_Condition, ...] = ()


class _File(_Part, frozen=True):
    api_version: str = ""
    kind: str = ""
    jwt: tuple[JwtAuthenticator, ...] = ()
    anonymous: _Anonymous | None = None


class AuthenticationConfig(Struct, frozen=True, kw_only=True):
    """The content of the file."""

    issuers: tuple[JwtAuthenticator, ...] = ()
    anonymous: AnonymousAccess | None = None
    """None if not configured."""


def read_config(data: bytes, *, own_issuers: tuple[str, ...] = ()) -> AuthenticationConfig:
    """Read a configuration file. `own_issuers` sign the cluster's own tokens and cannot be
    configured. Raises ValueError with all problems."""
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
    try:
        decoded = decode(data)
    except StatusError as error:
        raise ValueError(str(error)) from error
    if decoded.duplicates:
        raise ValueError(f"duplicate fields: {', '.join(map(str, decoded.duplicates[:3]))}")
    value = decoded.value
    if value.get("kind") != KIND or value.get("apiVersion") not in API_VERSIONS:
        raise ValueError(f"not an {KIND} of apiserver.config.k8s.io/v1")
    try:
        given = msgspec.convert(_without_nulls(value), type=_File)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`$.", "`")) from error
    check_issuers(given.jwt, own_issuers=own_issuers)
    return AuthenticationConfig(issuers=given.jwt, anonymous=_anonymous(given.anonymous))


def check_issuers(
    issuers: tuple[JwtAuthenticator, ...], *, own_issuers: tuple[str, ...] = ()
) -> None:
    """Raises ValueError with all problems of the issuers."""
    if len(issuers) > ISSUERS_MAX:
        raise ValueError(f"jwt: Too many: {len(issuers)}: must have at most {ISSUERS_MAX} items")
    problems = list(_problems(issuers, own_issuers))
    if problems:
        more = len(problems) - PROBLEMS_SHOWN_MAX
        shown = problems[:PROBLEMS_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError("; ".join(shown))


def _anonymous(given: _Anonymous | None) -> AnonymousAccess | None:
    if given is None:
        return None
    if given.conditions and not given.enabled:
        raise ValueError(
            "anonymous.conditions: Invalid value: enabled should be set to true when conditions"
            " are defined"
        )
    if not all(each.path.startswith("/") for each in given.conditions):
        raise ValueError("anonymous.conditions: Invalid value: a path must begin with '/'")
    return AnonymousAccess(
        enabled=given.enabled, paths=frozenset(each.path for each in given.conditions)
    )


def _problems(issuers: tuple[JwtAuthenticator, ...], own_issuers: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for number, each in enumerate(issuers):
        at = f"jwt[{number}]"
        yield from _issuer_problems(each.issuer, f"{at}.issuer", own_issuers)
        for name in ("url", "discovery_url"):
            url = getattr(each.issuer, name)
            if url and f"{name} {url}" in seen:
                yield f"{at}.issuer.{_shown(name)}: Duplicate value"
            seen.add(f"{name} {url}")
        yield from _mapping_problems(each, f"{at}.claimMappings")
        yield from _claim_rule_problems(each, f"{at}.claimValidationRules")
        yield from _user_rule_problems(each, f"{at}.userValidationRules")


def _issuer_problems(
    issuer: IssuerConfiguration, at: str, own_issuers: tuple[str, ...]
) -> Iterator[str]:
    if not issuer.url:
        yield f"{at}.url: Required value"
    else:
        yield from _url_problems(issuer.url, f"{at}.url")
    if issuer.url in own_issuers:
        yield f"{at}.url: Invalid value: URL must not overlap with disallowed issuers"
    if issuer.discovery_url:
        yield from _url_problems(issuer.discovery_url, f"{at}.discoveryURL")
        if issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
            yield f"{at}.discoveryURL: Invalid value: discoveryURL must be different from URL"
    if not issuer.audiences:
        yield f"{at}.audiences: Required value: at least one audiences is required"
    if not all(issuer.audiences):
        yield f"{at}.audiences: Required value"
    if len(set(issuer.audiences)) != len(issuer.audiences):
        yield f"{at}.audiences: Duplicate value"
    allowed = ("MatchAny",) if len(issuer.audiences) > 1 else ("", "MatchAny")
    if issuer.audience_match_policy not in allowed:
        how = "MatchAny for multiple audiences" if len(allowed) == 1 else "empty or MatchAny"
        yield f"{at}.audienceMatchPolicy: Invalid value: audienceMatchPolicy must be {how}"
    if issuer.egress_selector_type:
        yield f"{at}.egressSelectorType: Invalid value: egress selection is not supported"
    if issuer.certificate_authority:
        try:
            read_pem(issuer.certificate_authority.encode())
        except ValueError:
            yield f"{at}.certificateAuthority: Invalid value: it contains no PEM certificate"


def _url_problems(url: str, at: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_whole = urlsplit(""), False
    if not is_whole or not url.isascii() or not url.isprintable() or " " in url:
        yield f"{at}: Invalid value: not a valid URL"
        return
    if parts.scheme != "https":
        yield f"{at}: Invalid value: URL scheme must be https"
    if "@" in parts.netloc:
        yield f"{at}: Invalid value: URL must not contain a username or password"
    if "?" in url:
        yield f"{at}: Invalid value: URL must not contain a query"
    if "#" in url:
        yield f"{at}: Invalid value: URL must not contain a fragment"


def _mapping_problems(each: JwtAuthenticator, at: str) -> Iterator[str]:
    mappings = each.claim_mappings
    for name in ("username", "groups", "uid"):
        mapped: ClaimMapping = getattr(mappings, name)
        if mapped.claim and mapped.expression:
            yield f"{at}.{name}: Invalid value: claim and expression can't both be set"
        elif name == "username" and not mapped.claim and not mapped.expression:
            yield f"{at}.username: Required value: claim or expression is required"
        elif mapped.expression:
            if mapped.prefix is not None:
                yield f"{at}.{name}.prefix: {_NOT_WITH_EXPRESSION}"
            yield from check_claims_rule(mapped.expression, f"{at}.{name}.expression")
        elif mapped.claim and name != "uid" and mapped.prefix is None:
            yield (
                f"{at}.{name}.prefix: Required value: prefix is required when claim is set. It can"
                " be set to an empty string to disable prefixing"
            )
    keys = [extra.key for extra in mappings.extra]
    for number, extra in enumerate(mappings.extra):
        here = f"{at}.extra[{number}]"
        if (problem := _extra_key_problem(extra.key)) is not None:
            yield f"{here}.key: {problem}"
        if extra.key in keys[:number]:
            yield f"{here}.key: Duplicate value"
        if extra.value_expression:
            yield from check_claims_rule(extra.value_expression, f"{here}.valueExpression")
        else:
            yield f"{here}.valueExpression: Required value"
    if _reads(mappings.username.expression, "email") and not any(
        _reads(text, "email_verified") for text in _expressions(each)
    ):
        yield (
            f"{at}.username.expression: Invalid value: claims.email_verified must be used in"
            " claimMappings.username.expression or claimMappings.extra[*].valueExpression or"
            " claimValidationRules[*].expression when claims.email is used in"
            " claimMappings.username.expression"
        )


def _claim_rule_problems(each: JwtAuthenticator, at: str) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for number, rule in enumerate(each.claim_validation_rules):
        here = f"{at}[{number}]"
        if rule.claim and rule.expression:
            yield f"{here}: Invalid value: claim and expression can't both be set"
        elif not rule.claim and not rule.expression:
            yield f"{here}: Required value: claim or expression is required"
        elif rule.claim and rule.message:
            yield f"{here}.message: Invalid value: may not be specified when claim is set"
        elif rule.expression and rule.required_value:
            yield f"{here}.requiredValue: {_NOT_WITH_EXPRESSION}"
        elif rule.expression:
            yield from check_claims_rule(rule.expression, f"{here}.expression", is_bool=True)
        what = (rule.claim, rule.expression)
        if what in seen:
            yield f"{here}.{'claim' if rule.claim else 'expression'}: Duplicate value"
        seen.add(what)


def _user_rule_problems(each: JwtAuthenticator, at: str) -> Iterator[str]:
    seen: set[str] = set()
    for number, rule in enumerate(each.user_validation_rules):
        if not rule.expression:
            yield f"{at}[{number}].expression: Required value"
            continue
        if rule.expression in seen:
            yield f"{at}[{number}].expression: Duplicate value"
        seen.add(rule.expression)
        yield from check_user_rule(rule.expression, f"{at}[{number}].expression")


def _expressions(each: JwtAuthenticator) -> Iterator[str]:
    yield each.claim_mappings.username.expression
    yield from (extra.value_expression for extra in each.claim_mappings.extra)
    yield from (rule.expression for rule in each.claim_validation_rules)


def _reads(expression: str, claim: str) -> bool:
    """Return whether an expression reads a claim, in the usual notations."""
    return re.search(rf"\bclaims\s*\.\s*\??\s*{claim}\b", expression) is not None


def _extra_key_problem(key: str) -> str | None:
    domain, slash, path = key.partition("/")
    if not domain or not slash or not path or _PATH_CHARACTERS.fullmatch(path) is None:
        return 'Invalid value: must be a domain-prefixed path (such as "acme.io/foo")'
    if subdomain_problem(domain) is not None or key != key.lower():
        return 'Invalid value: must be lowercase, with a valid subdomain before the first "/"'
    if f".{domain}".endswith((".k8s.io", ".kubernetes.io")):
        return (
            "Invalid value: k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes"
            " use"
        )
    return None


def _shown(name: str) -> str:
    return "discoveryURL" if name == "discovery_url" else name


def _without_nulls(value: Any) -> Any:
    """Remove fields that are null."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
