"""Validation of admission webhook configurations, mutating and validating ones.

An update may violate rules that the old object violates: the object may be older than the rules.

Not here: calling webhooks, and their client configuration (`webhook_clients`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.name_formats import dns_1035_label_problem, subdomain_problem
from restow.apimachinery.structural.cel.admission import Scope
from restow.kinds.validation.fields import Causes, Object, listed, part, require_one_of
from restow.kinds.validation.match_rules import MATCH_POLICIES, check_rule, check_selector
from restow.kinds.validation.policies import check_conditions
from restow.kinds.validation.webhook_clients import check_client

WEBHOOKS_MAX: Final = 1_000
"""Limit of webhooks in one configuration. kube-apiserver limits only the size of an object."""
SECONDS_MAX: Final = 30
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_WITHOUT_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun", "Some", "Unknown")
_NAME_SEGMENTS_MIN: Final = 3


def validate_webhooks(causes: Causes, new: Object, old: Object | None) -> None:
    count = len(new.get("webhooks") or ())
    if count > WEBHOOKS_MAX:
        causes.too_many("webhooks", count=count, count_max=WEBHOOKS_MAX)
        return
    before = [] if old is None else [each for _, each in listed(old, "webhooks", "")]
    effects: tuple[str, ...] = _WITHOUT_SIDE_EFFECTS
    if any(each.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS for each in before):
        effects = _SIDE_EFFECTS
    is_known = all(_reads_known(each) for each in before)
    before_names = [each.get("name") for each in before]
    is_unique = len(set(before_names)) == len(before_names)
    names: set[str] = set()
    for index, (where, webhook) in enumerate(listed(new, "webhooks", "webhooks")):
        _webhook_problems(causes, webhook, where, effects)
        was = before[index] if len(before) == count and index < count else None
        if was is None or webhook.get("matchConditions") != was.get("matchConditions"):
            check_conditions(causes, webhook, f"{where}.matchConditions", Scope())
        _version_problems(causes, webhook, where, must_be_known=is_known)
        name = webhook.get("name") or ""
        if is_unique and name and name in names:
            causes.duplicate(f"{where}.name", name)
        names.add(name)


def _webhook_problems(
    causes: Causes, webhook: Object, where: str, effects: tuple[str, ...]
) -> None:
    _name_problems(causes, webhook.get("name") or "", f"{where}.name")
    for at, rule in listed(webhook, "rules", f"{where}.rules"):
        check_rule(causes, rule, at)
    for name, values in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", MATCH_POLICIES),
    ):
        require_one_of(causes, webhook, field=where, name=name, values=values)
    if webhook.get("sideEffects") is None:
        causes.required(f"{where}.sideEffects", f"must specify one of {', '.join(effects)}")
    require_one_of(causes, webhook, field=where, name="sideEffects", values=effects)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= SECONDS_MAX:
        why = f"the timeout value must be between 1 and {SECONDS_MAX} seconds"
        causes.invalid(f"{where}.timeoutSeconds", seconds, why)
    for name in ("namespaceSelector", "objectSelector"):
        check_selector(causes, part(webhook, name), f"{where}.{name}")
    policies = ("IfNeeded", "Never")
    require_one_of(causes, webhook, field=where, name="reinvocationPolicy", values=policies)
    # As in kube-apiserver, the bundle is not parsed: calls with an invalid one fail.
    check_client(
        causes, part(webhook, "clientConfig"), f"{where}.clientConfig", checks_bundle=False
    )


def _name_problems(causes: Causes, name: str, where: str) -> None:
    if not name:
        causes.required(where)
        return
    if problem := subdomain_problem(name):
        causes.invalid(where, name, problem)
        return
    if name.count(".") + 1 < _NAME_SEGMENTS_MIN:
        why = "should be a domain with at least three segments separated by dots"
        causes.invalid(where, name, why)
        return


def _version_problems(causes: Causes, webhook: Object, where: str, *, must_be_known: bool) -> None:
    at, versions = f"{where}.admissionReviewVersions", webhook.get("admissionReviewVersions") or []
    told = ", ".join(_REVIEW_VERSIONS)
    if not versions:
        causes.required(at, f"must specify one of {told}")
        return
    seen: set[str] = set()
    for index, each in enumerate(versions):
        if each in seen:
            causes.invalid(f"{at}[{index}]", each, "duplicate version")
        elif problem := dns_1035_label_problem(each):
            causes.invalid(f"{at}[{index}]", each, problem)
        seen.add(each)
    if must_be_known and not _reads_known(webhook):
        causes.invalid(at, versions, f"must include at least one of {told}")


def _reads_known(webhook: Object) -> bool:
    """Whether it accepts a supported version of AdmissionReview; True if it lists none."""
    versions = webhook.get("admissionReviewVersions") or []
    return not versions or any(each in _REVIEW_VERSIONS for each in versions)
