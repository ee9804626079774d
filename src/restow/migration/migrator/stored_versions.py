"""`status.storedVersions` of a CustomResourceDefinition: trimmed after a verified migration.

    at the start      the CRD's uid, generation and storage version are recorded
    after the proof   if uid and generation are unchanged, storedVersions is set to that version

The update is of a CRD that was just read, with its resource version as precondition. After a failed
migration nothing is trimmed: storedVersions may be the only record of objects in an old version.

Not here: the proof.
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
    """The identity and storage version of a CRD, as recorded at the start."""

    name: str
    uid: str
    generation: int
    storage_version: str

    @property
    def is_known(self) -> bool:
        return bool(self.uid and self.generation and self.storage_version)


async def note_definition(client: ApiClient, resource: ApiResource) -> CrdSnapshot | None:
    """Record the CRD of a resource; None if it has none."""
    if not resource.group:
        return None
    name = f"{resource.name}.{resource.group}"
    try:
        found = _read(await client.get(DEFINITIONS, name))
    except NotFound:
        return None  # built in, of an aggregated server, or a server without CRDs
    return found if found.is_known else None


async def trim(client: ApiClient, noted: CrdSnapshot) -> str:
    """Set storedVersions to the storage version; return why not, or "" if it is so now."""
    for _ in range(ATTEMPTS_MAX):
        try:
            value = await client.get(DEFINITIONS, noted.name)
        except NotFound:
            return f"the CRD {noted.name} was deleted"
        if _read(value) != noted:
            return f"the CRD {noted.name} has changed since the migration began"
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
    return f"the CRD {noted.name} was changed during {ATTEMPTS_MAX} updates"


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
