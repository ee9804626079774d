"""`status.storedVersions` of a CustomResourceDefinition: what it may be stored in, after a proof.

    at the start      the definition's uid, generation and storage version are noted
    after the proof   if uid and generation are as noted, storedVersions becomes the storage version

The write is of a definition that was just read, on condition that it has not changed since. After a
failure nothing is trimmed: objects may be left that nothing else tells of.

Not here: what a proof is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.status import Conflict, NotFound
from restow.apis.resources import DEFINITIONS
from restow.client import ApiClient, ApiResource, Object, uid_of
from restow.migration.migration_objects import mapping, text

ATTEMPTS_MAX: Final = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdSnapshot:
    """The definition of a custom resource, as it was noted."""

    name: str
    uid: str
    generation: int
    storage_version: str

    @property
    def is_known(self) -> bool:
        return bool(self.uid and self.generation and self.storage_version)


async def note_definition(client: ApiClient, resource: ApiResource) -> CrdSnapshot | None:
    """The definition of a resource; None if it has none."""
    if not resource.group:
        return None
    name = f"{resource.name}.{resource.group}"
    try:
        found = _read(await client.get(DEFINITIONS, name))
    except NotFound:
        return None  # built in, of an aggregated server, or a server without definitions
    return found if found.is_known else None


async def trim(client: ApiClient, noted: CrdSnapshot) -> str:
    """Set the stored versions to the storage version; says why not, or nothing if it is so now."""
    for _ in range(ATTEMPTS_MAX):
        try:
            value = await client.get(DEFINITIONS, noted.name)
        except NotFound:
            return f"the definition {noted.name} was deleted"
        if _read(value) != noted:
            return f"the definition {noted.name} has changed since the migration began"
        status, wanted = mapping(value, "status"), [noted.storage_version]
        if status.get("storedVersions") == wanted:
            return ""
        try:
            await client.update(
                DEFINITIONS,
                {**value, "status": {**status, "storedVersions": wanted}},
                subresource="status",
            )
        except Conflict as error:
            logger.info("%s is read again: %s", noted.name, error)
            continue
        return ""
    return f"the definition {noted.name} was changed {ATTEMPTS_MAX} times meanwhile"


def _read(value: Object) -> CrdSnapshot:
    metadata, versions = mapping(value, "metadata"), mapping(value, "spec").get("versions")
    stored = [
        text(each, "name")
        for each in (versions if isinstance(versions, list) else ())
        if isinstance(each, dict) and each.get("storage") is True
    ]
    generation = metadata.get("generation")
    return CrdSnapshot(
        name=text(metadata, "name"),
        uid=uid_of(value),
        generation=generation if isinstance(generation, int) else 0,
        storage_version=stored[0] if len(stored) == 1 else "",
    )
