"""Validates the rules of a schema: whether they compile, and whether they exceed the cost limits.

Not here: the other fields of a rule, such as its message (`schema_rules`).
"""

from __future__ import annotations

from restow.apimachinery import field_errors
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.cel.budget import RULE_COST_MAX, CostContext, over_budget
from restow.apimachinery.structural.cel.rules import CompiledRule, compile_rule
from restow.apimachinery.structural.cel.spans import UNBOUNDED
from restow.apimachinery.structural.schema import Schema


def rule_problems(
    schema: Schema,
    path: str,
    context: CostContext,
    *,
    uncorrelatable_at: str | None,
) -> list[StatusCause]:
    """Validate the rules of one node, and add their cost to the total.

    `uncorrelatable_at` is the path of an ancestor list whose items have no old values.
    """
    causes = Causes()
    declared = context.declared()
    rules_at = paths.child(path, "x-kubernetes-validations")
    if declared is None:
        why = "failed to retrieve type information for x-kubernetes-validations"
        return [StatusCause("InternalError", f"Internal error: internal error: {why}", rules_at)]
    for index, rule in enumerate(schema.rules):
        where = paths.index(rules_at, index)
        compiled = compile_rule(rule, schema, declared)
        causes += _cost_problems(compiled, where, context)
        raw_rule = dict(rule.raw)
        if compiled.error:
            causes.invalid(paths.child(where, "rule"), raw_rule, compiled.error)
        if compiled.message_error:
            below = paths.child(where, "messageExpression")
            causes.invalid(below, raw_rule, compiled.message_error)
        uses_old = compiled.program is not None and compiled.program.uses_old
        if uses_old and uncorrelatable_at is not None:
            why = (
                "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                f"{uncorrelatable_at}"
            )
            causes.invalid(paths.child(where, "rule"), rule.rule, why)
        if not uses_old and rule.optional_old_self is not None:
            why = "may not be set if oldSelf is not used in rule"
            below = paths.child(where, "optionalOldSelf")
            causes.invalid(below, rule.optional_old_self, why)
    return causes


def _cost_problems(compiled: CompiledRule, path: str, context: CostContext) -> list[StatusCause]:
    causes = Causes()
    if compiled.program is not None:
        cost = min(compiled.program.cost_max * context.runs_max(), UNBOUNDED)
        causes += _over(paths.child(path, "rule"), "estimated rule cost", cost, context)
    if compiled.message is not None:
        where = paths.child(path, "messageExpression")
        cost = compiled.message.cost_max
        causes += _over(where, "estimated messageExpression cost", cost, context)
    return causes


def _over(path: str, what: str, cost: int, context: CostContext) -> list[StatusCause]:
    context.total.add(path, cost)
    if cost <= RULE_COST_MAX:
        return []
    return [field_errors.forbidden(path, over_budget(what, cost, RULE_COST_MAX))]
