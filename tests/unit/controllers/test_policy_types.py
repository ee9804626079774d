"""Expressions of policies are checked with the types of the kinds that their rules name."""

from __future__ import annotations

from typing import Any

import pytest

from restow.controllers.admission_policies import PolicyController
from restow.controllers.policy_types import (
    KINDS_MAX,
    WARNINGS_BYTES_MAX,
    check,
    kinds_named,
)
from restow.registry.catalog import Catalog
from restow.storage.interface import TRANSACTION_BYTES_MAX
from tests.unit.controllers.custom import accept, define, host
from tests.unit.controllers.world import catalog, open_world

GROUP = "admissionregistration.k8s.io"
Spec = dict[str, Any]


def rule(*resources: str, group: str = "apps", version: str = "v1") -> Spec:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE"],
        "resources": list(resources),
    }


def policy(*expressions: str, rules: tuple[Spec, ...] = (), **more: Any) -> Spec:
    rules = rules or (rule("deployments"),)
    return {
        "matchConstraints": {"resourceRules": list(rules)},
        "validations": [{"expression": each} for each in expressions],
        **more,
    }


def warnings(spec: Spec, hosted: Catalog | None = None) -> list[tuple[str, str]]:
    found = [each for each in check(spec, hosted or catalog()) if each is not None]
    return [(each["fieldRef"], each["warning"]) for each in found]


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas <= 5",
        "oldObject == null || object.spec.replicas >= oldObject.spec.replicas",
        "has(object.metadata.labels) && 'a' in object.metadata.labels",
        "object.metadata.labels.app == 'web'",
        "object.metadata.namespace == request.namespace",
        "object.metadata.?annotations['x'].orValue('') == ''",
        "object.spec.template.spec.containers.all(c, c.image.startswith('x') || true) || true",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('x'))",
        "object.spec.strategy.rollingUpdate.maxSurge == 1 || object.apiVersion == 'apps/v1'",
        # A string in JSON, and another type in the schema: both are accepted.
        "timestamp(object.metadata.creationTimestamp) > timestamp('2020-01-01T00:00:00Z')",
        "object.metadata.creationTimestamp.startsWith('2')",
        "quantity(object.spec.template.spec.containers[0].resources.limits['cpu']).sign() > 0",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ],
)
def test_possibly_valid_expressions_have_no_warning(expression: str) -> None:
    """Expressions that may be valid for some object have no warning, except for unknown
    functions."""
    found = warnings(policy(expression))
    assert bool(found) == ("startswith" in expression), found


@pytest.mark.parametrize(
    ("expression", "warning_text"),
    [
        ("object.spce.replicas > 1", "undefined field 'spce'"),
        ("oldObject.spec.replica > 1", "undefined field 'replica'"),
        ("object.spec.template.spec.containers.all(c, c.img == 'x')", "undefined field 'img'"),
        ("has(object.spec.nothing)", "undefined field 'nothing'"),
        ("object.spec.replicas == 'many'", "no matching overload"),
        ("object.spec.replicas.x == 1", "does not support field selection"),
        ("object.metadata.labels.size() > '1'", "no matching overload"),
    ],
)
def test_unknown_fields_have_a_warning(expression: str, warning_text: str) -> None:
    """The warning of kube-apiserver: the kind, and the position in the expression."""
    [(place, warning)] = warnings(policy("true", expression))
    assert place == "spec.validations[1].expression"
    assert warning.startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:")
    assert warning_text in warning
    assert warning.endswith("^\n")


def test_each_kind_is_checked() -> None:
    """A warning lists all kinds that it applies to, and no others; messages are checked as well."""
    spec = policy(
        "object.spec.replicas > 1",
        rules=(rule("daemonsets", "deployments", "nothings"), rule("configmaps", group="")),
    )
    spec["validations"][0]["messageExpression"] = "string(object.data.x)"
    places = dict(warnings(spec))
    assert list(places) == [
        "spec.validations[0].expression",
        "spec.validations[0].messageExpression",
    ]
    warning_text = places["spec.validations[0].expression"]
    assert [
        line.partition(": ERROR")[0] for line in warning_text.split("\n") if "ERROR" in line
    ] == [
        "/v1, Kind=ConfigMap",
        "apps/v1, Kind=DaemonSet",
    ]
    assert "ConfigMap" not in places["spec.validations[0].messageExpression"]


def test_variables_and_parameters_have_types() -> None:
    """Variables have the type of their expression; an invalid one is reported once."""
    spec = policy(
        "variables.spec.replicas > 1 && variables.spec.nothing",
        "variables.wrong.anything == 1",
        "params.data.x == 'a' && params.dta.x == 'a'",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        variables=[
            {"name": "spec", "expression": "object.spec"},
            {"name": "wrong", "expression": "object.nonsense"},
        ],
    )
    (first, one), (second, other) = warnings(spec)
    assert (first, second) == ("spec.validations[0].expression", "spec.validations[2].expression")
    assert "undefined field 'nothing'" in one
    assert "undefined field 'dta'" in other
    spec["paramKind"] = {"apiVersion": "example.org/v1", "kind": "Unknown"}
    assert [place for place, _ in warnings(spec)] == ["spec.validations[0].expression"]


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ((rule("deployments", "deployments/scale", "*"),), 1),
        ((rule("*/*"), rule("deployments", group="*"), rule("deployments", version="*")), 0),
        ((rule("nothings"), rule("deployments", group="none.example.org")), 0),
        ((rule("deployments"), rule("deployments", "replicasets")), 2),
        ((rule(*(each.kind.plural for each in catalog() if not each.group), group=""),), KINDS_MAX),
    ],
)
def test_which_kinds_are_checked(rules: tuple[Spec, ...], count: int) -> None:
    """Kinds that rules name without wildcards, each once, and ten at most."""
    assert len(kinds_named(policy("true", rules=rules), catalog())) == count


