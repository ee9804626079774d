"""Updates of objects by controllers, in the storage version; deleted objects are ignored."""

from __future__ import annotations

from restow.apimachinery import status
from restow.controllers.object_keys import working_version
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.registry.write_planner import Change
from restow.registry.write_plans import Written


async def update_if_present(
    store: ResourceStore, resource: Resource, path: str, change: Change, *, subresource: str = ""
) -> Written | None:
    """Change an object as a patch does; return None if it was deleted."""
    version = working_version(resource)
    try:
        return await store.update(
            resource, version, path, change, subresource=subresource, is_patch=True
        )
    except status.NotFound:
        return None
