"""Applies the results of policies to a request: denial, warnings and audit annotations.

Not here: the evaluation of policies (`policies_evaluation`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from restow.admission.policies_compiled import CompiledPolicy, ConfigurationError, PolicyBinding
from restow.admission.policies_evaluation import Denial, PolicyVerdict
from restow.admission.review import Attributes
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusCause, StatusError
from restow.request.context import ANNOTATION_LENGTH_MAX, Context

FAILURES_MAX: Final = 50
MESSAGE_LENGTH_MAX: Final = 512
"""Limit for a failure message that is too long for an annotation; JSON may escape each character as
six."""
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"
_REASONS: Final[dict[str, type[StatusError]]] = {
    "Forbidden": status.Forbidden,
    "Unauthorized": status.Unauthorized,
    "RequestEntityTooLarge": status.RequestEntityTooLarge,
}


class _Denied(NamedTuple):
    """A denial by a policy; `binding` is empty if the policy itself cannot be used."""

    policy: str
    binding: str
    denial: Denial


class PolicyResult:
    """The results of all policies for one write."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._denied: list[_Denied] = []
        self._warnings: list[str] = []
        self._failures: list[dict[str, Any]] = []
        self._pending_annotations: dict[str, list[str]] = {}
        self._annotations: dict[str, str] = {}

    def misconfigured(
        self, policy: CompiledPolicy, binding: PolicyBinding | None, error: ConfigurationError
    ) -> None:
        """Record that a policy or binding cannot be used."""
        if not policy.fails_open:
            what = "policy" if binding is None else "binding"
            denial = Denial(0, f"failed to configure {what}: {error}")
            name = "" if binding is None else binding.name
            self._denied.append(_Denied(policy.name, name, denial))

    def add(self, policy: CompiledPolicy, binding: PolicyBinding, verdict: PolicyVerdict) -> None:
        """Apply the actions of a binding to the result of a policy."""
        for denial in verdict.denials:
            for action in binding.actions:
                self._act(action, policy, binding, denial)
        for failure in verdict.failures:
            self._denied.append(_Denied(policy.name, binding.name, Denial(0, failure)))
        for key, value in verdict.annotations:
            values = self._pending_annotations.setdefault(key, [])
            if value not in values:
                values.append(value)

    def _act(
        self, action: str, policy: CompiledPolicy, binding: PolicyBinding, denial: Denial
    ) -> None:
        match action:
            case "Deny":
                self._denied.append(_Denied(policy.name, binding.name, denial))
            case "Warn":
                self._warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding"
                    f" '{binding.name}': {denial.message}"
                )
            case "Audit":
                self._failures.append(
                    {
                        "message": denial.message,
                        "policy": policy.name,
                        "binding": binding.name,
                        "expressionIndex": denial.at,
                        "validationActions": list(binding.actions),
                    }
                )

    def complete_annotations(self, policy: CompiledPolicy) -> None:
        """Complete the audit annotations of a policy, once all its bindings are evaluated."""
        for key, values in self._pending_annotations.items():
            self._annotations[f"{policy.name}/{key}"] = ", ".join(values)
        self._pending_annotations = {}

    def finish(self) -> None:
        """Add warnings and audit annotations, and raise the first denial."""
        context = self._attributes.context
        for text in self._warnings:
            context.warn(text)
        for key, value in self._annotations.items():
            context.annotate(key, value)
        if self._failures:
            _annotate_failures(context, self._failures)
        if self._denied:
            raise _refusal(self._attributes, self._denied[0])


def _annotate_failures(context: Context, failures: list[dict[str, Any]]) -> None:
    entries = failures[:FAILURES_MAX]
    # Drop whole entries: truncated text would be invalid JSON.
    while len(text := orjson.dumps(entries).decode()) > ANNOTATION_LENGTH_MAX and len(entries) > 1:
        entries = entries[: len(entries) // 2]
    if len(text) > ANNOTATION_LENGTH_MAX:
        # A single entry is too long because of its message; its other fields are short.
        entries = [{**entries[0], "message": entries[0]["message"][:MESSAGE_LENGTH_MAX]}]
        text = orjson.dumps(entries).decode()
    context.annotate(_FAILURES, text)


def _refusal(attributes: Attributes, denied: _Denied) -> StatusError:
    policy, binding, denial = denied
    bound = f" with binding '{binding}'" if binding else ""
    why = f"ValidatingAdmissionPolicy '{policy}'{bound} denied request: {denial.message}"
    resource = attributes.resource.kind.group_resource
    error = status.forbidden(why, resource=resource, name=attributes.name)
    kind = _REASONS.get(denial.reason, status.Invalid)
    return kind(error.message, details=error.details, causes=(StatusCause("", why),))