async def test_the_status_tells() -> None:
    """With the checked generation; without warnings, the list of them is empty."""
    async with open_world() as world:
        controller = PolicyController(world.store, world.catalog, world.runtime)
        spec = {
            **policy("object.spce.replicas > 1"),
            "failurePolicy": "Fail",
        }
        match = {"matchPolicy": "Exact", "namespaceSelector": {}, "objectSelector": {}}
        spec["matchConstraints"] |= match
        kind = "ValidatingAdmissionPolicy"
        await world.create(kind, "p", group=GROUP, spec=spec)
        await controller.reconcile("p")
        found = await world.get(kind, "p", group=GROUP)
        assert found is not None
        [warning] = found["status"]["typeChecking"]["expressionWarnings"]
        assert warning["fieldRef"] == "spec.validations[0].expression"
        assert "undefined field 'spce'" in warning["warning"]
        assert found["status"]["observedGeneration"] == 1

        def correct(obj: Spec) -> None:
            obj["spec"]["validations"] = [{"expression": "object.spec.replicas > 1"}]

        await world.edit(kind, "p", correct, group=GROUP)
        await controller.reconcile("p")
        found = await world.get(kind, "p", group=GROUP)
        assert found is not None
        assert found["status"] == {"observedGeneration": 2, "typeChecking": {}}


async def test_custom_kinds_have_the_types_of_their_schema() -> None:
    """Fields that a schema leaves open have any type; metadata has that of all objects."""
    text, number = {"type": "string"}, {"type": "integer"}
    opened = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields = {
        "size": number,
        "names": {"type": "array", "items": text},
        "by": {"type": "object", "additionalProperties": number},
        "any": opened,
        "port": {"x-kubernetes-int-or-string": True},
        "since": {"type": "string", "format": "date-time"},
        "maybe": {"type": "integer", "nullable": True},
    }
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": fields}},
    }
    version = {"name": "v1", "served": True, "storage": True}
    versions = [{**version, "schema": {"openAPIV3Schema": schema}}]
    rules = (rule("sizes", "opens", group="example.com"),)
    async with open_world() as world:
        opens = await define(world, "opens", "Open")
        sizes = await define(world, "sizes", "Size", versions=versions)
        for name in (opens, sizes):
            await accept(world, name)
            await host(world, name)
        right = (
            "object.spec.size > 1 && object.spec.names.exists(n, n == 'a') && object.kind == 'x'",
            "object.spec.by.x == 1 && object.spec.any.thing.at.all && object.spec.port == 'http'",
            "object.spec.since == 'x' && object.spec.maybe == null && object.metadata.name == ''",
        )
        assert warnings(policy(*right, rules=rules), world.catalog) == []
        wrong = ("object.sepc", "object.spec.names == 1", "object.spec.size.x", "object.metadata.n")
        found = warnings(policy(*wrong, rules=rules), world.catalog)
        assert [place for place, _ in found] == [
            f"spec.validations[{number}].expression" for number in range(len(wrong))
        ]
        assert all(
            warning_text.startswith("example.com/v1, Kind=Size: ERROR") for _, warning_text in found
        )
        assert not any("Open" in warning_text for _, warning_text in found)


def _growing(expression: str, count: int) -> list[dict[str, str]]:
    """Return variables each of which refers to the previous one."""
    first = [{"name": "v0", "expression": "[object]"}]
    return first + [
        {"name": f"v{number}", "expression": expression.replace("?", f"variables.v{number - 1}")}
        for number in range(1, count)
    ]


@pytest.mark.parametrize(
    "expression", ["[?]", "{?: ?}", "{'a': ?}", "[[?, ?], [?]]", "{1: {2: ?}}"]
)
def test_types_that_grow(expression: str) -> None:
    """A nested type is known to a limited depth only: the work does not double with each variable,
    and no type is too deep for a message."""
    variables = _growing(expression, 250)
    spec = policy("variables.v249 == object.kind", "object.kin == ''", variables=variables)
    assert [(place, "undefined field 'kin'" in text) for place, text in warnings(spec)][-1] == (
        "spec.validations[1].expression",
        True,
    )


def test_warnings_are_bounded() -> None:
    """Of a long expression only the part near the error is shown, and only the first warnings."""
    wrong = " || ".join(f"object.x{number} == {number}" for number in range(40))
    long = f"object.kind == '{'a' * 90_000}' || {wrong}"
    plurals = ("configmaps", "secrets", "pods", "services", "nodes", "events", "endpoints")
    found = warnings(policy(*[long] * 20, rules=(rule(*plurals, group=""),)))
    assert found
    assert sum(len(text) for _, text in found) <= WARNINGS_BYTES_MAX
    assert "undefined field 'x0'" in found[0][1]


async def test_no_room_for_warnings() -> None:
    """A policy of maximal size gets the checked generation without warnings."""
    async with open_world() as world:
        controller = PolicyController(world.store, world.catalog, world.runtime)
        wrong = "object.x == 1"
        spec = {**policy(*[wrong] * 40), "failurePolicy": "Fail"}
        match = {"matchPolicy": "Exact", "namespaceSelector": {}, "objectSelector": {}}
        spec["matchConstraints"] |= match
        spec["validations"][0]["message"] = "x" * (TRANSACTION_BYTES_MAX - 5_000)
        kind = "ValidatingAdmissionPolicy"
        await world.create(kind, "p", group=GROUP, spec=spec)
        await controller.reconcile("p")
        found = await world.get(kind, "p", group=GROUP)
        assert found is not None
        assert found["status"] == {"observedGeneration": 1, "typeChecking": {}}
