"""Policies, writes and expected answers: the answers are those of kube-apiserver 1.36.4.

Each case has its own namespace, to which its binding is limited; so all can exist at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.support.api_client import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = f"{GROUP}/validatingadmissionpolicies"
BINDINGS: Final = f"{GROUP}/validatingadmissionpolicybindings"
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
SCALERS: Final = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"
DRY: Final = "?dryRun=All"


class Step(NamedTuple):
    """A write and its answer: a status, and the message after `denied request: `."""

    method: str
    target: str
    body: Any
    status: int
    message: str = ""
    content_type: str = JSON
    is_jane: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, its binding, and a sequence of writes."""

    policy: dict[str, Any]
    steps: list[Step]
    actions: list[str] = field(default_factory=lambda: ["Deny"])
    binding: dict[str, Any] = field(default_factory=dict)
    is_policy_named_alone: bool = False


def rule(**parts: Any) -> dict[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"],
        **parts,
    }


def must(expression: str, **more: Any) -> dict[str, Any]:
    return {"expression": expression, **more}


def policy(
    *validations: dict[str, Any],
    rules: list[dict[str, Any]] | None = None,
    match: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    constraints = {"resourceRules": rules or [rule()], **(match or {})}
    found = {"matchConstraints": constraints, **spec}
    return {**found, "validations": list(validations)} if validations else found


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"metadata": metadata, "data": data}


def x(value: str) -> dict[str, Any]:
    return config_map("a", x=value)


def post(body: Any, status: int, message: str = "", query: str = "", **more: Any) -> Step:
    return Step("POST", MAPS + query, body, status, message, **more)


def patch(name: str, body: Any, message: str, kind: str = MERGE_PATCH, query: str = "") -> Step:
    status = 422 if message else 200
    return Step("PATCH", f"{MAPS}/{name}{query}", body, status, message, kind)


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"a": "b"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "d"}, "spec": spec}


def scaler() -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    reference = {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}
    spec = {"maxReplicas": 3, "scaleTargetRef": reference, "metrics": [metric]}
    return {"metadata": {"name": "h"}, "spec": spec}


MAP_PARAMS: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
NO_PARAM: Final = {
    "objectSelector": {"matchExpressions": [{"key": "param", "operator": "DoesNotExist"}]}
}
PARAM: Final = {"param": "1"}


def params(action: str, **reference: Any) -> dict[str, Any]:
    return {"paramRef": {**reference, "parameterNotFoundAction": action}}


def failed(expression: str, error: str) -> str:
    return f"expression '{expression}' resulted in error: {error}"


IS_OK: Final = "object.data.x == 'ok'"
NO_PARAMS: Final = (
    "failed to configure binding: no params found for policy binding with `Deny`"
    " parameterNotFoundAction"
)

