"""Kinds for the tests of documents: built-in ones, declared ones, and one without a schema."""

from typing import Any, Final

from restow.openapi import ApiInfo, ServedKind, ServedSubresource

INFO: Final = ApiInfo(title="test", version="v1.36.0")
ALL: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
STATUS_VERBS: Final = ("get", "patch", "update")


def status(group: str, version: str, kind: str) -> ServedSubresource:
    return ServedSubresource(
        name="status", verbs=STATUS_VERBS, group=group, version=version, kind=kind
    )


def served(group: str, version: str, kind: str, **more: Any) -> ServedKind:
    """Return one kind, with all verbs by default."""
    plural = kind.lower() + "s"
    usual: dict[str, Any] = {
        "plural": plural,
        "singular": kind.lower(),
        "namespaced": True,
        "verbs": ALL,
    }
    return ServedKind(group=group, version=version, kind=kind, **{**usual, **more})


SCALE: Final = ServedSubresource(
    name="scale",
    verbs=STATUS_VERBS,
    group="autoscaling",
    version="v1",
    kind="Scale",
    type_name="io.k8s.api.autoscaling.v1.Scale",
)

CRON_TAB_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A schedule 😀.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["cron"],
            "properties": {
                "cron": {"type": "string", "pattern": "^x", "maxLength": 10, "default": "x"},
                "size": {"x-kubernetes-int-or-string": True},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "maybe": {"type": "string", "nullable": True},
                "list": {
                    "type": "array",
                    "items": {"type": "integer", "format": "int32", "minimum": 1.5},
                    "x-kubernetes-list-type": "set",
                },
                "closed": {"type": "object", "additionalProperties": False},
                "choice": {"oneOf": [{"type": "string"}, {"type": "number"}]},
                "level": {"type": "string", "enum": ["low", "high"]},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "required": ["spec"],
                    "properties": {"spec": {"type": "object"}},
                },
                "raw": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        },
    },
}

KINDS: Final = (
    served("", "v1", "ConfigMap", type_name="io.k8s.api.core.v1.ConfigMap"),
    served(
        "",
        "v1",
        "Namespace",
        namespaced=False,
        type_name="io.k8s.api.core.v1.Namespace",
        verbs=tuple(verb for verb in ALL if verb != "deletecollection"),
        subresources=(
            status("", "v1", "Namespace"),
            ServedSubresource(
                name="finalize", verbs=("update",), group="", version="v1", kind="Namespace"
            ),
        ),
    ),
    served("", "v1", "Service", type_name="io.k8s.api.core.v1.Service"),
    served(
        "",
        "v1",
        "Pod",
        type_name="io.k8s.api.core.v1.Pod",
        returns_deleted=True,
        subresources=(
            ServedSubresource(
                name="exec",
                verbs=("create", "get"),
                group="",
                version="v1",
                kind="PodExecOptions",
                type_name="io.k8s.api.core.v1.PodExecOptions",
            ),
            ServedSubresource(name="log", verbs=("get",), group="", version="v1", kind="Pod"),
        ),
    ),
    served("apps", "v1", "StatefulSet", type_name="io.k8s.api.apps.v1.StatefulSet"),
    served(
        "apps",
        "v1",
        "Deployment",
        type_name="io.k8s.api.apps.v1.Deployment",
        subresources=(status("apps", "v1", "Deployment"), SCALE),
    ),
    served(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        namespaced=False,
        verbs=("create",),
        type_name="io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    ),
    served(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        namespaced=False,
        type_name="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
        ".CustomResourceDefinition",
    ),
    served(
        "stable.example.com",
        "v1",
        "CronTab",
        schema=CRON_TAB_SCHEMA,
        list_kind="CronTabs",
        selectable=("spec.cron",),
        subresources=(status("stable.example.com", "v1", "CronTab"), SCALE),
    ),
    served("open.example.com", "v1", "Thing", namespaced=False),
    served("migration.example.com", "v1", "Lost", type_name="com.example.nowhere.v1.Lost"),
)
