"""Evaluation of policies and the effect of their results, without a server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.admission.policies_compiled import (
    CompiledPolicy,
    PolicyBinding,
    read_binding,
    read_policy,
)
from restow.admission.policies_evaluation import Denial, NeedsOffload, PolicyVerdict, evaluate
from restow.admission.policies_result import PolicyResult
from restow.admission.review import Attributes
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.library_authorizer import AuthorizerValue
from restow.apimachinery.structural.cel.program import EvaluationOutcome
from restow.httpserver import Headers, HttpRequest
from restow.httpserver.request import Peer
from restow.registry.catalog import builtin_catalog
from restow.request.context import ANONYMOUS, Context
from restow.request.request_info import RequestInfo

# Authorization checks have a high nominal cost, and take no time.
EXPENSIVE = "[1, 2, 3].all(x, authorizer.path('/x').check('get').allowed())"
VALUES: dict[str, Any] = {
    "object": {"data": {"x": "1"}},
    "oldObject": None,
    "params": None,
    "authorizer": AuthorizerValue(lambda _question: True),
}


def made(**spec: Any) -> CompiledPolicy:
    return read_policy({"metadata": {"name": "p"}, "spec": spec})


def must(expression: str, **more: Any) -> dict[str, Any]:
    return {"expression": expression, **more}


def verdict_of(policy: CompiledPolicy, **values: Any) -> PolicyVerdict:
    """Evaluate a policy and return the verdict."""
    steps = evaluate(policy, {**VALUES, **values})
    outcome: EvaluationOutcome | None = None
    while True:
        try:
            step = steps.send(outcome)
            outcome = step.run() if isinstance(step, NeedsOffload) else None
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def test_true_validations_deny_nothing() -> None:
    """A policy whose validations are true denies nothing and returns its audit annotations."""
    note = {"key": "k", "valueExpression": "' x is ' + object.data.x"}
    empty = {"key": "e", "valueExpression": "''"}
    policy = made(validations=[must("object.data.x == '1'")], auditAnnotations=[note, empty])
    assert verdict_of(policy) == ([], [("k", "x is 1")], [])


def test_denials_keep_the_order_of_validations() -> None:
    """Denials and evaluation errors are in the order of the validations."""
    policy = made(
        validations=[
            must("object.data.x == '2'", message="a", reason="Forbidden"),
            must("object.nope == 1"),
            must("true"),
            must("object.data.x == '3'", messageExpression="'is ' + object.data.x"),
        ]
    )
    assert verdict_of(policy).denials == [
        Denial(0, "a", "Forbidden"),
        Denial(1, "expression 'object.nope == 1' resulted in error: no such key: nope"),
        Denial(3, "is 1", "Invalid"),
    ]


def test_failure_policy_ignore_applies_to_errors_only() -> None:
    """With failurePolicy Ignore a false validation is a denial; an error or an exceeded budget is
    not."""
    policy = made(
        failurePolicy="Ignore",
        validations=[must("object.nope == 1"), must("false", message="no"), must(EXPENSIVE)],
        auditAnnotations=[{"key": "k", "valueExpression": "object.nope + ''"}],
    )
    assert verdict_of(policy) == ([Denial(1, "no", "Invalid")], [], [])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'a' + object.nope", "fallback"),
        ("'  '", "fallback"),
        ("'a\\nb'", "fallback"),
        ("lists.range(3000).map(a, 'abc').join('')", "fallback"),
        ("' said '", "said"),
        ("variables.asked ? 'yes' : 'no'", "fallback"),
    ],
)
def test_messages(expression: str, message: str) -> None:
    """An invalid messageExpression falls back to `message`; it cannot use the authorizer."""
    asked = {"name": "asked", "expression": "authorizer.path('/x').check('get').allowed()"}
    policy = made(
        variables=[asked],
        validations=[must("!variables.asked", message="fallback", messageExpression=expression)],
    )
    assert verdict_of(policy).denials == [Denial(0, message, "Invalid")]


def test_the_budget_of_a_policy() -> None:
    """When the budget is used up no further expression is evaluated, and the write is denied."""
    policy = made(validations=[must(EXPENSIVE) for _ in range(12)])
    [denial] = verdict_of(policy).denials
    assert "running out of cost budget" in denial.message
    conditions = [{"name": f"c{n}", "expression": EXPENSIVE} for n in range(4)]
    [denial] = verdict_of(made(matchConditions=conditions, validations=[must("false")])).denials
    assert "running out of cost budget" in denial.message


def test_steps_are_yielded_after_each_expression() -> None:
    """The generator yields after each expensive expression."""
    policy = made(validations=[must(EXPENSIVE), must("true"), must(EXPENSIVE)])
    costs = list(evaluate(policy, VALUES))
    assert [not isinstance(cost, NeedsOffload) and cost >= CALL_COST_MAX for cost in costs] == [
        True,
        False,
        True,
    ]


def test_variables_are_evaluated_once() -> None:
    """The cost of a variable counts once; one that refers to itself is an error."""
    policy = made(
        variables=[
            {"name": "a", "expression": "object.data.x"},
            {"name": "a", "expression": "variables.a + '2'"},
        ],
        validations=[must("variables.a == '12'")],
    )
    [denial] = verdict_of(policy).denials
    assert "refers to itself" in denial.message


class _Bug:
    """A value that is not JSON."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_internal_error_follows_the_failure_policy() -> None:
    """An internal error during evaluation follows the failure policy and is not a 500."""
    [denial] = verdict_of(made(validations=[must("object.x == 1")]), object=_Bug()).denials
    assert denial.message.endswith("resulted in error: internal error: RuntimeError")
    ignoring = made(validations=[must("object.x == 1")], failurePolicy="Ignore")
    assert verdict_of(ignoring, object=_Bug()).denials == []