OUTCOMES: Final[dict[str, Case]] = {
    "plain": Case(
        policy(must(IS_OK)),
        [
            post(x("ok"), 201, query=DRY),
            post(x("no"), 422, f"failed expression: {IS_OK}"),
            post(config_map("b"), 422, failed(IS_OK, "no such key: data")),
            post(x("no"), 422, f"failed expression: {IS_OK}", DRY),
        ],
    ),
    "message": Case(
        policy(
            must(IS_OK, message=" say it "),
            must("object.data.x != 'no'", messageExpression="'x is ' + object.data.x"),
        ),
        [post(x("no"), 422, "say it")],
    ),
    "messages": Case(
        policy(
            must(
                IS_OK,
                messageExpression="'x is ' + object.data.x + ' in ' +"
                " namespaceObject.metadata.name + variables.v",
                message="fallback",
            ),
            variables=[{"name": "v", "expression": "'!'"}],
        ),
        [post(x("no"), 422, "x is no in messages!"), post(x("a\nb"), 422, "fallback")],
    ),
    "reasons": Case(
        policy(
            must("object.data.x != 'f'", reason="Forbidden", message="f"),
            must("object.data.x != 'i'", reason="Invalid", message="i"),
            must("object.data.x != 'l'", reason="RequestEntityTooLarge", message="l"),
        ),
        [
            post(x("f"), 403, "f"),
            post(x("i"), 422, "i"),
            post(x("l"), 413, "l"),
            post(x("g"), 201),
        ],
    ),
    "ignore": Case(
        policy(must("object.data.nope == 'a'"), must(IS_OK), failurePolicy="Ignore"),
        [post(x("ok"), 201), post(config_map("b", x="no"), 422, f"failed expression: {IS_OK}")],
    ),
    "conditions": Case(
        policy(
            must("false", message="never"),
            matchConditions=[
                {"name": "is-x", "expression": "object.data.x == 'x'"},
                {"name": "user", "expression": "request.userInfo.username == 'admin'"},
            ],
        ),
        [
            post(x("y"), 201, query=DRY),
            post(x("x"), 422, "never", DRY),
            post(config_map("b"), 422, failed("object.data.x == 'x'", "no such key: data"), DRY),
        ],
    ),
    "two-errors": Case(
        policy(
            must("true"),
            matchConditions=[
                {"name": "a", "expression": "object.data.q == 'x'"},
                {"name": "b", "expression": "object.data.r == 'x'"},
            ],
        ),
        [
            post(
                x("y"),
                422,
                "["
                + failed("object.data.q == 'x'", "no such key: q")
                + ", "
                + failed("object.data.r == 'x'", "no such key: r")
                + "]",
            )
        ],
    ),
    "variables": Case(
        policy(
            must("variables.big < 10 || variables.bad == 1"),
            variables=[
                {"name": "n", "expression": "int(object.data.x)"},
                {"name": "big", "expression": "variables.n * 2"},
                {"name": "bad", "expression": "object.data.nope"},
            ],
        ),
        [
            post(x("3"), 201, query=DRY),
            post(
                x("7"),
                422,
                failed(
                    "variables.big < 10 || variables.bad == 1",
                    'composited variable "bad" fails to evaluate: no such key: nope',
                ),
            ),
            post(
                x("abc"),
                422,
                failed(
                    "variables.big < 10 || variables.bad == 1",
                    'composited variable "big" fails to evaluate: composited variable "n" fails to'
                    " evaluate: type conversion error from 'string' to 'int'",
                ),
            ),
        ],
    ),
    "notes": Case(
        policy(auditAnnotations=[{"key": "seen", "valueExpression": "'x=' + object.data.y"}]),
        [post(x("no"), 422, failed("'x=' + object.data.y", "no such key: y"))],
    ),
    "first": Case(
        policy(must("object.data.x != 'a'", message="1"), must("object.data.x != 'a'")),
        [post(x("a"), 422, "1")],
        actions=["Deny", "Audit"],
    ),
}

