"""What is wrong with policies and bindings is told with the field, and in the reference's words."""

from __future__ import annotations

from typing import Any

import pytest

from restow.kinds.validation import validate

GROUP = "admissionregistration.k8s.io"
RULE: dict[str, Any] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
MATCH: dict[str, Any] = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "resourceRules": [RULE],
}


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    full = {"failurePolicy": "Fail", "matchConstraints": MATCH, "validations": list(validations)}
    return {"metadata": {"name": "p"}, "spec": {**full, **spec}}


def must(expression: str, **more: Any) -> dict[str, Any]:
    return {"expression": expression, **more}


def told(obj: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, str]:
    found = validate(GROUP, "ValidatingAdmissionPolicy", obj, old)
    return {cause.field: cause.message for cause in found}


def told_of_binding(**spec: Any) -> dict[str, str]:
    obj = {"metadata": {"name": "b"}, "spec": spec}
    found = validate(GROUP, "ValidatingAdmissionPolicyBinding", obj)
    return {cause.field: cause.message for cause in found}


@pytest.mark.parametrize(
    "validation",
    [
        must("object.x == 1 && oldObject == null && request.operation == 'CREATE'"),
        must("namespaceObject.metadata.labels['a'] == 'b'"),
        must("authorizer.requestResource.check('x').allowed()"),
        must("type(object) == map", message="m", reason="Forbidden"),
        must("true", messageExpression="'a' + object.x"),
    ],
)
def test_good_policies(validation: dict[str, Any]) -> None:
    """Objects have no types; all that is declared may be used."""
    assert told(policy(validation)) == {}


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (" ", "Required value: expression is not specified"),
        ("foo == 1", "undeclared reference to 'foo' (in container '')"),
        ("object.x +", "Syntax error: mismatched input '<EOF>'"),
        ("object.x", '"object.x": must evaluate to bool but got dyn'),
        ("'a'", "must evaluate to bool but got string"),
        ("request.nope == 1", "undefined field 'nope'"),
        ("params.x == 1", "undeclared reference to 'params'"),
        ("variables.x == 1", "undeclared reference to 'variables'"),
        ("object.a.matches('[')", "invalid matches argument"),
        (
            "authorizer.group('a').check('b').allowed()",
            "applied to 'kubernetes.authorization.GroupCheck.(string)'",
        ),
        ("1 == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ],
)
def test_expressions_that_cannot_run(expression: str, why: str) -> None:
    """They are refused, with the place of what is wrong."""
    assert why in told(policy(must(expression)))["spec.validations[0].expression"]


def test_messages_and_reasons() -> None:
    """Each part of a validation has rules of its own."""
    found = told(
        policy(
            must("true", messageExpression="1", message="a\nb", reason="NotFound"),
            must("true", messageExpression=" ", message=" "),
            must("true", messageExpression="authorizer.path('/').check('get').reason()"),
        )
    )
    at = "spec.validations"
    assert found[f"{at}[0].messageExpression"].endswith("must evaluate to string but got int")
    assert found[f"{at}[0].message"].endswith("must not contain line breaks")
    assert found[f"{at}[0].reason"].startswith('Unsupported value: "NotFound": supported values:')
    assert found[f"{at}[1].messageExpression"].endswith("must be non-empty if specified")
    assert found[f"{at}[1].message"].endswith("must be non-empty if specified")
    assert "undeclared reference to 'authorizer'" in found[f"{at}[2].messageExpression"]


def test_variables() -> None:
    """They may use those before them, and have the types of what they are made of."""
    variables = [
        {"name": "n", "expression": "1"},
        {"name": "if", "expression": "1"},
        {"name": "", "expression": ""},
        {"name": "early", "expression": "variables.late"},
        {"name": "late", "expression": "[variables.n]"},
    ]
    found = told(
        policy(must("variables.n == 'a'"), must("variables.late[0] == 1"), variables=variables)
    )
    assert found["spec.variables[1].name"].endswith("must be a valid CEL identifier")
    assert found["spec.variables[2].name"] == "Required value: name is not specified"
    assert found["spec.variables[2].expression"] == "Required value: expression is not specified"
    assert "undefined field 'late'" in found["spec.variables[3].expression"]
    assert "applied to '(int, string)'" in found["spec.validations[0].expression"]
    assert "spec.validations[1].expression" not in found


