"""The AuthenticationConfiguration file: parsing, and errors with their field path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.authentication import AnonymousAccess
from restow.authentication.oidc_config import FILE_BYTES_MAX, ISSUERS_MAX, read_config
from tests.support.certificates import make_certificate

URL = "https://issuer.example.com"


def issuer(**more: Any) -> dict[str, Any]:
    return {"url": URL, "audiences": ["restow"], **more}


def jwt(**more: Any) -> dict[str, Any]:
    names = {"username": {"claim": "sub", "prefix": ""}}
    return {"issuer": issuer(), "claimMappings": names, **more}


def mapped(**more: Any) -> dict[str, Any]:
    return jwt(claimMappings={"username": {"claim": "sub", "prefix": ""}, **more})


def config(*issuers: Any, **more: Any) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return orjson.dumps({**head, "jwt": list(issuers), **more})


def test_a_file_in_yaml_is_read(tmp_path: Path) -> None:
    """All fields are parsed, and a null field counts as missing."""
    ca_pem = make_certificate(tmp_path, name="issuer").ca_file.read_text()
    indented = ca_pem.replace("\n", "\n        ")
    found = read_config(
        f"""
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {URL}/realm
    discoveryURL: https://inside.example/.well-known/openid-configuration
    certificateAuthority: |
        {indented}
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
  claimMappings:
    username: {{claim: sub, prefix: "x:"}}
    groups: null
    uid: {{claim: sub}}
    extra: [{{key: acme.io/team, valueExpression: claims.team}}]
  claimValidationRules: [{{claim: hd, requiredValue: acme}}, {{expression: "claims.n == 1"}}]
  userValidationRules: [{{expression: "!user.username.startsWith('system:')", message: no}}]
anonymous:
  enabled: true
  conditions: [{{path: /livez}}, {{path: /readyz}}]
