"""Audit policies: matching of rules, and invalid files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.audit.policy import (
    LEVEL_NAMES,
    METADATA,
    NONE,
    RULE_SETS_MAX,
    AuditPolicy,
    default_policy,
)
from restow.audit.policy_file import (
    FILE_BYTES_MAX,
    RULES_MAX,
    PolicyError,
    parse_policy,
    read_policy,
)
from restow.audit.records import KINDS_MAX, template_for
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import parse_request

JANE = User("jane", ("devs", "system:authenticated"))
PODS = "/api/v1/namespaces/a/pods"


def policy_of(*rules: dict[str, Any], **fields: Any) -> AuditPolicy:
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **fields}
    return parse_policy(orjson.dumps(document))


def level_of(policy: AuditPolicy, method: str, target: str, user: User | None = JANE) -> str:
    info = parse_request(method, target)
    return LEVEL_NAMES[template_for(policy.rules_for(user), info).level]


# rule (without its level), method, target, whether it matches jane's request
MATCHES: list[tuple[dict[str, Any], str, str, bool]] = [
    ({}, "GET", PODS, True),
    ({}, "GET", "/version", True),
    ({"users": ["jane"]}, "GET", PODS, True),
    ({"users": ["john"]}, "GET", PODS, False),
    ({"userGroups": ["x", "devs"]}, "GET", PODS, True),
    ({"userGroups": ["x"]}, "GET", PODS, False),
    ({"users": ["jane"], "userGroups": ["x"]}, "GET", PODS, False),
    ({"verbs": ["list"]}, "GET", PODS, True),
    ({"verbs": ["get"]}, "GET", PODS, False),
    ({"verbs": ["watch"]}, "GET", f"{PODS}?watch=1", True),
    ({"verbs": ["deletecollection"]}, "DELETE", PODS, True),
    ({"namespaces": ["a"]}, "GET", PODS, True),
    ({"namespaces": ["b"]}, "GET", PODS, False),
    ({"namespaces": [""]}, "GET", "/api/v1/nodes", True),
    ({"namespaces": [""]}, "GET", PODS, False),
    ({"namespaces": ["a"]}, "GET", "/version", False),
    ({"resources": [{}]}, "GET", PODS, True),
    ({"resources": [{"group": ""}]}, "GET", PODS, True),
    ({"resources": [{"group": "apps"}]}, "GET", PODS, False),
    ({"resources": [{"group": "*"}]}, "GET", PODS, True),
    ({"resources": [{"resources": ["pods"]}]}, "GET", PODS, True),
    ({"resources": [{"resources": ["nodes", "pods"]}]}, "GET", PODS, True),
    ({"resources": [{"resources": ["pods"]}]}, "GET", f"{PODS}/x/log", False),
    ({"resources": [{"resources": ["pods/log"]}]}, "GET", f"{PODS}/x/log", True),
    ({"resources": [{"resources": ["pods/*"]}]}, "GET", f"{PODS}/x/log", True),
    ({"resources": [{"resources": ["pods/*"]}]}, "GET", f"{PODS}/x", True),
    ({"resources": [{"resources": ["*/log"]}]}, "GET", f"{PODS}/x/log", True),
    ({"resources": [{"resources": ["*/log"]}]}, "GET", f"{PODS}/x/status", False),
    ({"resources": [{"resources": ["*/log"]}]}, "GET", f"{PODS}/x", False),
    ({"resources": [{"resources": ["*"]}]}, "GET", f"{PODS}/x/log", True),
    ({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}, "GET", f"{PODS}/x", True),
    ({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}, "GET", f"{PODS}/y", False),
    ({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}, "GET", PODS, False),
    ({"resources": [{"group": "apps"}, {"group": ""}]}, "GET", PODS, True),
    ({"resources": [{}]}, "GET", "/version", False),
    ({"nonResourceURLs": ["/version"]}, "GET", "/version", True),
    ({"nonResourceURLs": ["/version"]}, "GET", "/version/x", False),
    ({"nonResourceURLs": ["/healthz*"]}, "GET", "/healthz/ping", True),
    ({"nonResourceURLs": ["/healthz*"]}, "GET", "/livez", False),
    ({"nonResourceURLs": ["*"]}, "GET", "/livez", True),
    ({"nonResourceURLs": ["*"]}, "GET", PODS, False),
    ({"nonResourceURLs": ["/version"], "verbs": ["post"]}, "POST", "/version", True),
]


@pytest.mark.parametrize(("rule", "method", "target", "matches"), MATCHES)
def test_rule(rule: dict[str, Any], method: str, target: str, matches: bool) -> None:
    """A rule matches requests that match all of its fields, as in Kubernetes."""
    policy = policy_of({"level": "Request", **rule})
    wanted = "Request" if matches else "None"
    assert level_of(policy, method, target) == wanted
    assert level_of(policy, method, target) == wanted  # from the cache


def test_the_first_matching_rule_applies() -> None:
    """The first matching rule applies; without one, nothing is recorded."""
    policy = policy_of(
        {"level": "None", "users": ["jane"]},
        {"level": "RequestResponse", "verbs": ["list"]},
        {"level": "Metadata", "verbs": ["get"]},
    )
    john = User("john")
    assert level_of(policy, "GET", PODS) == "None"
    assert level_of(policy, "GET", PODS, john) == "RequestResponse"
    assert level_of(policy, "GET", f"{PODS}/x", john) == "Metadata"
    assert level_of(policy, "DELETE", f"{PODS}/x", john) == "None"


def test_unauthenticated_requests() -> None:
    """Rules for users do not match unauthenticated requests."""
    policy = policy_of(
        {"level": "Request", "users": ["system:anonymous"]},
        {"level": "Request", "userGroups": ["system:unauthenticated"]},
        {"level": "Metadata"},
    )
    assert level_of(policy, "GET", PODS, None) == "Metadata"
    assert level_of(policy, "GET", PODS, ANONYMOUS) == "Request"


def test_stages_and_managed_fields() -> None:
    """Omitted stages of policy and rule are combined; managed fields follow the rule."""
    policy = policy_of(
        {"level": "Metadata", "verbs": ["get"], "omitStages": ["Panic"]},
        {"level": "Metadata", "omitManagedFields": False},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    )
    rules = policy.rules_for(JANE)
    one = rules.decide(parse_request("GET", f"{PODS}/x"))
    other = rules.decide(parse_request("GET", PODS))
    assert (one.omitted, one.omits_managed_fields) == (
        frozenset({"Panic", "RequestReceived"}),
        True,
    )
    assert (other.omitted, other.omits_managed_fields) == (frozenset({"RequestReceived"}), False)


def test_users_share_rules() -> None:
    """Users with the same matching rules share a rule set, and the number of sets is limited."""
    policy = policy_of(
        *({"level": "None", "users": [f"u{n}"]} for n in range(RULE_SETS_MAX + 10)),
        {"level": "Metadata"},
    )
    assert policy.rules_for(JANE) is policy.rules_for(User("john"))
    found = [policy.rules_for(User(f"u{n}")) for n in range(RULE_SETS_MAX + 10)]
    assert len({id(each) for each in found}) == len(found)
    assert policy.rules_for(User("u1")) is found[1]
    assert level_of(policy, "GET", PODS, User(f"u{RULE_SETS_MAX + 5}")) == "None"


def test_kinds_are_bounded() -> None:
    """The number of cached templates is limited, and decisions stay correct."""
    policy = policy_of({"level": "Metadata", "nonResourceURLs": ["/x*"]})
    for number in range(KINDS_MAX + 10):
        assert level_of(policy, "GET", f"/x{number}") == "Metadata"
    assert level_of(policy, "GET", "/y") == "None"


DEFAULTS = [
    ("GET", "/api/v1/namespaces/a/secrets/s", METADATA),
    ("GET", "/api/v1/secrets?watch=1", METADATA),
    ("GET", f"{PODS}/x", NONE),
    ("GET", "/healthz", NONE),
    ("HEAD", "/metrics", NONE),
    ("POST", PODS, METADATA),
    ("DELETE", f"{PODS}/x", METADATA),
    ("POST", "/dashboard/tickets", METADATA),
]


@pytest.mark.parametrize(("method", "target", "level"), DEFAULTS)
def test_default(method: str, target: str, level: int) -> None:
    """The default policy records writes and reads of secrets, once and without bodies."""
    found = default_policy().rules_for(JANE).decide(parse_request(method, target))
    assert found.level == level
    assert level == NONE or "RequestReceived" in found.omitted


RULE = {"level": "Metadata"}
# field of the policy, or a rule; the error
BAD: list[tuple[dict[str, Any], str]] = [
    ({"apiVersion": "audit.k8s.io/v1beta1"}, "apiVersion, kind: "),
    ({"kind": "Event"}, "apiVersion, kind: "),
    ({"rules": []}, "rules: "),
    ({"rules": None}, "rules: "),
    ({"rules": {}}, "rules: "),
    ({"rules": [RULE] * (RULES_MAX + 1)}, "rules: more than"),
    ({"rules": [RULE, "x"]}, "rules[1]: must be an object"),
    ({"rules": [{}]}, "rules[0].level: must be one of None, Metadata"),
    ({"rules": [{"level": "metadata"}]}, "rules[0].level: "),
    ({"rules": [{"level": None}]}, "rules[0].level: "),
    ({"rules": [{"level": ["None"]}]}, "rules[0].level: "),
    ({"rules": [{**RULE, "user": ["x"]}]}, "rules[0].user: unknown field"),
    ({"rules": [{**RULE, "users": "x"}]}, "rules[0].users: must be a list"),
    ({"rules": [{**RULE, "users": ["x", 1]}]}, "rules[0].users[1]: must be a string"),
    ({"rules": [{**RULE, "omitStages": ["Nope"]}]}, "rules[0].omitStages[0]: allowed stages"),
    ({"rules": [RULE], "omitStages": ["Nope"]}, "omitStages[0]: allowed stages"),
    ({"rules": [RULE], "omitStages": "Panic"}, "omitStages: must be a list"),
    ({"rules": [RULE], "omitManagedFields": "yes"}, "omitManagedFields: must be true or false"),
    ({"rules": [{**RULE, "omitManagedFields": 1}]}, "rules[0].omitManagedFields: must be"),
    ({"rules": [RULE], "backends": []}, "backends: unknown field"),
    ({"rules": [{**RULE, "nonResourceURLs": ["x"]}]}, "rules[0].nonResourceURLs[0]: "),
    ({"rules": [{**RULE, "nonResourceURLs": ["/a*/b"]}]}, "rules[0].nonResourceURLs[0]: "),
    (
        {"rules": [{**RULE, "nonResourceURLs": ["/a"], "namespaces": ["x"]}]},
        "rules[0].nonResourceURLs: rules cannot apply to both",
    ),
    ({"rules": [{**RULE, "resources": ["pods"]}]}, "rules[0].resources[0]: must be an object"),
    (
        {"rules": [{**RULE, "resources": [{"group": "apps/v1"}]}]},
        "rules[0].resources[0].group: ",
    ),
    (
        {"rules": [{**RULE, "resources": [{"resourceNames": ["x"]}]}]},
        "rules[0].resources[0].resourceNames: using resourceNames requires",
    ),
    (
        {"rules": [{**RULE, "resources": [{"kinds": ["x"]}]}]},
        "rules[0].resources[0].kinds: unknown field",
    ),
]


@pytest.mark.parametrize(("fields", "said"), BAD)
def test_refused(fields: dict[str, Any], said: str) -> None:
    """An invalid policy is refused with the path of the field."""
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **fields}
    with pytest.raises(PolicyError) as caught:
        parse_policy(orjson.dumps(document))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"\xff", b"a: &x [*x]", b"a: b: c", b"{" * 1000],
)
def test_not_a_policy(text: bytes) -> None:
    """A file that is not an object is refused."""
    with pytest.raises(PolicyError):
        parse_policy(text)


def test_file(tmp_path: Path) -> None:
    """An error names the file; YAML and its bare None are supported."""
    file = tmp_path / "policy.yaml"
    with pytest.raises(PolicyError, match=r"policy.yaml: No such file"):
        read_policy(file)
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(PolicyError, match=r"--audit-policy-file .*policy.yaml: it has more than"):
        read_policy(file)
    file.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: none}]\n")
    with pytest.raises(PolicyError, match=r"policy.yaml: rules\[0\].level"):
        read_policy(file)
    text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  users: [jane]\n"
    file.write_text(text + "- level: Request\n")
    assert level_of(read_policy(file), "GET", PODS) == "None"
    file.write_text(text + "- level: Request\n  level: None\n")
    with pytest.raises(PolicyError, match="duplicate field"):
        read_policy(file)
