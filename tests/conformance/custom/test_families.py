"""CRDs modelled on well-known ones: valid objects, invalid objects, and the causes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson
import pytest

from tests.conformance.custom.servers import Custom, causes
from tests.crds import certificates, gateways, small, workflows
from tests.crds.building import Family, Json
from tests.support.api_client import ApiClient

LARGE_BYTES: Final = 300_000
MAKERS: Final[dict[str, Callable[[str], Family]]] = {
    "certificate": certificates.certificate,
    "request": certificates.request,
    "issuer": lambda group: certificates.issuer(group, "Issuer", scope="Namespaced"),
    "cluster-issuer": lambda group: certificates.issuer(group, "ClusterIssuer", scope="Cluster"),
    "order": certificates.order,
    "challenge": certificates.challenge,
    "workflow": workflows.workflow,
    "workflow-template": workflows.workflow_template,
    "gateway": gateways.gateway,
    "http-route": gateways.http_route,
    "minimal": small.minimal,
    "widget": small.widget,
    "scalable": small.scalable,
    "cluster-wide": small.cluster_wide,
    "old": small.old,
}


@pytest.mark.parametrize("name", MAKERS)
async def test_family(name: str, group: str, custom: Custom, api: ApiClient) -> None:
    """Valid objects are stored with every value; invalid ones are refused with all causes."""
    family = await custom.use(MAKERS[name](group))
    for obj in family.good:
        made = await custom.create(family, obj)
        assert (made["metadata"]["generation"], made["metadata"]["uid"] != "") == (1, True)
        assert within(obj, made)
        read = await api.get(family.path(obj["metadata"]["name"]))
        assert read.json == made
    for refused in family.bad:
        reply = await api.post(family.path(), refused.obj)
        assert (reply.status, reply.reason) == (422, "Invalid"), (refused.name, reply.body)
        found = causes(reply)
        assert [(field, reason) for field, reason, _ in found] == sorted(
            (each.field, each.reason) for each in refused.causes
        ), (refused.name, found)
        for each in refused.causes:
            assert any(
                field == each.field and each.message in message for field, _, message in found
            ), (refused.name, each, found)
        assert reply.json["details"]["kind"] == family.kind
        assert reply.json["details"]["group"] == group
        start = f'{family.kind}.{group} "{refused.obj["metadata"]["name"]}" is invalid: '
        assert reply.message.startswith(start)


def within(part: object, whole: object) -> bool:
    """Returns whether all values of `part` are in `whole`, except nulls, which may be dropped."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            value is None or (key in whole and within(value, whole[key]))
            for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(part) == len(whole)
            and all(within(one, other) for one, other in zip(part, whole, strict=True))
        )
    return part == whole


async def test_whole_family_in_one_group(group: str, custom: Custom, api: ApiClient) -> None:
    """Kinds of one group are served side by side, in one discovery document."""
    families = certificates.families(group)
    for family in families:
        await custom.use(family)
    found = (await api.get(f"/apis/{group}/v1")).json
    listed = {each["name"] for each in found["resources"]}
    wanted = {family.plural for family in families}
    assert listed == wanted | {f"{plural}/status" for plural in wanted}


async def test_large_definition(group: str, custom: Custom, api: ApiClient) -> None:
    """A schema of hundreds of kilobytes is stored completely, and its nested defaults apply."""
    family = workflows.workflow(group)
    assert len(orjson.dumps(family.definition)) > LARGE_BYTES
    found = await custom.define(family.definition)
    kept = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert kept == family.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    port: Json = {"containerPort": 80}
    step = {
        "name": "s",
        "inline": {"name": "i", "container": {"name": "c", "ports": [port]}, "gone": 1},
    }
    spec = {"templates": [{"name": "t", "steps": [[step]]}]}
    made = await custom.create(family, family.good[0] | {"spec": spec})
    inner = made["spec"]["templates"][0]["steps"][0][0]["inline"]
    assert inner == {
        "name": "i",
        "container": {"name": "c", "ports": [port | {"protocol": "TCP"}]},
    }
