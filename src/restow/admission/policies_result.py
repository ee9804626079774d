"""What becomes of what policies say: a refusal, warnings, notes in the audit log.

Not here: what they say (`policies_evaluation`).
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

FAILURES_NOTED_MAX: Final = 50
MESSAGE_NOTED_MAX: Final = 512
"""Of a failure whose message is too long for a note: each character may need six."""
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"
_REASONS: Final[dict[str, type[StatusError]]] = {
    "Forbidden": status.Forbidden,
    "Unauthorized": status.Unauthorized,
    "RequestEntityTooLarge": status.RequestEntityTooLarge,
}


class _Denied(NamedTuple):
    """A denial by a policy; no binding: the policy itself is no good."""

    policy: str
    binding: str
    denial: Denial


class PolicyResult:
    """What all policies say of one write."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._denied: list[_Denied] = []
        self._warnings: list[str] = []
        self._failures: list[dict[str, Any]] = []
        self._notes: dict[str, list[str]] = {}
        self._noted: dict[str, str] = {}

    def misconfigured(
        self, policy: CompiledPolicy, binding: PolicyBinding | None, error: ConfigurationError
    ) -> None:
        """A policy or binding cannot be used."""
        if not policy.fails_open:
            what = "policy" if binding is None else "binding"
            denial = Denial(0, f"failed to configure {what}: {error}")
            name = "" if binding is None else binding.name
            self._denied.append(_Denied(policy.name, name, denial))

    def add(self, policy: CompiledPolicy, binding: PolicyBinding, verdict: PolicyVerdict) -> None:
        """What a policy says, to the effect that a binding gives it."""
        for denial in verdict.denials:
            for action in binding.actions:
                self._act(action, policy, binding, denial)
        for failure in verdict.failures:
            self._denied.append(_Denied(policy.name, binding.name, Denial(0, failure)))
        for key, value in verdict.annotations:
            values = self._notes.setdefault(key, [])
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

    def note(self, policy: CompiledPolicy) -> None:
        """All bindings of a policy were asked: its notes are complete."""
        for key, values in self._notes.items():
            self._noted[f"{policy.name}/{key}"] = ", ".join(values)
        self._notes = {}

    def finish(self) -> None:
        """Warn, note, and raise the first denial."""
        context = self._attributes.context
        for text in self._warnings:
            context.warn(text)
        for key, value in self._noted.items():
            context.annotate(key, value)
        if self._failures:
            _note_failures(context, self._failures)
        if self._denied:
            raise _refusal(self._attributes, self._denied[0])


def _note_failures(context: Context, failures: list[dict[str, Any]]) -> None:
    told = failures[:FAILURES_NOTED_MAX]
    # Cut short, it would be JSON no more.
    while len(text := orjson.dumps(told).decode()) > ANNOTATION_LENGTH_MAX and len(told) > 1:
        told = told[: len(told) // 2]
    if len(text) > ANNOTATION_LENGTH_MAX:
        # One alone is too long: its message is, whatever else it says is short.
        told = [{**told[0], "message": told[0]["message"][:MESSAGE_NOTED_MAX]}]
        text = orjson.dumps(told).decode()
    context.annotate(_FAILURES, text)


def _refusal(attributes: Attributes, denied: _Denied) -> StatusError:
    policy, binding, denial = denied
    bound = f" with binding '{binding}'" if binding else ""
    why = f"ValidatingAdmissionPolicy '{policy}'{bound} denied request: {denial.message}"
    resource = attributes.resource.kind.group_resource
    told = status.forbidden(why, resource=resource, name=attributes.name)
    kind = _REASONS.get(denial.reason, status.Invalid)
    return kind(told.message, details=told.details, causes=(StatusCause("", why),))
