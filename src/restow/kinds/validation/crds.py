"""Validation of a CustomResourceDefinition: group, names, versions, and immutable fields.

Field paths in errors are those of kube-apiserver: parts that are the same in all versions are in
`spec` itself, and webhook fields have the names from before v1.

Not here: rules of one version (`crd_versions`), and webhook clients (`webhook_clients`).
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from restow.apimachinery.conversion_review import SUPPORTED
from restow.apimachinery.name_formats import dns_1035_label_problem, subdomain_problem
from restow.kinds.validation.crd_versions import check_versions
from restow.kinds.validation.fields import Causes, Object, keep, listed, part
from restow.kinds.validation.webhook_clients import check_client, has_bad_bundle

_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_PROTECTED: Final = ("k8s.io", "kubernetes.io")
_APPROVED: Final = "api-approved.kubernetes.io"
_APPROVALS_AT: Final = "https://github.com/kubernetes/enhancements/pull/1111"


def validate_definition(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a CRD, or its change.

    If `spec` is unchanged, it is not validated again: an accepted CRD stays valid, and an update of
    the status is cheap.
    """
    spec = part(new, "spec")
    if old is None or spec != part(old, "spec"):
        if old is None:
            _check_own_name(causes, new)
        _check_spec(causes, spec, old)
        if old is not None:
            _check_change(causes, spec, old)
        _check_names(causes, part(new, "status", "acceptedNames"), "status.acceptedNames")
        _check_stored(causes, new)
    else:
        _check_names(causes, part(new, "status", "acceptedNames"), "status.acceptedNames")
        # kube-apiserver accepts any list in the status, and then rejects all other updates.
        if part(new, "status").get("storedVersions") != part(old, "status").get("storedVersions"):
            _check_stored(causes, new)
    _check_approval(causes, new, old)
    was_preserving = part(old, "spec").get("preserveUnknownFields") is True
    if spec.get("preserveUnknownFields") is True and not was_preserving:
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        causes.invalid("spec.preserveUnknownFields", True, why)


def _is_established(definition: Object | None) -> bool:
    """Whether the condition Established is True."""
    for _, condition in listed(part(definition, "status"), "conditions", ""):
        if condition.get("type") == "Established":
            return condition.get("status") == "True"
    return False


def _check_own_name(causes: Causes, new: Object) -> None:
    name = part(new, "metadata").get("name") or ""
    wanted = f"{part(new, 'spec', 'names').get('plural', '')}.{part(new, 'spec').get('group', '')}"
    if name != wanted:
        causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_spec(causes: Causes, spec: Object, old: Object | None) -> None:
    _check_group(causes, spec.get("group") or "")
    _check_choice(causes, "spec.scope", spec.get("scope"), _SCOPES)
    per_version, for_all = check_versions(spec, old)
    causes += per_version
    _check_storage_flags(causes, spec)
    names = part(spec, "names")
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            causes.required(f"spec.names.{name}")
    _check_names(causes, names, "spec.names")
    causes += for_all
    _check_conversion(causes, spec, old)


def _check_group(causes: Causes, group: str) -> None:
    where = "spec.group"
    if not group:
        causes.required(where)
    elif problem := subdomain_problem(group):
        causes.invalid(where, group, problem)
    elif "." not in group:
        causes.invalid(where, group, "should be a domain with at least one dot")


def _check_choice(causes: Causes, where: str, value: Any, choices: tuple[str, ...]) -> None:
    if not value:
        causes.required(where)
    elif value not in choices:
        causes.not_supported(where, value, choices)


