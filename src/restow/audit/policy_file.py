"""Parses policy files: an audit.k8s.io/v1 Policy in YAML or JSON.

Errors name the path of the invalid field. Unknown fields are errors, because a misspelt rule would
have no effect.

Not here: the matching of rules (`policy`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from restow.apimachinery import yaml_codec
from restow.apimachinery.name_formats import subdomain_problem
from restow.apimachinery.status_error import StatusError
from restow.audit.policy import (
    LEVELS,
    NONE,
    STAGES,
    AuditDecision,
    AuditPolicy,
    AuditPolicyRule,
    GroupResources,
)
from restow.storage.private_files import FileExposed, read_kept

FILE_BYTES_MAX: Final = 256 * 1024
RULES_MAX: Final = 1_000
API_VERSION: Final = "audit.k8s.io/v1"

_POLICY_FIELDS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
)
_RULE_FIELDS: Final = frozenset(
    {
        *("level", "users", "userGroups", "verbs", "resources", "namespaces"),
        *("nonResourceURLs", "omitStages", "omitManagedFields"),
    }
)
_RESOURCES_FIELDS: Final = frozenset({"group", "resources", "resourceNames"})


class PolicyError(ValueError):
    """A policy file is invalid. The message has the field path and the reason."""


def read_policy(path: Path) -> AuditPolicy:
    """Read a policy file. Raises PolicyError with the name of the file."""
    try:
        text = read_kept(path, bytes_max=FILE_BYTES_MAX)
    except FileExposed as error:
        raise PolicyError(f"--audit-policy-file: {error}") from error
    except OSError as error:
        raise PolicyError(f"--audit-policy-file {path}: {error.strerror or error}") from error
    try:
        return parse_policy(text)
    except PolicyError as error:
        raise PolicyError(f"--audit-policy-file {path}: {error}") from error


def parse_policy(text: bytes) -> AuditPolicy:
    """Parse a policy. Raises PolicyError."""
    try:
        decoded = yaml_codec.decode(text, size_max=FILE_BYTES_MAX)
    except StatusError as error:
        raise PolicyError(error.message) from error
    if decoded.duplicates:
        raise PolicyError(f"{decoded.duplicates[0]}: duplicate field")
    document = decoded.value
    given = (document.get("apiVersion"), document.get("kind"))
    if given != (API_VERSION, "Policy"):
        raise PolicyError(f"apiVersion, kind: must be {API_VERSION}, Policy")
    _check_fields(document, _POLICY_FIELDS, "")
    omitted = _stages(document, "omitStages", "")
    omits_managed = _flag(document, "omitManagedFields", "") or False
    rules = document.get("rules")
    if not isinstance(rules, list) or not rules:
        raise PolicyError("rules: must be a list with at least one rule")
    if len(rules) > RULES_MAX:
        raise PolicyError(f"rules: more than {RULES_MAX}")
    found = [_rule(rule, f"rules[{n}]", omitted, omits_managed) for n, rule in enumerate(rules)]
    otherwise = AuditDecision(level=NONE, omitted=omitted, omits_managed_fields=omits_managed)
    return AuditPolicy(tuple(found), otherwise)


def _rule(rule: Any, where: str, omitted: frozenset[str], omits_managed: bool) -> AuditPolicyRule:  # noqa: FBT001
    if not isinstance(rule, dict):
        raise PolicyError(f"{where}: must be an object")
    _check_fields(rule, _RULE_FIELDS, f"{where}.")
    level = rule.get("level")
    # In YAML, a bare None is a string; but people write null or omit the value.
    if not isinstance(level, str) or level not in LEVELS:
        raise PolicyError(f"{where}.level: must be one of {', '.join(LEVELS)}")
    paths = _strings(rule, "nonResourceURLs", where)
    for number, path in enumerate(paths):
        _check_path(path, f"{where}.nonResourceURLs[{number}]")
    namespaces = _strings(rule, "namespaces", where)
    resources = _resources(rule, where)
    if paths and (resources or namespaces):
        raise PolicyError(
            f"{where}.nonResourceURLs: rules cannot apply to both regular resources and"
            " non-resource URLs"
        )
    own = _flag(rule, "omitManagedFields", f"{where}.")
    return AuditPolicyRule(
        decision=AuditDecision(
            level=LEVELS[level],
            omitted=omitted | _stages(rule, "omitStages", f"{where}."),
            omits_managed_fields=omits_managed if own is None else own,
        ),
        users=frozenset(_strings(rule, "users", where)),
        groups=frozenset(_strings(rule, "userGroups", where)),
        verbs=frozenset(_strings(rule, "verbs", where)),
        resources=resources,
        namespaces=frozenset(namespaces),
        paths=tuple(paths),
    )


def _resources(rule: dict[str, Any], where: str) -> tuple[GroupResources, ...]:
    found = []
    for number, each in enumerate(_list(rule, "resources", where)):
        path_prefix = f"{where}.resources[{number}]"
        if not isinstance(each, dict):
            raise PolicyError(f"{path_prefix}: must be an object")
        _check_fields(each, _RESOURCES_FIELDS, f"{path_prefix}.")
        group = each.get("group") or ""
        if not isinstance(group, str) or (group not in ("", "*") and subdomain_problem(group)):
            raise PolicyError(
                f"{path_prefix}.group: must be the name of an API group, without a version"
            )
        resources, names = (
            _strings(each, "resources", path_prefix),
            _strings(each, "resourceNames", path_prefix),
        )
        if names and not resources:
            raise PolicyError(
                f"{path_prefix}.resourceNames: using resourceNames requires at least one resource"
            )
        found.append(
            GroupResources(group=group, resources=tuple(resources), names=frozenset(names))
        )
    return tuple(found)


def _check_path(path: str, where: str) -> None:
    if path == "*":
        return
    if not path.startswith("/"):
        raise PolicyError(f"{where}: non-resource URL rules must begin with a '/' character")
    if "*" in path[:-1]:
        raise PolicyError(
            f"{where}: non-resource URL wildcards '*' must be the final character of the rule"
        )


def _check_fields(value: dict[str, Any], known: frozenset[str], prefix: str) -> None:
    for name in value:
        if name not in known:
            raise PolicyError(f"{prefix}{str(name)[:64]}: unknown field")


def _stages(value: dict[str, Any], name: str, prefix: str) -> frozenset[str]:
    found = _strings(value, name, prefix.removesuffix("."))
    for number, stage in enumerate(found):
        if stage not in STAGES:
            raise PolicyError(f"{prefix}{name}[{number}]: allowed stages are {', '.join(STAGES)}")
    return frozenset(found)


def _flag(value: dict[str, Any], name: str, prefix: str) -> bool | None:
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise PolicyError(f"{prefix}{name}: must be true or false")
    return found


def _strings(value: dict[str, Any], name: str, where: str) -> list[str]:
    found = _list(value, name, where)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            path = f"{where}.{name}" if where else name
            raise PolicyError(f"{path}[{number}]: must be a string")
    return found


def _list(value: dict[str, Any], name: str, where: str) -> list[Any]:
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise PolicyError(f"{where}.{name}: must be a list" if where else f"{name}: must be a list")
    return found