WRITES: Final[dict[str, Case]] = {
    "update": Case(
        policy(
            must("oldObject == null || object.data.x == oldObject.data.x", message="immutable"),
            must("request.operation != 'UPDATE' || request.name == 'a'", message="only a"),
        ),
        [
            post(x("1"), 201),
            post(config_map("b", x="1"), 201),
            Step("PUT", f"{MAPS}/a", x("2"), 422, "immutable"),
            Step("PUT", f"{MAPS}/a", x("1"), 200),
            patch("a", {"data": {"x": "2"}}, "immutable"),
            patch("a", {"data": {"x": "2"}}, "immutable", STRATEGIC_PATCH),
            patch(
                "a", [{"op": "replace", "path": "/data/x", "value": "2"}], "immutable", JSON_PATCH
            ),
            patch("a", {"data": {"x": "2"}}, "immutable", query=DRY),
            patch("a", {"data": {"y": "2"}}, ""),
            patch("b", {"data": {"y": "2"}}, "only a"),
        ],
    ),
    "delete": Case(
        policy(
            must("oldObject.metadata.name != 'keep'", message="keep it"),
            must("object == null"),
            rules=[rule(operations=["DELETE"])],
        ),
        [
            post(config_map("keep"), 201),
            post(config_map("go"), 201),
            Step("DELETE", f"{MAPS}/keep", None, 422, "keep it"),
            Step("DELETE", f"{MAPS}/keep{DRY}", None, 422, "keep it"),
            Step("DELETE", f"{MAPS}/go", None, 200),
            Step("DELETE", f"{MAPS}?labelSelector=a%3Db", None, 200),
            Step("DELETE", MAPS, None, 422, "keep it"),
        ],
    ),
    "parts": Case(
        policy(
            must(
                "object.spec.replicas <= 2",
                messageExpression="'replicas: ' + string(object.spec.replicas)",
            ),
            rules=[rule(apiGroups=["apps"], resources=["deployments", "deployments/scale"])],
        ),
        [
            Step("POST", DEPLOYMENTS, deployment(5), 422, "replicas: 5"),
            Step("POST", DEPLOYMENTS, deployment(1), 201),
            Step(
                "PATCH",
                f"{DEPLOYMENTS}/d/scale",
                {"spec": {"replicas": 4}},
                422,
                "replicas: 4",
                MERGE_PATCH,
            ),
            Step(
                "PUT",
                f"{DEPLOYMENTS}/d/scale",
                {"metadata": {"name": "d"}, "spec": {"replicas": 4}},
                422,
                "replicas: 4",
            ),
        ],
    ),
    "status": Case(
        policy(
            must("request.subResource == 'status' && !has(object.status.replicas)", message="no"),
            must("request.kind.kind == 'Deployment'"),
            rules=[rule(apiGroups=["apps"], resources=["deployments/status"])],
        ),
        [
            Step("POST", DEPLOYMENTS, deployment(1), 201),
            Step(
                "PATCH",
                f"{DEPLOYMENTS}/d/status",
                {"status": {"replicas": 4}},
                422,
                "no",
                MERGE_PATCH,
            ),
        ],
    ),
    "names": Case(
        policy(must("false", message="named"), rules=[rule(resourceNames=["a"])]),
        [post(x("1"), 422, "named"), post(config_map("b"), 201)],
    ),
    "excluded": Case(
        policy(
            must("false", message="not excluded"),
            match={"excludeResourceRules": [rule(resourceNames=["free"])]},
        ),
        [post(config_map("free"), 201), post(x("1"), 422, "not excluded")],
    ),
    "labelled": Case(
        policy(
            must("false", message="labelled"),
            match={"objectSelector": {"matchLabels": {"a": "b"}}},
        ),
        [
            post(config_map("u"), 201),
            post(config_map("a", {"a": "b"}), 422, "labelled"),
            patch("u", {"metadata": {"labels": {"a": "b"}}}, "labelled"),
        ],
    ),
    "equivalent": Case(
        policy(
            must(
                "object.spec.targetCPUUtilizationPercentage < 50",
                messageExpression="request.kind.version + request.requestKind.version +"
                " object.apiVersion + string(object.spec.targetCPUUtilizationPercentage)",
            ),
            rules=[rule(apiGroups=["autoscaling"], resources=["horizontalpodautoscalers"])],
        ),
        [Step("POST", SCALERS, scaler(), 422, "v1v2autoscaling/v180")],
    ),
    "exact": Case(
        policy(
            must("false"),
            rules=[rule(apiGroups=["autoscaling"], resources=["horizontalpodautoscalers"])],
            match={"matchPolicy": "Exact"},
        ),
        [Step("POST", SCALERS + DRY, scaler(), 201)],
    ),
    "scope": Case(
        policy(
            must("false"),
            rules=[rule(apiGroups=["*"], apiVersions=["*"], resources=["*"], scope="Cluster")],
        ),
        [post(x("a"), 201)],
    ),
    "request": Case(
        policy(
            must(
                "false",
                messageExpression="[request.kind.version, request.kind.kind,"
                " request.resource.resource, request.name, request.namespace, request.operation,"
                " request.userInfo.username, string(request.dryRun), request.options.kind,"
                " string(has(request.subResource)), string(has(request.userInfo.extra))].join(' ')",
            ),
            rules=[rule(operations=["*"])],
            matchConditions=[{"name": "a", "expression": "request.name != 'there'"}],
        ),
        [
            post(
                x("1"),
                422,
                "v1 ConfigMap configmaps a request CREATE admin true CreateOptions false false",
                DRY,
            ),
        ],
    ),
}

