"""What a policy says of one write, with one set of parameters. Pure: values in, decisions out.

First the conditions: unless all are true the policy has nothing to say. Then each validation; one
that is not true is a denial. What fails to evaluate is a denial as well, unless the policy fails
open. All expressions of a kind share a budget, and each has a limit of its own. After each one it
is said what it has cost, so that others get their turn; one that is too dear for that is handed
out, to be run elsewhere, and its outcome taken back.

Not here: what becomes of a denial (`policies`), which a binding decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from restow.admission.offload import COST_ON_LOOP_MAX
from restow.admission.policies_compiled import Compiled, CompiledPolicy, Validation
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel.admission import (
    ASKED,
    ASKED_RESOURCE,
    VARIABLES,
    Expression,
    PolicyVariables,
)
from restow.apimachinery.structural.cel.budget import OBJECT_COST_MAX
from restow.apimachinery.structural.cel.program import EvaluationOutcome
from restow.apimachinery.structural.cel.run import Trial
from restow.apimachinery.structural.cel.values import TrialOver
from restow.registry.errors import DoAgain

COST_MAX: Final = OBJECT_COST_MAX
"""Of all validations of a policy, for one write and one set of parameters; of all notes as well."""
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
    """An expression to be run where it may take long; safe to be run in a thread."""

    run: Callable[[], EvaluationOutcome]


Steps = Generator[int | NeedsOffload, EvaluationOutcome | None, _Result]
"""Something that is done expression by expression, each with what it has cost; or, for its outcome,
one to be run elsewhere."""


class Denial(NamedTuple):
    """Something that a policy does not want."""

    at: int
    """Which of the validations."""
    message: str
    reason: str = ""
    """Empty when it could not be evaluated."""


class PolicyVerdict(NamedTuple):
    """All that a policy says."""

    denials: list[Denial]
    annotations: list[tuple[str, str]]
    """For the audit log."""
    failures: list[str]
    """Of what was to be noted: these deny, whatever the binding says."""


NOTHING: Final = PolicyVerdict([], [], [])


class _OutOfBudget(Exception):
    """No further expression is run."""


class _Evaluation:
    """Expressions that share values and a budget."""

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
        """The value, or the error in the words for a client. Raises `_OutOfBudget`."""
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
            told = f"expression '{compiled.source}' resulted in error: {outcome.error}"
            return EvaluationOutcome(None, cost, told)
        return EvaluationOutcome(outcome.value, cost)

    def _run(self, expression: Expression, trial: Trial | None) -> EvaluationOutcome:
        self._named.trial = trial
        try:
            # A copy: one that ends in a loop leaves the variable of that loop behind.
            return expression.run(dict(self._values), trial=trial)
        except (DoAgain, StatusError, TrialOver):
            raise
        except Exception as error:
            # Ours, not the author's: one expression must not turn a request into a 500.
            logger.exception("an expression of a policy has failed: %s", expression.source[:200])
            return EvaluationOutcome(None, 0, f"internal error: {type(error).__name__}")


def evaluate(policy: CompiledPolicy, values: Mapping[str, Any]) -> Steps[PolicyVerdict]:
    """What a policy says; `values` are those of all variables that it uses. Raises `DoAgain`."""
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
    """Whether all conditions are true; if one cannot be told and none is false, why."""
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
    # Messages cannot ask what somebody may do.
    rest = {name: each for name, each in values.items() if name not in (ASKED, ASKED_RESOURCE)}
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
        said = (yield from evaluation.run(validation.message_compiled)).value
        text = said.strip() if isinstance(said, str) else ""
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
