"""Admission policies for custom resources, with custom parameters, on a server of its own."""

from __future__ import annotations

from typing import Any

from tests.conformance.custom.servers import Custom, until
from tests.crds.building import Family, definition, integer, struct, version
from tests.support.api_client import ApiClient

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"


def limited(group: str) -> dict[str, Any]:
    """Limits the replicas of widgets; the rule names only the older version."""
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["widgets", "widgets/status"],
    }
    told = "request.kind.version + request.requestKind.version + ' ' + string(params.most)"
    return {
        "paramKind": {"apiVersion": f"{group}/v1", "kind": "Limit"},
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [
            {
                "expression": "object.spec.n <= params.most && object.apiVersion.endsWith('/v1')",
                "messageExpression": told,
            }
        ],
    }


async def test_custom_kinds_and_parameters(group: str, custom: Custom, api: ApiClient) -> None:
    """An object written in another version is converted to the rule's; a changed limit applies."""
    schema = struct({"spec": struct({"n": integer()})})
    versions = [version("v2", schema), version("v1", schema, storage=False)]
    widgets = await custom.use(Family(definition=definition(group, "Widget", versions)))
    limits = await custom.use(
        Family(
            definition=definition(
                group, "Limit", [version("v1", struct({"most": integer()}))], scope="Cluster"
            )
        )
    )
    limit = {"apiVersion": f"{group}/v1", "kind": "Limit", "metadata": {"name": "l"}, "most": 2}
    assert (await api.post(limits.path(), limit)).status == 201
    name = f"p.{group}"
    made = await api.post(POLICIES, {"metadata": {"name": name}, "spec": limited(group)})
    assert made.status == 201, made.body
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "paramRef": {"name": "l", "parameterNotFoundAction": "Deny"},
    }
    made = await api.post(BINDINGS, {"metadata": {"name": name}, "spec": bound})
    assert made.status == 201, made.body

    def widget(n: int) -> dict[str, Any]:
        kind = {"apiVersion": f"{group}/v2", "kind": "Widget"}
        return {**kind, "metadata": {"name": "w"}, "spec": {"n": n}}

    dry = f"{widgets.path()}?dryRun=All"

    await until(lambda: api.post(dry, widget(3)), lambda found: found.status == 422)
    reply = await api.post(widgets.path(), widget(3))
    assert reply.message.endswith("denied request: v1v2 2")
    assert (await api.post(widgets.path(), widget(2))).status == 201
    patched = await api.patch(widgets.path("w"), {"spec": {"n": 3}})
    assert (patched.status, patched.reason) == (422, "Invalid")
    assert (await api.patch(limits.path("l"), {"most": 3})).status == 200
    await until(
        lambda: api.patch(widgets.path("w"), {"spec": {"n": 3}}),
        lambda found: found.status == 200,
    )
    await until(
        lambda: api.get(f"{POLICIES}/{name}"),
        lambda found: found.json.get("status", {}).get("observedGeneration") == 1,
    )
    checked = (await api.get(f"{POLICIES}/{name}")).json["status"]["typeChecking"]
    assert checked == {}  # both kinds are custom, with typed fields
    wrong = {"validations": [{"expression": "object.spec.nothing == params.most"}]}
    assert (await api.patch(f"{POLICIES}/{name}", {"spec": wrong})).status == 200
    stored = await until(
        lambda: api.get(f"{POLICIES}/{name}"),
        lambda found: found.json["status"].get("observedGeneration") == 2,
    )
    [warning] = stored.json["status"]["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert f"{group}/v1, Kind=Widget: ERROR: <input>:1:12: undefined field" in warning["warning"]
    assert (await api.delete(f"{BINDINGS}/{name}")).status == 200
    assert (await api.delete(f"{POLICIES}/{name}")).status == 200
