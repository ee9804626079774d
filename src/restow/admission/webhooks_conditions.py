"""Match conditions of admission webhooks.

If a condition is false, the webhook is not called. If none is false and some cannot be evaluated,
the failure policy applies: the write is refused, or the webhook skipped.

Not here: rules and selectors (`matchers`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from restow.admission.matchers import Hosted
from restow.admission.request_values import request_values
from restow.admission.review import Attributes
from restow.admission.webhooks_index import AdmissionWebhook
from restow.apimachinery import status
from restow.apimachinery.structural.cel.admission import (
    NAMESPACE,
    OBJECT,
    OLD_OBJECT,
    REQUEST,
    Expression,
)
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.program import EvaluationOutcome
from restow.apimachinery.structural.cel.run import COST_ON_LOOP_MAX, Trial
from restow.apimachinery.structural.cel.values import TrialOver
from restow.registry.resource import Object
from restow.request.offload import Offload

COST_MAX: Final = 2_500_000
"""Cost budget of all match conditions of one webhook for one write."""

AuthorizerValues = Callable[[Attributes], dict[str, Any]]
"""Returns the CEL variables of the authorizer; see
`restow.apimachinery.structural.cel.admission`."""


def no_authorizer(_attributes: Attributes) -> dict[str, Any]:
    """Return no variables: expressions that use the authorizer cannot be evaluated."""
    return {}


async def conditions_hold(
    hook: AdmissionWebhook,
    attributes: Attributes,
    hosted: Hosted,
    *,
    obj: Object | None,
    old: Object | None,
    authorizer: AuthorizerValues,
    offload: Offload,
) -> bool:
    """Return whether all match conditions are true. Raises a 403 on an evaluation error, unless the
    failure policy is `Ignore`."""
    if not hook.conditions:
        return True
    values = {
        OBJECT: obj,
        OLD_OBJECT: old,
        REQUEST: request_values(attributes, hosted),
        NAMESPACE: None,
        **authorizer(attributes),
    }
    problems, cost_left = [], COST_MAX
    for condition in hook.conditions:
        if condition.expression is None:
            problems.append(condition.problem)
            continue
        run = partial(_run, condition.expression, values, min(CALL_COST_MAX, cost_left))
        try:
            outcome = run(Trial(COST_ON_LOOP_MAX))
        except TrialOver:
            outcome = await offload.run(attributes.context, run)
        cost_left -= outcome.cost
        if outcome.error:
            problems.append(
                f"expression '{condition.expression.source}' resulted in error: {outcome.error}"
            )
            if cost_left <= 0:
                break
        elif outcome.value is not True:
            return False
    if not problems:
        return True
    if hook.fails_open:
        return False
    message = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    group_resource = attributes.resource.kind.group_resource
    raise status.forbidden(message, resource=group_resource, name=attributes.name)


def _run(
    expression: Expression, values: dict[str, Any], cost_max: int, trial: Trial | None = None
) -> EvaluationOutcome:
    # A copy, because an expression that fails inside a loop leaves the loop variable behind.
    return expression.run(dict(values), cost_max=cost_max, trial=trial)