PARAMS: Final[dict[str, Case]] = {
    "params": Case(
        policy(
            must(
                "params == null || object.data.x in params.data.allowed.split(',')",
                messageExpression="object.data.x + ' is none of ' + params.data.allowed",
            ),
            paramKind=MAP_PARAMS,
            match=NO_PARAM,
        ),
        [
            post(x("a"), 422, NO_PARAMS),
            post(config_map("limits", PARAM, allowed="a,b"), 201),
            post(x("a"), 201, query=DRY),
            post(x("c"), 422, "c is none of a,b"),
        ],
        binding=params("Deny", name="limits"),
    ),
    "without": Case(
        policy(must("false"), paramKind=MAP_PARAMS),
        [post(x("a"), 201)],
        binding=params("Allow", name="limits"),
    ),
    "selected": Case(
        policy(
            must("object.data.x != params.data.no", messageExpression="'not ' + params.data.no"),
            paramKind=MAP_PARAMS,
            match=NO_PARAM,
        ),
        [
            post(x("a"), 422, NO_PARAMS, DRY),
            post(config_map("p1", PARAM, no="a"), 201),
            post(config_map("p2", PARAM, no="b"), 201),
            post(x("a"), 422, "not a", DRY),
            post(x("b"), 422, "not b", DRY),
            post(x("c"), 201, query=DRY),
        ],
        binding=params("Deny", selector={"matchLabels": PARAM}),
    ),
    "unknown": Case(
        policy(
            must("true"),
            paramKind={"apiVersion": "example.com/v1", "kind": "Nope"},
            match={"namespaceSelector": {"matchLabels": {"case": "unknown"}}},
        ),
        [
            post(
                x("a"),
                422,
                "failed to configure policy: failed to find resource referenced by paramKind:"
                " 'example.com/v1, Kind=Nope'",
            )
        ],
        binding=params("Allow", name="limits"),
        is_policy_named_alone=True,
    ),
    "no-reference": Case(
        policy(must("params != null", message="none"), paramKind=MAP_PARAMS),
        [post(x("a"), 422, "none")],
    ),
    "of-cluster": Case(
        policy(must("true"), paramKind={"apiVersion": "v1", "kind": "Namespace"}),
        [
            post(
                x("a"),
                422,
                "failed to configure binding: paramRef.namespace must not be provided for a"
                " cluster-scoped `paramKind`",
            )
        ],
        binding=params("Allow", name="default", namespace="x"),
    ),
}

RIGHTS: Final[dict[str, Case]] = {
    "may": Case(
        policy(
            must(
                "authorizer.group('').resource('secrets').namespace(request.namespace)"
                ".check('get').allowed()",
                message="may not read secrets",
            ),
            must("authorizer.requestResource.check('custom').allowed()", message="no custom"),
            must(
                "!authorizer.serviceAccount('default', 'sa').group('').resource('pods')"
                ".check('get').allowed()",
                message="the account may",
            ),
        ),
        [
            post(x("y"), 201, query=DRY),
            post(x("y"), 422, "may not read secrets", DRY, is_jane=True),
        ],
    ),
    "paths": Case(
        policy(
            must("authorizer.path('/healthz').check('get').allowed()", message="no health"),
            must("authorizer.path(' ').check('get').allowed()"),
        ),
        [
            post(
                x("y"),
                422,
                failed("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
            )
        ],
    ),
    "three": Case(
        policy(must("[1, 2, 3].all(x, authorizer.path('/a').check('get').allowed())")),
        [
            post(
                x("y"),
                422,
                failed(
                    "[1, 2, 3].all(x, authorizer.path('/a').check('get').allowed())",
                    "operation cancelled: actual cost limit exceeded",
                ),
            )
        ],
    ),
}