def _check_storage_flags(causes: Causes, spec: Object) -> None:
    """Require exactly one storage version, and unique names."""
    versions = [version for _, version in listed(spec, "versions", "")]
    names = [version.get("name") or "" for version in versions]
    if len(set(names)) < len(names):
        causes.invalid("spec.versions", names, "must contain unique version names")
    if sum(version.get("storage") is True for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        causes.invalid("spec.versions", names, why)


def _check_names(causes: Causes, names: Object, where: str) -> None:
    """Validate requested or accepted names; accepted names may still be empty."""
    for name in ("plural", "singular"):
        value = names.get(name) or ""
        if value and (problem := dns_1035_label_problem(value)):
            causes.invalid(f"{where}.{name}", value, problem)
    for name in ("kind", "listKind"):
        value = names.get(name) or ""
        if value and (problem := dns_1035_label_problem(value.lower())):
            why = f"may have mixed case, but should otherwise match: {problem}"
            causes.invalid(f"{where}.{name}", value, why)
    _check_labels(causes, names, "shortNames", where)
    kind = names.get("kind")
    if kind and kind == names.get("listKind"):
        # A list could not be distinguished from one of its items.
        causes.invalid(f"{where}.listKind", kind, "kind and listKind may not be the same")
    _check_labels(causes, names, "categories", where)


def _check_labels(causes: Causes, names: Object, name: str, where: str) -> None:
    for index, each in enumerate(names.get(name) or ()):
        if problem := dns_1035_label_problem(each):
            causes.invalid(f"{where}.{name}[{index}]", each, problem)


def _check_conversion(causes: Causes, spec: Object, old: Object | None) -> None:
    if spec.get("conversion") is None:
        return
    conversion = part(spec, "conversion")
    strategy = conversion.get("strategy")
    if strategy != "None" and spec.get("preserveUnknownFields") is True:
        why = "must be None if spec.preserveUnknownFields is true"
        causes.invalid("spec.conversion.strategy", strategy or "", why)
    _check_choice(causes, "spec.conversion.strategy", strategy, _STRATEGIES)
    webhook = part(conversion, "webhook")
    config = webhook.get("clientConfig")
    reviews = webhook.get("conversionReviewVersions") or []
    where, reviews_at = (
        "spec.conversion.webhookClientConfig",
        "spec.conversion.conversionReviewVersions",
    )
    if strategy == "Webhook":
        if not isinstance(config, dict):
            causes.required(where, "required when strategy is set to Webhook")
        else:
            check_client(causes, config, where, checks_bundle=not _may_have_bad_bundle(old))
        _check_reviews(causes, reviews, reviews_at, old)
        return
    why = "should not be set when strategy is not set to Webhook"
    if isinstance(config, dict):
        causes.forbidden(where, why)
    if reviews:
        causes.forbidden(reviews_at, why)


def _may_have_bad_bundle(old: Object | None) -> bool:
    """The caBundle is often set after creation, so it must be valid only once it was."""
    if old is None or not _is_established(old):
        return True
    return has_bad_bundle(part(old, "spec", "conversion", "webhook", "clientConfig"))


def _check_reviews(causes: Causes, versions: list[Any], where: str, old: Object | None) -> None:
    if not versions:
        causes.required(where)
        return
    seen: set[str] = set()
    for index, each in enumerate(versions):
        if each in seen:
            causes.invalid(f"{where}[{index}]", each, "duplicate version")
            continue
        seen.add(each)
        if problem := dns_1035_label_problem(each):
            causes.invalid(f"{where}[{index}]", each, problem)
    before = part(old, "spec", "conversion", "webhook").get("conversionReviewVersions") or []
    was_bad = bool(before) and seen.isdisjoint(SUPPORTED) and set(before).isdisjoint(SUPPORTED)
    if seen.isdisjoint(SUPPORTED) and not was_bad:
        causes.invalid(where, versions, f"must include at least one of {', '.join(SUPPORTED)}")


def _check_change(causes: Causes, spec: Object, old: Object) -> None:
    """Keep the fields that determine the keys of stored objects and the name of the CRD."""
    before = part(old, "spec")
    names, names_before = part(spec, "names"), part(before, "names")
    if _is_established(old):
        keep(causes, spec, before, field="spec", names=("scope",))
        keep(causes, names, names_before, field="spec.names", names=("kind",))
    keep(causes, spec, before, field="spec", names=("group",))
    keep(causes, names, names_before, field="spec.names", names=("plural",))


def _check_stored(causes: Causes, new: Object) -> None:
    """Keep every stored version in the CRD: otherwise its objects could not be decoded."""
    where = "status.storedVersions"
    stored = part(new, "status").get("storedVersions") or []
    if not stored:
        causes.invalid(where, None, "must have at least one stored version")
        return
    versions = [version for _, version in listed(part(new, "spec"), "versions", "")]
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            causes.invalid(where, stored, f"must have the storage version {version.get('name')}")
    known = {version.get("name") for version in versions}
    for index, each in enumerate(stored):
        if each not in known:
            why = (
                f"missing from spec.versions; {each} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {each} and removes {each} from status.storedVersions"
            )
            causes.invalid(f"{where}[{index}]", each, why)


def _check_approval(causes: Causes, new: Object, old: Object | None) -> None:
    """Groups under k8s.io or kubernetes.io require the api-approved.kubernetes.io annotation."""
    group = part(new, "spec").get("group") or ""
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return
    text = part(new, "metadata", "annotations").get(_APPROVED) or ""
    state = _approval(text)
    if old is not None:
        before = part(old, "metadata", "annotations").get(_APPROVED) or ""
        if _approval(before) == state:
            return
    where = f"metadata.annotations[{_APPROVED}]"
    about = f'protected groups must have approval annotation "{_APPROVED}"'
    if state == "missing":
        causes.required(where, f"{about}, see {_APPROVALS_AT}")
    elif state == "invalid":
        why = f'{about} with either a URL or a reason starting with "unapproved"'
        causes.invalid(where, text, f"{why}, see {_APPROVALS_AT}")


def _approval(text: str) -> str:
    if not text:
        return "missing"
    if text.startswith("unapproved"):
        return "bypassed"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "invalid"
    return "approved" if parts.scheme and parts.netloc and text.isprintable() else "invalid"