def test_conditions_and_notes() -> None:
    """Conditions do not see variables; notes are texts or nothing, each key once."""
    found = told(
        policy(
            must("true"),
            variables=[{"name": "v", "expression": "true"}],
            matchConditions=[
                {"name": "a", "expression": "variables.v"},
                {"name": "a", "expression": "1"},
                {"name": "", "expression": ""},
            ],
            auditAnnotations=[
                {"key": "a b", "valueExpression": "1"},
                {"key": "k", "valueExpression": "'a'"},
                {"key": "k", "valueExpression": " "},
            ],
        )
    )
    assert "undeclared reference to 'variables'" in found["spec.matchConditions[0].expression"]
    assert found["spec.matchConditions[1].name"] == 'Duplicate value: "a"'
    assert found["spec.matchConditions[2].expression"] == "Required value"
    assert "one of [string null_type]" in found["spec.auditAnnotations[0].valueExpression"]
    assert found["spec.auditAnnotations[0].key"].startswith('Invalid value: "p/a b"')
    assert found["spec.auditAnnotations[2].key"] == 'Duplicate value: "k"'


def test_what_a_policy_needs() -> None:
    """Rules, and something to say."""
    found = told({"metadata": {"name": "p"}, "spec": {"failurePolicy": "Maybe"}})
    assert set(found) == {
        "spec.failurePolicy",
        "spec.matchConstraints",
        "spec.validations",
        "spec.auditAnnotations",
    }
    bad = {**RULE, "operations": ["*", "FOO"], "apiGroups": [], "resources": ["*/*", "a"]}
    found = told(policy(must("true"), matchConstraints={**MATCH, "resourceRules": [bad]}))
    at = "spec.matchConstraints.resourceRules[0]"
    assert set(found) == {
        f"{at}.operations",
        f"{at}.operations[1]",
        f"{at}.apiGroups",
        f"{at}.resources",
    }
    found = told(policy(must("true"), paramKind={"apiVersion": "a/b/c", "kind": "x y"}))
    assert set(found) == {"spec.paramKind.apiVersion", "spec.paramKind.kind"}


def test_what_is_stored_is_not_looked_at_again() -> None:
    """A change of metadata or status alone never fails because of an expression."""
    stored = policy(must("object.x +"))
    assert told(stored, stored) == {}
    assert told(policy(must("object.x -")), stored)


def test_bindings() -> None:
    """A binding names a policy and what is to be done, and parameters in one way."""
    assert told_of_binding(policyName="a", validationActions=["Deny", "Audit"]) == {}
    assert set(told_of_binding()) == {"spec.policyName", "spec.validationActions"}
    found = told_of_binding(policyName="A B", validationActions=["Deny", "Warn", "Deny", "Foo"])
    assert set(found) == {
        "spec.policyName",
        "spec.validationActions",
        "spec.validationActions[2]",
        "spec.validationActions[3]",
    }
    both = {"name": "a/b", "selector": {}, "parameterNotFoundAction": "x"}
    found = told_of_binding(policyName="a", validationActions=["Deny"], paramRef=both)
    assert set(found) == {
        "spec.paramRef.name",
        "spec.paramRef.selector",
        "spec.paramRef.parameterNotFoundAction",
    }
    found = told_of_binding(policyName="a", validationActions=["Deny"], paramRef={})
    assert set(found) == {"spec.paramRef", "spec.paramRef.parameterNotFoundAction"}
    selector = {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b b"}]}
    match = {**MATCH, "objectSelector": selector}
    found = told_of_binding(policyName="a", validationActions=["Deny"], matchResources=match)
    at = "spec.matchResources.objectSelector.matchExpressions"
    assert set(found) == {f"{at}[0].values", f"{at}[1].operator", f"{at}[1].key"}
