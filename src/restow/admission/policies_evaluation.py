"""Evaluation of one policy for one write with one set of parameters. It has no side effects.

Match conditions come first: unless all are true, the policy does not apply. Then each validation is
evaluated; one that is not true is a denial. An evaluation error is a denial as well, unless the
failure policy is `Ignore`. All expressions of a kind share a cost budget, and each has its own
limit. The generator yields the cost of each expression, so that the caller can yield to the event
loop; it yields an expression that is too expensive for the loop as `NeedsOffload` and receives its
outcome.

Not here: the effect of a denial (`policies`), which the binding selects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from restow.admission.policies_compiled import Compiled, CompiledPolicy, Validation
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel.admission import (
    AUTHORIZER_VARIABLE,
    REQUEST_RESOURCE_VARIABLE,
    VARIABLES,
    Expression,
    PolicyVariables,
)
from restow.apimachinery.structural.cel.budget import OBJECT_COST_MAX
from restow.apimachinery.structural.cel.program import EvaluationOutcome
from restow.apimachinery.structural.cel.run import COST_ON_LOOP_MAX, Trial
from restow.apimachinery.structural.cel.values import TrialOver
from restow.registry.errors import DoAgain

COST_MAX: Final = OBJECT_COST_MAX
"""Cost budget of all validations of a policy for one write and one set of parameters, and as much
again for all audit annotations."""
CONDITIONS_COST_MAX: Final = COST_MAX // 4
MESSAGE_BYTES_MAX: Final = 5 * 1024
ANNOTATION_BYTES_MAX: Final = 10 * 1024
INVALID: Final = "Invalid"
_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class NeedsOffload(NamedTuple):
    """An expression to evaluate in a thread; `run` is thread-safe."""

    run: Callable[[], EvaluationOutcome]


Steps = Generator[int | NeedsOffload, EvaluationOutcome | None, _Result]
"""A generator that yields the cost of each evaluated expression, or an expression to evaluate
elsewhere, whose outcome is sent back."""


class Denial(NamedTuple):
    """A denial by one validation."""

    at: int
    """The index of the validation."""
    message: str
    reason: str = ""
    """Empty for an evaluation error."""


class PolicyVerdict(NamedTuple):
    """All results of one policy."""

    denials: list[Denial]
    annotations: list[tuple[str, str]]
    """Audit annotations: key and value."""
    failures: list[str]
    """Errors of audit annotations; these deny regardless of the binding's actions."""


NOTHING: Final = PolicyVerdict([], [], [])


class _OutOfBudget(Exception):
    """The cost budget is used up, so no further expression is evaluated."""


class _Evaluation:
    """Expressions that share values and a cost budget."""

    def __init__(
        self, variables: Mapping[str, Compiled], values: Mapping[str, Any], cost_max: int
    ) -> None:
        self._values = dict(values)
        self._named = PolicyVariables(
            {name: each.expression for name, each in variables.items() if each.expression},
            lambda: dict(self._values),
            {
                name: f'composited variable "{name}" fails to compile: {each.error}'
                for name, each in variables.items()
                if each.error
            },
        )
        self._values[VARIABLES] = self._named
        self.cost_left = cost_max

    def run(self, compiled: Compiled) -> Steps[EvaluationOutcome]:
        """Return the value, or the error message for the client. Raises `_OutOfBudget`."""
        if compiled.expression is None:
            yield 0
            return EvaluationOutcome(None, 0, compiled.error)
        outcome: EvaluationOutcome | None
        try:
            outcome = self._run(compiled.expression, Trial(COST_ON_LOOP_MAX))
        except TrialOver:
            outcome = yield NeedsOffload(partial(self._run, compiled.expression, None))
            assert outcome is not None
        cost = outcome.cost + self._named.take_cost()
        self.cost_left -= cost
        if self.cost_left < 0:
            raise _OutOfBudget
        yield cost
        if outcome.error:
            message = f"expression '{compiled.source}' resulted in error: {outcome.error}"
            return EvaluationOutcome(None, cost, message)
        return EvaluationOutcome(outcome.value, cost)

    def _run(self, expression: Expression, trial: Trial | None) -> EvaluationOutcome:
        self._named.begin(trial)
        try:
            # A copy, because an expression that fails inside a loop leaves the loop variable
            # behind.
            return expression.run(dict(self._values), trial=trial)
        except (DoAgain, StatusError, TrialOver):
            raise
        except Exception as error:
            # An internal error: one expression must not turn a request into a 500.
            logger.exception(
                "internal error in an admission policy expression: %s", expression.source[:200]
            )
            return EvaluationOutcome(None, 0, f"internal error: {type(error).__name__}")


