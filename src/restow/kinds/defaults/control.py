"""Defaults of the kinds that configure a server: RBAC, admission, extension, flow control.

Not here: the effect of these kinds.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all

_RBAC: Final = "rbac.authorization.k8s.io"
_HTTPS_PORT: Final = 443
_OF_WEBHOOK: Final[dict[str, Any]] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "timeoutSeconds": 10,
}
_OF_WEBHOOK_V1BETA1: Final[dict[str, Any]] = {
    "failurePolicy": "Ignore",
    "matchPolicy": "Exact",
    "sideEffects": "Unknown",
    "timeoutSeconds": 30,
}


def default_role_binding(obj: Object, _version: str) -> None:
    put(child(obj, "roleRef"), "apiGroup", _RBAC)
    for subject in items(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            put(subject, "apiGroup", _RBAC)


def default_validating_webhooks(obj: Object, version: str) -> None:
    for webhook in items(obj, "webhooks"):
        put_all(webhook, _OF_WEBHOOK_V1BETA1 if version == "v1beta1" else _OF_WEBHOOK)
        if version == "v1beta1":
            put(webhook, "admissionReviewVersions", ["v1beta1"])
        _default_matching(webhook)
        for rule in items(webhook, "rules"):
            put(rule, "scope", "*")
        service = given(given(webhook, "clientConfig") or {}, "service")
        if service is not None:
            put(service, "port", _HTTPS_PORT)


def default_mutating_webhooks(obj: Object, version: str) -> None:
    default_validating_webhooks(obj, version)
    for webhook in items(obj, "webhooks"):
        put(webhook, "reinvocationPolicy", "Never")


def default_policy(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put(spec, "failurePolicy", "Fail")
    _default_match_resources(given(spec, "matchConstraints"))


def default_policy_binding(obj: Object, _version: str) -> None:
    _default_match_resources(given(child(obj, "spec"), "matchResources"))


def default_api_service(obj: Object, _version: str) -> None:
    service = given(given(obj, "spec") or {}, "service")
    if service is not None:
        put(service, "port", _HTTPS_PORT)


def begin_api_service(obj: Object) -> None:
    """An APIService without a service is served locally, and so available at once."""
    status = child(obj, "status")
    if not given(obj, "spec") or given(obj["spec"], "service") is None:
        since = child(obj, "metadata").get("creationTimestamp")
        put(status, "conditions", [local_condition(since)])


def local_condition(since: str | None) -> Object:
    """The Available condition of an APIService that is served locally."""
    return {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": since,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }


def default_flow_schema(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000


def default_priority_level(obj: Object, version: str) -> None:
    spec = child(obj, "spec")
    exempt = given(spec, "exempt")
    if exempt is not None:
        put_all(exempt, {"nominalConcurrencyShares": 0, "lendablePercent": 0})
    limited = given(spec, "limited")
    if limited is None:
        return
    is_old = version in ("v1beta1", "v1beta2")
    put(limited, "assuredConcurrencyShares" if is_old else "nominalConcurrencyShares", 30)
    put(limited, "lendablePercent", 0)
    queuing = given(given(limited, "limitResponse") or {}, "queuing")
    if queuing is not None:
        for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
            if not queuing.get(name):
                queuing[name] = value


def _default_matching(obj: Object) -> None:
    child(obj, "namespaceSelector")
    child(obj, "objectSelector")


def _default_match_resources(match: Object | None) -> None:
    if match is None:
        return
    put(match, "matchPolicy", "Equivalent")
    _default_matching(match)
    for name in ("resourceRules", "excludeResourceRules"):
        for rule in items(match, name):
            put(rule, "scope", "*")
