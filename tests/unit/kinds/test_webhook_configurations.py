"""Validation of webhook configurations, with the messages of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from restow.kinds.defaults import apply_defaults
from restow.kinds.validation import validate
from restow.kinds.validation.webhook_configurations import WEBHOOKS_MAX

Object = dict[str, Any]
GROUP, KIND = "admissionregistration.k8s.io", "MutatingWebhookConfiguration"
RULE: Object = {
    "operations": ["CREATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}
HOOK: Object = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [RULE],
}


def problems(*hooks: Object, old: list[Object] | None = None) -> list[str]:
    before = None if old is None else {"webhooks": old}
    return [str(each) for each in validate(GROUP, KIND, {"webhooks": list(hooks)}, before)]


def test_valid_configurations() -> None:
    """Common configurations and an empty one pass."""
    service = {"service": {"namespace": "n", "name": "s", "path": "/a/b", "port": 8443}}
    condition = {"name": "a", "expression": "request.operation == 'CREATE'"}
    full = {
        **HOOK,
        "name": "b.example.com",
        "clientConfig": service,
        "failurePolicy": "Ignore",
        "matchPolicy": "Exact",
        "reinvocationPolicy": "IfNeeded",
        "timeoutSeconds": 30,
        "namespaceSelector": {"matchLabels": {"a": "b"}},
        "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "matchConditions": [condition],
        "rules": [{**RULE, "operations": ["*"], "resources": ["*/*"], "scope": "Cluster"}],
    }
    assert problems(HOOK, full) == []
    assert problems() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": ""}, "name: Required value"),
        ({"name": "short"}, "should be a domain with at least three segments separated by dots"),
        ({"name": "A.b.c"}, "a lowercase RFC 1123 subdomain"),
        ({"clientConfig": {}}, "exactly one of url or service is required"),
        ({"clientConfig": {"url": "http://a"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https://u:p@a"}}, "user information is not permitted"),
        ({"clientConfig": {"url": "https://a/?b=c"}}, "query parameters are not permitted"),
        (
            {"clientConfig": {"service": {"namespace": "n"}}},
            "clientConfig.service.name: Required value",
        ),
        ({"sideEffects": None}, "sideEffects: Required value: must specify one of None, NoneOnDry"),
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some"'),
        ({"admissionReviewVersions": []}, "must specify one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v9"]}, "must include at least one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v1", "v1"]}, "duplicate version"),
        ({"admissionReviewVersions": ["v1", "!"]}, "admissionReviewVersions[1]: Invalid value"),
        ({"timeoutSeconds": 0}, "the timeout value must be between 1 and 30 seconds"),
        ({"timeoutSeconds": 31}, "the timeout value must be between 1 and 30 seconds"),
        ({"failurePolicy": "Maybe"}, "failurePolicy: Unsupported value"),
        ({"matchPolicy": "Maybe"}, "matchPolicy: Unsupported value"),
        ({"reinvocationPolicy": "Maybe"}, "reinvocationPolicy: Unsupported value"),
        ({"objectSelector": {"matchLabels": {"a": "!"}}}, "objectSelector.matchLabels"),
        ({"rules": [{**RULE, "operations": []}]}, "rules[0].operations: Required value"),
        ({"rules": [{**RULE, "operations": ["GET"]}]}, "rules[0].operations[0]: Unsupported"),
        ({"rules": [{**RULE, "apiGroups": ["*", "a"]}]}, "must not specify other API groups"),
        ({"rules": [{**RULE, "resources": ["*/*", "a"]}]}, "must not specify other resources"),
        ({"rules": [{**RULE, "scope": "Galaxy"}]}, "rules[0].scope: Unsupported value"),
        ({"matchConditions": [{"name": "a", "expression": "1"}]}, "must evaluate to bool"),
        ({"matchConditions": [{"name": "a", "expression": "x y"}]}, "compilation failed"),
        ({"matchConditions": [{"expression": "true"}]}, "matchConditions[0].name: Required"),
    ],
)
def test_invalid_configurations(change: Object, told: str) -> None:
    """Each rule is violated once, and reported with its field."""
    [found] = problems({**HOOK, **change})
    assert found.startswith("webhooks[0].")
    assert told in found


def test_names_and_numbers() -> None:
    """Duplicate names, and more webhooks than allowed."""
    assert problems(HOOK, HOOK) == ['webhooks[1].name: Duplicate value: "a.example.com"']
    [found] = problems(*([HOOK] * (WEBHOOKS_MAX + 1)))
    assert found.startswith("webhooks: Too many: 1001")


def test_existing_errors_are_tolerated() -> None:
    """An update of other fields does not report rules that are newer than the object."""
    old = {
        **HOOK,
        "sideEffects": "Some",
        "admissionReviewVersions": ["v0"],
        "matchConditions": [{"name": "a", "expression": "x y"}],
    }
    assert problems({**old, "timeoutSeconds": 5}, old=[old]) == []
    assert len(problems({**old, "timeoutSeconds": 5}, old=[HOOK])) == 3


def test_defaults() -> None:
    """As in Kubernetes: it fails closed, matches equivalent versions, and has a timeout of ten
    seconds."""
    service = {"namespace": "n", "name": "s"}
    obj: Object = {"webhooks": [{"clientConfig": {"service": service}, "rules": [dict(RULE)]}]}
    apply_defaults(GROUP, "v1", KIND, obj)
    [found] = obj["webhooks"]
    assert found == {
        "clientConfig": {"service": {**service, "port": 443}},
        "rules": [{**RULE, "scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 10,
        "namespaceSelector": {},
        "objectSelector": {},
        "reinvocationPolicy": "Never",
    }
