"""Updates of objects by controllers: in the version that is stored, and not of what is gone."""

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
    """Change an object as a patch does; None when it is gone, as its deletion will be seen."""
    version = working_version(resource)
    try:
        return await store.update(
            resource, version, path, change, subresource=subresource, is_patch=True
        )
    except status.NotFound:
        return None