def evaluate(policy: CompiledPolicy, values: Mapping[str, Any]) -> Steps[PolicyVerdict]:
    """Evaluate a policy; `values` has the variables that it uses. Raises `DoAgain`."""
    applies, problem = yield from _applies(policy, values)
    if not applies:
        denials = [Denial(0, problem)] if problem and not policy.fails_open else []
        return PolicyVerdict(denials, [], [])
    try:
        denials = yield from _validate(policy, values)
        annotations, failures = yield from _annotate(policy, values)
    except _OutOfBudget:
        return NOTHING if policy.fails_open else PolicyVerdict([Denial(0, _OUT_OF_BUDGET)], [], [])
    return PolicyVerdict(denials, annotations, failures)


def _applies(policy: CompiledPolicy, values: Mapping[str, Any]) -> Steps[tuple[bool, str]]:
    """Return whether all match conditions are true, and the error if one fails and none is
    false."""
    if not policy.conditions:
        return True, ""
    evaluation = _Evaluation({}, values, CONDITIONS_COST_MAX)
    problems: list[str] = []
    for condition in policy.conditions:
        try:
            outcome = yield from evaluation.run(condition.compiled)
        except _OutOfBudget:
            return False, _OUT_OF_BUDGET
        if outcome.error:
            problems.append(outcome.error)
        elif outcome.value is not True:
            return False, ""
    return not problems, _aggregate(problems)


def _aggregate(problems: list[str]) -> str:
    distinct = list(dict.fromkeys(problems))
    return f"[{', '.join(distinct)}]" if len(distinct) > 1 else "".join(distinct)


def _validate(policy: CompiledPolicy, values: Mapping[str, Any]) -> Steps[list[Denial]]:
    evaluation = _Evaluation(policy.variables, values, COST_MAX)
    denials: list[Denial] = []
    failed: list[tuple[int, Validation]] = []
    for index, validation in enumerate(policy.validations):
        outcome = yield from evaluation.run(validation.compiled)
        if outcome.error:
            if not policy.fails_open:
                denials.append(Denial(index, outcome.error))
        elif outcome.value is not True:
            failed.append((index, validation))
    if failed:
        denials += yield from _denials(policy, values, failed, cost_max=evaluation.cost_left)
        denials.sort()
    return denials


def _denials(
    policy: CompiledPolicy,
    values: Mapping[str, Any],
    failed: list[tuple[int, Validation]],
    *,
    cost_max: int,
) -> Steps[list[Denial]]:
    # Message expressions have no access to the authorizer.
    rest = {
        name: each
        for name, each in values.items()
        if name not in (AUTHORIZER_VARIABLE, REQUEST_RESOURCE_VARIABLE)
    }
    evaluation = _Evaluation(policy.variables, rest, cost_max)
    denials = []
    for index, validation in failed:
        try:
            message = yield from _message(evaluation, validation)
        except _OutOfBudget:
            message = f"failed messageExpression: {_OUT_OF_BUDGET}"
        denials.append(Denial(index, message, validation.reason or INVALID))
    return denials


def _message(evaluation: _Evaluation, validation: Validation) -> Steps[str]:
    if validation.message_compiled is not None:
        value = (yield from evaluation.run(validation.message_compiled)).value
        text = value.strip() if isinstance(value, str) else ""
        if text and "\n" not in text and len(text.encode(errors="replace")) <= MESSAGE_BYTES_MAX:
            return text
    source = validation.compiled.source.strip()
    return validation.message or f"failed expression: {source}"


def _annotate(
    policy: CompiledPolicy, values: Mapping[str, Any]
) -> Steps[tuple[list[tuple[str, str]], list[str]]]:
    found: list[tuple[str, str]] = []
    failures: list[str] = []
    evaluation = _Evaluation(policy.variables, values, COST_MAX)
    for annotation in policy.annotations:
        outcome = yield from evaluation.run(annotation.compiled)
        if outcome.error:
            if not policy.fails_open:
                failures.append(outcome.error)
        elif isinstance(outcome.value, str) and (text := outcome.value.strip()):
            found.append((annotation.key, text[:ANNOTATION_BYTES_MAX]))
    return found, failures
