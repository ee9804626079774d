"""A family modelled on a workflow engine: deep, and larger than all others together.

Templates hold pod-like specs, steps of steps and free-form parameters. The schema is generated, as
are real ones. A structural schema cannot be recursive, so it is unrolled to a depth.
"""

from __future__ import annotations

from typing import Any, Final

from tests.crds.building import (
    AGE,
    ANYTHING,
    INT_OR_STRING,
    Family,
    Json,
    Maker,
    array,
    boolean,
    column,
    definition,
    integer,
    list_map,
    mapping,
    struct,
    text,
    version,
)

GROUP: Final = "workflows.example.net"
NESTING: Final = 3
"""How deeply templates may be nested."""
_PHASES: Final = ["Pending", "Running", "Succeeded", "Skipped", "Failed", "Error"]


def families(group: str = GROUP) -> list[Family]:
    return [workflow(group), workflow_template(group)]


def workflow(group: str = GROUP) -> Family:
    """Deep, large, with a status that is an ordinary field instead of a subresource."""
    make = Maker(group, "v1alpha1", "Workflow")
    container = {
        "name": "main",
        "image": "registry.example.net/tools:7",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
    }
    good = make.good(
        "hello",
        {
            "entrypoint": "main",
            "arguments": {"parameters": [{"name": "n", "value": 3}, {"name": "s", "value": "x"}]},
            "templates": [
                {
                    "name": "main",
                    "container": container,
                    "plugin": {"deep": {"er": [1, {"est": True}]}},
                    "steps": [[{"name": "one", "template": "main"}]],
                },
            ],
        },
    )
    make.refuse(
        "nested-type",
        {"templates": [{"name": "a", "container": container | {"image": ["a"]}}]},
        (
            "spec.templates[0].container.image",
            "FieldValueTypeInvalid",
            'spec.templates[0].container.image in body must be of type string: "array"',
        ),
    )
    make.refuse(
        "no-name",
        {"templates": [{"name": "a", "steps": [[{"template": "b"}]]}]},
        ("spec.templates[0].steps[0][0].name", "FieldValueRequired", "Required value"),
    )
    make.refuse(
        "same-port",
        {
            "templates": [
                {
                    "name": "a",
                    "container": container
                    | {"ports": [{"containerPort": 80}, {"containerPort": 80}]},
                }
            ]
        },
        (
            "spec.templates[0].container.ports[1]",
            "FieldValueDuplicate",
            'Duplicate value: {"containerPort":80,"protocol":"TCP"}',
        ),
    )
    made = definition(
        group,
        "Workflow",
        [
            version(
                "v1alpha1",
                struct(
                    {
                        "spec": _workflow_spec(),
                        "status": struct(
                            {
                                "phase": text(enum=_PHASES),
                                "nodes": mapping(_node()),
                                "finishedAt": text(format="date-time", nullable=True),
                            },
                            **ANYTHING,
                        ),
                    },
                    "metadata",
                    "spec",
                ),
                columns=[
                    column("Status", ".status.phase"),
                    AGE,
                    column("Message", ".status.message", priority=1),
                ],
            )
        ],
        names={"shortNames": ["wf"], "categories": ["workflows"]},
    )
    return Family(definition=made, good=(good,), bad=tuple(make.bad))


def workflow_template(group: str = GROUP) -> Family:
    """Complete objects inside an object, preserved unchanged."""
    make = Maker(group, "v1alpha1", "WorkflowTemplate")
    made = definition(
        group,
        "WorkflowTemplate",
        [
            version(
                "v1alpha1",
                struct(
                    {
                        "spec": struct(
                            {
                                "manifests": array(
                                    struct(**{"x-kubernetes-embedded-resource": True}, **ANYTHING)
                                ),
                                "podTemplate": struct(
                                    {"spec": _pod_spec(NESTING)},
                                    **{"x-kubernetes-embedded-resource": True},
                                ),
                            }
                        )
                    },
                    "spec",
                ),
            )
        ],
        names={"shortNames": ["wftmpl"]},
    )
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"app": "b"}},
        "data": {"k": "v"},
    }
    good = make.good("with-manifest", {"manifests": [manifest]})
    make.refuse(
        "no-kind",
        {"manifests": [{"apiVersion": "v1", "metadata": {"name": "a"}}]},
        ("spec.manifests[0].kind", "FieldValueRequired", "Required value"),
    )
    make.refuse(
        "bad-label",
        {"manifests": [manifest | {"metadata": {"name": "a", "labels": {"-": "b"}}}]},
        ("spec.manifests[0].metadata.labels", "FieldValueInvalid", 'Invalid value: "-"'),
    )
    return Family(definition=made, good=(good,), bad=tuple(make.bad))


def _workflow_spec() -> Json:
    return struct(
        {
            "entrypoint": text("Where it begins."),
            "arguments": _arguments(),
            "serviceAccountName": text(),
            "parallelism": integer(format="int64", minimum=1),
            "priority": integer(format="int32", nullable=True),
            "suspend": boolean(default=False),
            "activeDeadlineSeconds": dict(INT_OR_STRING),
            "volumes": list_map(_volume(), "name"),
            "affinity": _affinity(),
            "tolerations": array(_toleration()),
            "templates": list_map(_template(NESTING), "name"),
            "templateDefaults": _template(NESTING - 1),
            "onExit": text(),
            "ttlStrategy": struct(
                {f"secondsAfter{when}": integer() for when in ("Completion", "Success", "Failure")}
            ),
        }
    )