def test_an_invalid_policy_or_binding_is_an_error() -> None:
    """An invalid selector or paramRef makes a policy or binding unusable instead of ignored."""
    bad = {"matchLabels": {"a": 1}}
    policy = made(matchConstraints={"objectSelector": bad}, paramKind={"apiVersion": "a/b/c"})
    assert policy.error
    for spec in (
        {"matchResources": {"namespaceSelector": bad}},
        {"paramRef": {"name": "a", "selector": {}}},
        {"paramRef": {"namespace": "a"}},
    ):
        assert read_binding({"metadata": {"name": "b"}, "spec": spec}).error


def _context() -> Context:
    request = HttpRequest("POST", "/", "", Headers([]), b"", Peer(1), 0.0)
    return Context(request, RequestInfo("POST", "/", "create"))


def _attributes(context: Context) -> Attributes:
    resource = builtin_catalog().of_kind("", "ConfigMap")
    assert resource is not None
    return Attributes(
        operation="CREATE",
        resource=resource,
        version="v1",
        subresource="",
        namespace="default",
        name="a",
        obj={"metadata": {"name": "a"}},
        old=None,
        user=ANONYMOUS,
        dry_run=False,
        context=context,
    )


def _binding(name: str, *actions: str) -> PolicyBinding:
    spec = {"policyName": "p", "validationActions": list(actions)}
    return read_binding({"metadata": {"name": name}, "spec": spec})


def test_audit_annotations() -> None:
    """Audit failures are annotated as JSON, and annotations of all bindings are joined by key."""
    context = _context()
    result, policy = PolicyResult(_attributes(context)), made()
    result.add(
        policy, _binding("b", "Audit"), PolicyVerdict([Denial(2, "no", "x")], [("k", "1")], [])
    )
    result.add(policy, _binding("c", "Audit"), PolicyVerdict([], [("k", "1"), ("k", "2")], []))
    result.complete_annotations(policy)
    result.finish()
    notes = context.annotations
    assert notes is not None
    assert notes["p/k"] == "1, 2"
    [failure] = orjson.loads(notes["validation.policy.admission.k8s.io/validation_failure"])
    assert failure == {
        "message": "no",
        "policy": "p",
        "binding": "b",
        "expressionIndex": 2,
        "validationActions": ["Audit"],
    }


def test_many_failures_are_still_json() -> None:
    """Failures that exceed the limit of an annotation are omitted as a whole."""
    context = _context()
    result, policy = PolicyResult(_attributes(context)), made()
    for number in range(100):
        denial = Denial(number, "m" * 200, "Invalid")
        result.add(policy, _binding("b", "Audit"), PolicyVerdict([denial], [], []))
    result.finish()
    assert context.annotations is not None
    [text] = context.annotations.values()
    assert 0 < len(orjson.loads(text)) < 100


def test_a_failed_audit_annotation_denies_the_write() -> None:
    """A failed audit annotation denies the write, even if the bindings only warn."""
    result = PolicyResult(_attributes(_context()))
    result.add(made(), _binding("b", "Warn"), PolicyVerdict([], [], ["broken"]))
    with pytest.raises(StatusError) as caught:
        result.finish()
    assert caught.value.code == 422
    assert caught.value.message == (
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied"
        " request: broken"
    )
