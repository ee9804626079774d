"""Compiles expressions from source to programs: parse, check, estimate, compile.

Not here: which rules exist and when they run (`rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.checker import Checker, Variable
from restow.apimachinery.structural.cel.cost import estimate
from restow.apimachinery.structural.cel.environment import RULES, Environment
from restow.apimachinery.structural.cel.evaluate import compile_node
from restow.apimachinery.structural.cel.nodes import CelNode
from restow.apimachinery.structural.cel.run import Evaluate, Evaluation, Trial
from restow.apimachinery.structural.cel.syntax import SyntaxProblem, located_messages, parse
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import CelError, CostExceeded, TrialOver

SELF: Final = "self"
OLD_SELF: Final = "oldSelf"


class CompileError(Exception):
    """An expression that does not compile; the text is shown to its author."""


class Program:
    """A compiled expression; safe to share, since all state is in the run."""

    __slots__ = ("_evaluate", "cost_max", "uses_old")

    def __init__(self, evaluate: Evaluate, *, uses_old: bool, cost_max: int) -> None:
        self._evaluate = evaluate
        self.uses_old = uses_old
        """Whether the expression reads the old value."""
        self.cost_max = cost_max
        """The estimated maximum cost."""

    def run(
        self,
        variables: dict[str, Any],
        *,
        cost_max: int = CALL_COST_MAX,
        trial: Trial | None = None,
    ) -> EvaluationOutcome:
        """Return the value or the error, and the cost.

        Raises TrialOver if the cost exceeds the trial budget; `variables` may be modified then.
        """
        if trial is not None:
            return self._try(variables, cost_max, trial)
        return self._run(Evaluation(variables, cost_max))

    def _try(self, variables: dict[str, Any], cost_max: int, trial: Trial) -> EvaluationOutcome:
        trial_cost_max = min(cost_max, max(trial.cost_left, 0))
        run = Evaluation(variables, trial_cost_max, cost_max)
        outcome = self._run(run)
        trial.spend(run.cost - (run.cost_max - trial_cost_max))
        return outcome

    def _run(self, run: Evaluation) -> EvaluationOutcome:
        try:
            return EvaluationOutcome(self._evaluate(run), run.cost)
        except CostExceeded:
            if run.cost <= run.whole_cost_max:
                raise TrialOver from None
            message = "operation cancelled: actual cost limit exceeded"
            return EvaluationOutcome(None, run.cost, message)
        except CelError as error:
            return EvaluationOutcome(None, run.cost, str(error))
        except RecursionError:
            return EvaluationOutcome(None, run.cost, "recursion limit exceeded")


class EvaluationOutcome:
    """The result of an evaluation."""

    __slots__ = ("cost", "error", "value")

    def __init__(self, value: Any, cost: int, error: str = "") -> None:
        self.value = value
        self.cost = cost
        self.error = error
        """Empty if there is a value."""


class CheckedExpression(NamedTuple):
    """A type-checked expression."""

    node: CelNode
    type: types.Type
    used: frozenset[str]
    """The variables that it reads."""


def check_expression(
    source: str, variables: Mapping[str, Variable], environment: Environment
) -> CheckedExpression:
    """Parse and type-check an expression; CompileError with all errors."""
    try:
        node = parse(source)
    except SyntaxProblem as problem:
        raise CompileError(located_messages(source, [(problem.at, problem.message)])) from None
    checker = Checker(environment, dict(variables))
    found = checker.check(node)
    if checker.problems:
        raise CompileError(located_messages(source, checker.problems))
    return CheckedExpression(node, found, frozenset(checker.used))


def compile_expression(
    source: str,
    declared: Declared,
    *,
    wanted: types.Type = types.BOOL,
    is_old_optional: bool = False,
    environment: Environment = RULES,
) -> Program:
    """Compile an expression on a value of a type; CompileError if it is invalid.

    Rules return bools, messages return strings; errors say which of both failed.
    """
    is_rule = wanted == types.BOOL
    failed = f"{'' if is_rule else 'messageExpression '}compilation failed"
    old = types.optional_of(declared.type) if is_old_optional else declared.type
    variables = {SELF: Variable(declared.type, declared), OLD_SELF: Variable(old, declared)}
    try:
        node, found, used = check_expression(source, variables, environment)
    except CompileError as error:
        raise CompileError(f"{failed}: {error}") from None
    if found != wanted:
        what = "cel expression must evaluate to a bool"
        raise CompileError(what if is_rule else "messageExpression must evaluate to a string")
    cost = estimate(node, declared)
    return Program(compile_node(node), uses_old=OLD_SELF in used, cost_max=cost.high)