def _template(depth: int) -> Json:
    properties: dict[str, Any] = {
        "name": text(maxLength=128),
        "inputs": _arguments(),
        "outputs": _arguments(),
        "container": _container(depth),
        "initContainers": array(_container(depth)),
        "sidecars": array(_container(depth)),
        "script": _container(depth),
        "podSpec": _pod_spec(depth),
        "plugin": struct(**ANYTHING),
        "retryStrategy": struct(
            {
                "limit": dict(INT_OR_STRING),
                "backoff": struct(
                    {"duration": text(), "factor": dict(INT_OR_STRING), "maxDuration": text()}
                ),
            }
        ),
        "steps": array(array(_step(depth))),
        "dag": struct({"tasks": list_map(_step(depth), "name"), "failFast": boolean()}, "tasks"),
    }
    return struct(properties, "name")


def _step(depth: int) -> Json:
    properties: dict[str, Any] = {
        "name": text(),
        "template": text(),
        "when": text(),
        "dependencies": array(text()),
        "arguments": _arguments(),
        "withItems": array(dict(ANYTHING)),
    }
    if depth > 1:
        properties["inline"] = _template(depth - 1)
    else:
        properties["inline"] = struct(**ANYTHING)
    return struct(properties, "name")


def _arguments() -> Json:
    parameter = struct(
        {
            "name": text(),
            "value": dict(ANYTHING),
            "enum": array(text()),
            "valueFrom": struct({"expression": text(), "path": text(), "default": text()}),
        },
        "name",
    )
    artifact = struct(
        {
            "name": text(),
            "path": text(),
            "mode": integer(format="int32", minimum=0, maximum=511),
            "s3": struct({"bucket": text(), "key": text(), "insecure": boolean()}),
            "raw": struct({"data": text()}, "data"),
        },
        "name",
    )
    return struct({"parameters": list_map(parameter, "name"), "artifacts": array(artifact)})


def _pod_spec(depth: int) -> Json:
    return struct(
        {
            "containers": list_map(_container(depth), "name"),
            "nodeSelector": mapping(text()),
            "affinity": _affinity(),
            "volumes": list_map(_volume(), "name"),
            "tolerations": array(_toleration()),
            "restartPolicy": text(enum=["Always", "OnFailure", "Never"]),
        }
    )


def _container(depth: int) -> Json:
    probe = struct(
        {
            "httpGet": struct({"path": text(), "port": dict(INT_OR_STRING)}, "port"),
            "exec": struct({"command": array(text(), **{"x-kubernetes-list-type": "atomic"})}),
            "periodSeconds": integer(format="int32", minimum=1),
        },
        description=f"How it is known to be well. {'So much is said of it. ' * depth}",
    )
    env = struct(
        {
            "name": text(),
            "value": text(),
            "valueFrom": struct(
                {
                    f"{kind}KeyRef": struct({"name": text(), "key": text()}, "key")
                    for kind in ("secret", "configMap")
                }
            ),
        },
        "name",
    )
    port = struct(
        {
            "containerPort": integer(format="int32", minimum=1, maximum=65535),
            "protocol": text(default="TCP", enum=["TCP", "UDP", "SCTP"]),
            "name": text(),
        },
        "containerPort",
    )
    return struct(
        {
            "name": text(),
            "image": text("What it runs."),
            "command": array(text()),
            "args": array(text()),
            "env": list_map(env, "name"),
            "ports": list_map(port, "containerPort", "protocol"),
            "resources": struct(
                {name: mapping(dict(INT_OR_STRING)) for name in ("limits", "requests")}
            ),
            "livenessProbe": probe,
            "readinessProbe": probe,
            "startupProbe": probe,
            "lifecycle": struct({"postStart": probe, "preStop": probe}),
            "volumeMounts": list_map(
                struct(
                    {"name": text(), "mountPath": text(), "readOnly": boolean()},
                    "name",
                    "mountPath",
                ),
                "mountPath",
            ),
            "securityContext": struct({"runAsUser": integer(), "privileged": boolean()}),
        },
        "name",
    )


def _affinity() -> Json:
    expression = struct(
        {"key": text(), "operator": text(), "values": array(text())}, "key", "operator"
    )
    term = struct({"matchExpressions": array(expression), "matchFields": array(expression)})
    selector = struct({"matchExpressions": array(expression), "matchLabels": mapping(text())})
    pods = struct({"labelSelector": selector, "topologyKey": text()}, "topologyKey")
    weighted = array(
        struct({"weight": integer(minimum=1, maximum=100), "podAffinityTerm": pods}, "weight")
    )
    return struct(
        {
            "nodeAffinity": struct({"required": struct({"nodeSelectorTerms": array(term)})}),
            "podAffinity": struct({"preferred": weighted, "required": array(pods)}),
            "podAntiAffinity": struct({"preferred": weighted, "required": array(pods)}),
        }
    )


def _volume() -> Json:
    items = array(struct({"key": text(), "path": text(), "mode": integer()}, "key", "path"))
    kinds = ("configMap", "secret", "projected", "downward", "persistent", "ephemeral")
    sources = {kind: struct({"name": text(), "items": items}) for kind in kinds}
    return struct({"name": text(), "emptyDir": struct(), **sources}, "name")


def _toleration() -> Json:
    return struct({name: text() for name in ("key", "operator", "value", "effect")})


def _node() -> Json:
    return struct(
        {
            "id": text(),
            "phase": text(enum=_PHASES),
            "children": array(text()),
            "inputs": _arguments(),
            "outputs": _arguments(),
        },
        "id",
    )