""".encode()
    )
    (only,) = found.issuers
    assert only.issuer.document_url.startswith("https://inside.example/")
    assert only.issuer.audiences == ("a", "b")
    assert only.claim_mappings.extra[0].key == "acme.io/team"
    assert found.anonymous == AnonymousAccess(paths=frozenset({"/livez", "/readyz"}))
    (plain,) = read_config(config(jwt(issuer=issuer(url=f"{URL}/")))).issuers
    assert plain.issuer.document_url == f"{URL}/.well-known/openid-configuration"


def test_all_fields_are_optional() -> None:
    """Issuers and anonymous access are optional."""
    found = read_config(config())
    assert found.issuers == ()
    assert found.anonymous is None


BAD: dict[str, tuple[bytes, str]] = {
    "no YAML": (b"a: [", "."),
    "another kind": (b"{}", "not an AuthenticationConfiguration"),
    "a key twice": (
        config()[:-1] + b',"jwt":[]}', "duplicate fields"),
    "an unknown field": (config(jwt(foo=1)), r"unknown field `foo` - at `jwt\[0\]`"),
    "another type": (config(jwt(issuer=issuer(url=1))), r"at `jwt\[0\].issuer.url`"),
    "no issuer": (config({}), r"jwt\[0\].issuer.url: Required value"),
    "no URL": (config(jwt(issuer=issuer(url="https://[x"))), "not a valid URL"),
    "a URL without TLS": (config(jwt(issuer=issuer(url="http://a"))), "scheme must be https"),
    "a URL with a password": (
        config(jwt(issuer=issuer(url="https://u:p@a"))), "must not contain a username"),
    "a URL with a query": (config(jwt(issuer=issuer(url="https://a?b"))), "contain a query"),
    "a URL with a fragment": (config(jwt(issuer=issuer(url="https://a#b"))), "contain a fragment"),
    "an issuer twice": (config(jwt(), jwt()), r"jwt\[1\].issuer.url: Duplicate value"),
    "the cluster's own": (config(jwt(issuer=issuer(url="https://own"))), "disallowed issuers"),
    "a discovery URL that is the issuer's": (
        config(jwt(issuer=issuer(discoveryURL=f"{URL}/"))), "must be different from URL"),
    "no audiences": (config(jwt(issuer=issuer(audiences=[]))), "audiences: Required value"),
    "an empty audience": (config(jwt(issuer=issuer(audiences=[""]))), "audiences: Required value"),
    "an audience twice": (
        config(jwt(issuer=issuer(audiences=["a", "a"], audienceMatchPolicy="MatchAny"))),
        "audiences: Duplicate value"),
    "two audiences without a policy": (
        config(jwt(issuer=issuer(audiences=["a", "b"]))), "must be MatchAny for multiple"),
    "another policy": (
        config(jwt(issuer=issuer(audienceMatchPolicy="All"))), "must be empty or MatchAny"),
    "no certificate": (
        config(jwt(issuer=issuer(certificateAuthority="x"))), "contains no PEM certificate"),
    "an egress selector": (
        config(jwt(issuer=issuer(egressSelectorType="cluster"))), "egress selection"),
    "no name": (config(jwt(claimMappings={})), "username: Required value"),
    "a claim without a prefix": (
        config(mapped(groups={"claim": "g"})), "groups.prefix: Required value"),
    "a claim and an expression": (
        config(mapped(uid={"claim": "a", "expression": "claims.a"})), "can't both be set"),
    "an expression with a prefix": (
        config(mapped(groups={"expression": "claims.a", "prefix": "x"})), "when expression is set"),
    "an expression that is none": (
        config(mapped(groups={"expression": "claims."})), "groups.expression: .*compilation"),
    "an expression of another variable": (
        config(mapped(groups={"expression": "self.a"})), "groups.expression: .*compilation"),
    "an expression of another type": (
        config(mapped(groups={"expression": "1"})), "must evaluate to string"),
    "an address that nobody has verified": (
        config(jwt(claimMappings={"username": {"expression": "claims.email"}})), "email_verified"),
    "an extra without a domain": (
        config(mapped(extra=[{"key": "a", "valueExpression": "'a'"}])), "domain-prefixed"),
    "an extra in capitals": (
        config(mapped(extra=[{"key": "acme.io/A", "valueExpression": "'a'"}])), "lowercase"),
    "an extra of Kubernetes": (
        config(mapped(extra=[{"key": "x.k8s.io/a", "valueExpression": "'a'"}])), "reserved"),
    "an extra twice": (
        config(mapped(extra=[{"key": "a.io/a", "valueExpression": "'a'"}] * 2)), "Duplicate value"),
    "an extra without a value": (config(mapped(extra=[{"key": "a.io/a"}])), "Required value"),
    "an empty rule": (config(jwt(claimValidationRules=[{}])), "claim or expression is required"),
    "a rule with both": (
        config(jwt(claimValidationRules=[{"claim": "a", "expression": "true"}])), "both be set"),
    "a rule that is no bool": (
        config(jwt(claimValidationRules=[{"expression": "'a'"}])), "must evaluate to bool"),
    "a rule twice": (config(jwt(claimValidationRules=[{"claim": "a"}] * 2)), "Duplicate value"),
    "a message of a claim": (
        config(jwt(claimValidationRules=[{"claim": "a", "message": "b"}])), "when claim is set"),
    "a value of an expression": (
        config(jwt(claimValidationRules=[{"expression": "true", "requiredValue": "b"}])),
        "when expression is set"),
    "an empty rule of users": (config(jwt(userValidationRules=[{}])), "Required value"),
    "a rule of users twice": (
        config(jwt(userValidationRules=[{"expression": "true"}] * 2)), "Duplicate value"),
    "a rule of a field that users lack": (
        config(jwt(userValidationRules=[{"expression": "user.foo == ''"}])), "undefined field"),
    "conditions without access": (
        config(anonymous={"enabled": False, "conditions": [{"path": "/a"}]}), "should be set to"),
    "a condition that is no path": (
        config(anonymous={"enabled": True, "conditions": [{"path": "a"}]}), "begin with"),
    "too many issuers": (config(*[jwt()] * (ISSUERS_MAX + 1)), "Too many"),
    "too large": (b" " * (FILE_BYTES_MAX + 1), "more than"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_file_is_refused_with_the_field_path(case: str) -> None:
    """The message has the field path and the reason."""
    data, why = BAD[case]
    with pytest.raises(ValueError, match=why):
        read_config(data, own_issuers=("https://own",))
