"""CRDs in a world, with helpers for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.registry.custom.crds import definition_key, read_definition
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.resource import Resource
from restow.registry.store import DeleteOptions
from tests.unit.controllers.world import Object, World

GROUP = "example.com"
DEFINITIONS = "apiextensions.k8s.io"
DEFINITION = "CustomResourceDefinition"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


async def define(
    world: World,
    plural: str,
    kind: str,
    *,
    group: str = GROUP,
    scope: str = "Namespaced",
    names: Object | None = None,
    metadata: Object | None = None,
    **spec: Any,
) -> str:
    """Create a CRD; return its name."""
    name = f"{plural}.{group}"
    # As a server does before it stores an object: fill in what follows from the kind.
    filled = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    version = {"name": "v1", "served": True, "storage": True}
    await world.create(
        DEFINITION,
        name,
        group=DEFINITIONS,
        metadata=metadata or {},
        spec={
            "group": group,
            "scope": scope,
            "names": {**filled, **(names or {})},
            "versions": [{**version, "schema": {"openAPIV3Schema": ANYTHING}}],
            "conversion": {"strategy": "None"},
            **spec,
        },
    )
    return name


async def definition(world: World, name: str) -> Object:
    found = await world.get(DEFINITION, name, group=DEFINITIONS)
    assert found is not None
    return found


async def is_defined(world: World, name: str) -> bool:
    return await world.has(DEFINITION, name, group=DEFINITIONS)


async def conditions(world: World, name: str) -> dict[str, tuple[str, str]]:
    """Return the status and reason of each condition."""
    status = (await definition(world, name))["status"]
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


async def accepted_names(world: World, name: str) -> Object:
    found: Object = (await definition(world, name))["status"]["acceptedNames"]
    return found


async def edit_names(world: World, name: str, **names: Any) -> None:
    """Change the requested names."""

    def change(obj: Object) -> None:
        obj["spec"]["names"].update(names)

    await world.edit(DEFINITION, name, change, group=DEFINITIONS)


async def undefine(world: World, name: str) -> None:
    await world.delete(DEFINITION, name, group=DEFINITIONS)


async def accept(world: World, name: str) -> None:
    """Write the status that the controller writes for a CRD without conflicts."""

    def change(obj: Object) -> Object:
        obj["status"]["acceptedNames"] = obj["spec"]["names"]
        obj["status"]["conditions"] = [
            {"type": each, "status": "True", "reason": "Test", "message": "", **_MOMENT}
            for each in ("NamesAccepted", "Established")
        ]
        return obj

    await _update_status(world, name, change)


async def host(world: World, name: str) -> Resource:
    """Host the resource of a CRD, as the server does that follows CRDs."""
    item = await world.storage.get(definition_key(name))
    assert item is not None
    resource = custom_resource(read_definition(item))
    world.catalog.host(resource)
    return resource


async def widgets(world: World, *, scope: str = "Namespaced", is_hosted: bool = True) -> str:
    """Create a CRD of widgets, accepted and established."""
    name = await define(world, "widgets", "Widget", scope=scope)
    await accept(world, name)
    if is_hosted:
        await host(world, name)
    return name


async def make(
    world: World, name: str, namespace: str = "n", *, kind: str = "Widget", **metadata: Any
) -> Object:
    """Create a custom resource."""
    return await world.create(kind, name, namespace, group=GROUP, metadata=metadata)


async def release(world: World, path: str, kind: str = "Widget") -> None:
    """Remove the finalizers from a custom resource."""

    def change(obj: Object) -> None:
        obj["metadata"]["finalizers"] = []

    await world.edit(kind, path, change, group=GROUP)


async def delete(world: World, path: str, *, kind: str = "Widget", policy: str = "") -> None:
    await world.delete(kind, path, group=GROUP, requested=DeleteOptions(policy=policy))


_MOMENT = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


async def _update_status(world: World, name: str, change: Callable[[Object], Object]) -> None:
    resource = world.kind(DEFINITION, DEFINITIONS)
    await world.store.update(resource, "v1", name, change, subresource="status", is_patch=True)
