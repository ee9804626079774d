"""Errors of policies and bindings have the field, and the message of the reference."""

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


def errors(obj: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, str]:
    found = validate(GROUP, "ValidatingAdmissionPolicy", obj, old)
    return {cause.field: cause.message for cause in found}


def binding_errors(**spec: Any) -> dict[str, str]:
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
    """Objects are untyped; all declared variables may be used."""
    assert errors(policy(validation)) == {}


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
    """They are rejected, with the field of the error."""
    assert why in errors(policy(must(expression)))["spec.validations[0].expression"]


def test_messages_and_reasons() -> None:
    """Each part of a validation has rules of its own."""
    found = errors(
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
    """They may use earlier ones, and have the types of their expressions."""
    variables = [
        {"name": "n", "expression": "1"},
        {"name": "if", "expression": "1"},
        {"name": "", "expression": ""},
        {"name": "early", "expression": "variables.late"},
        {"name": "late", "expression": "[variables.n]"},
    ]
    found = errors(
        policy(must("variables.n == 'a'"), must("variables.late[0] == 1"), variables=variables)
    )
    assert found["spec.variables[1].name"].endswith("must be a valid CEL identifier")
    assert found["spec.variables[2].name"] == "Required value: name is not specified"
    assert found["spec.variables[2].expression"] == "Required value: expression is not specified"
    assert "undefined field 'late'" in found["spec.variables[3].expression"]
    assert "applied to '(int, string)'" in found["spec.validations[0].expression"]
    assert "spec.validations[1].expression" not in found


def test_conditions_and_notes() -> None:
    """Conditions cannot use variables; annotations are text or null, with unique keys."""
    found = errors(
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


def test_policies_require_rules_and_validations() -> None:
    """Rules, and at least one validation or audit annotation."""
    found = errors({"metadata": {"name": "p"}, "spec": {"failurePolicy": "Maybe"}})
    assert set(found) == {
        "spec.failurePolicy",
        "spec.matchConstraints",
        "spec.validations",
        "spec.auditAnnotations",
    }
    bad = {**RULE, "operations": ["*", "FOO"], "apiGroups": [], "resources": ["*/*", "a"]}
    found = errors(policy(must("true"), matchConstraints={**MATCH, "resourceRules": [bad]}))
    at = "spec.matchConstraints.resourceRules[0]"
    assert set(found) == {
        f"{at}.operations",
        f"{at}.operations[1]",
        f"{at}.apiGroups",
        f"{at}.resources",
    }
    found = errors(policy(must("true"), paramKind={"apiVersion": "a/b/c", "kind": "x y"}))
    assert set(found) == {"spec.paramKind.apiVersion", "spec.paramKind.kind"}


def test_unchanged_expressions_are_not_validated_again() -> None:
    """A change of metadata or status alone never fails because of an expression."""
    stored = policy(must("object.x +"))
    assert errors(stored, stored) == {}
    assert errors(policy(must("object.x -")), stored)


def test_bindings() -> None:
    """A binding names a policy, its actions, and parameters in one way."""
    assert binding_errors(policyName="a", validationActions=["Deny", "Audit"]) == {}
    assert set(binding_errors()) == {"spec.policyName", "spec.validationActions"}
    found = binding_errors(policyName="A B", validationActions=["Deny", "Warn", "Deny", "Foo"])
    assert set(found) == {
        "spec.policyName",
        "spec.validationActions",
        "spec.validationActions[2]",
        "spec.validationActions[3]",
    }
    both = {"name": "a/b", "selector": {}, "parameterNotFoundAction": "x"}
    found = binding_errors(policyName="a", validationActions=["Deny"], paramRef=both)
    assert set(found) == {
        "spec.paramRef.name",
        "spec.paramRef.selector",
        "spec.paramRef.parameterNotFoundAction",
    }
    found = binding_errors(policyName="a", validationActions=["Deny"], paramRef={})
    assert set(found) == {"spec.paramRef", "spec.paramRef.parameterNotFoundAction"}
    selector = {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b b"}]}
    match = {**MATCH, "objectSelector": selector}
    found = binding_errors(policyName="a", validationActions=["Deny"], matchResources=match)
    at = "spec.matchResources.objectSelector.matchExpressions"
    assert set(found) == {f"{at}[0].values", f"{at}[1].operator", f"{at}[1].key"}
