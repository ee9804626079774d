"""A main server with all its parts and an aggregated API, from the clients' view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from restow.apimachinery.status import NotFound, ServiceUnavailable
from restow.client import ApiClient, read_kubeconfig
from tests.conformance.aggregation.joined.joining import (
    API_NAME,
    NAMESPACES,
    NOTES,
    Joined,
    joined,
)

HOLD = "example.com/hold"


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    listed = (found.get("status") or {}).get("conditions") or []
    return {**([{}] + [each for each in listed if each["type"] == kind])[-1]}


async def delete_namespace(made: Joined, name: str) -> None:
    await made.api.delete(NAMESPACES, name)


async def gone(made: Joined, name: str) -> None:
    async def read() -> bool:
        try:
            await made.api.get(NAMESPACES, name)
        except NotFound:
            return True
        return False

    await made.until(bool, read)


async def says(made: Joined, name: str, kind: str) -> dict[str, Any]:
    """Return a condition of a namespace, once it has this status."""

    async def read() -> dict[str, Any]:
        return condition(await made.api.get(NAMESPACES, name), kind)

    return dict(await made.until(lambda each: each.get("status") == "True", read))


async def test_all_groups_of_a_user_arrive(tmp_path: Path) -> None:
    """All groups of the administrator are forwarded, for a token and for a certificate."""
    async with joined(tmp_path) as made:
        for context in ("restow", "restow-certificate"):
            config = read_kubeconfig([made.kubeconfig], context=context)
            made.backend.asked.clear()
            async with ApiClient.connect(config, runtime=made.api.runtime) as api:
                await api.list_page(NOTES, namespace="default")
            [asked] = [each for each in made.backend.asked if "namespaces" in each.target]
            assert asked.all("X-Remote-User") == ["restow-admin"]
            assert asked.all("X-Remote-Group") == ["system:masters", "system:authenticated"]


async def test_a_failed_request_detects_a_crashed_server(tmp_path: Path) -> None:
    """One failed request suffices: the APIService and the metrics report it as unavailable."""
    async with joined(tmp_path) as made:
        line = f'aggregator_unavailable_apiservice{{name="{API_NAME}"}}'
        assert f"{line} 0.0" in await made.api.text("/metrics")
        await made.backend.stop()
        with pytest.raises(ServiceUnavailable):
            await made.api.list_page(NOTES, namespace="default")
        found = await made.available("False")
        assert found["reason"] == "FailedDiscoveryCheck"
        assert f"{line} 1.0" in await made.api.text("/metrics")
        await made.backend.listen()
        await made.available("True")


async def test_aggregated_objects_are_deleted_with_their_namespace(tmp_path: Path) -> None:
    """Objects of an aggregated API are deleted with their namespace, which waits for those with
    finalizers; other objects stay."""
    async with joined(tmp_path) as made:
        for name in ("gone", "stays"):
            await made.api.create(NAMESPACES, {"metadata": {"name": name}})
            made.notes.add(name, "free")
        made.notes.add("gone", "held", HOLD)
        await delete_namespace(made, "gone")
        assert "notes.samples.example.com has 1 resource instances" in str(
            (await says(made, "gone", "NamespaceContentRemaining"))["message"]
        )
        held = await says(made, "gone", "NamespaceFinalizersRemaining")
        assert f"{HOLD} in 1 resource instances" in held["message"]
        assert set(made.notes.objects) == {("gone", "held"), ("stays", "free")}
        [first, *_] = [each for each in made.backend.asked if each.method == "DELETE"]
        controller = "system:serviceaccount:kube-system:namespace-controller"
        assert first.all("X-Remote-User") == [controller]
        del made.notes.objects["gone", "held"]
        await made.api.patch(NAMESPACES, "gone", {"metadata": {"labels": {"looked-at": "again"}}})
        await gone(made, "gone")


async def test_a_namespace_waits_for_an_unavailable_server(tmp_path: Path) -> None:
    """With a stopped backend the namespace stays and reports why; afterwards it is deleted."""
    async with joined(tmp_path) as made:
        await made.api.create(NAMESPACES, {"metadata": {"name": "gone"}})
        made.notes.add("gone", "free")
        made.notes.verbs = ("create", "delete", "get", "list")  # so objects are deleted one by one
        await made.backend.stop()  # not detected yet
        await delete_namespace(made, "gone")
        found = await says(made, "gone", "NamespaceDeletionDiscoveryFailure")
        assert found["reason"] == "DiscoveryFailed"
        assert found["message"].startswith(
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of"
            " server APIs: samples.example.com/v1: FailedDiscoveryCheck: "
        )
        assert made.notes.objects
        await made.backend.listen()
        await gone(made, "gone")
        assert not made.notes.objects
