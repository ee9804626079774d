"""Records of manual migrations on a server without a migration API, in a ConfigMap.

    data:
      deployments.apps: {"target": …, "mark": …, "time": …, "objects": …}

The next run skips resources that have not changed. A record that cannot be parsed is ignored.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import Conflict, NotFound
from restow.client import ApiClient, Object
from restow.migration.migration_objects import mapping, text

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
NAME: Final = "restow-migrations"
ATTEMPTS_MAX: Final = 5


class Note(NamedTuple):
    """The target version and agreement to which everything was migrated, and when."""

    target: str
    mark: str
    time: str
    objects: int = 0
    by: str = ""
    """The evidence, as in `AgreementCheck.by`."""

    @classmethod
    def of_text(cls, value: str) -> Note | None:
        """Parse the text of a proof; None if it is not one."""
        try:
            found: Any = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(found, dict) or not text(found, "target"):
            return None
        objects = found.get("objects")
        return cls(
            target=text(found, "target"),
            mark=text(found, "mark"),
            time=text(found, "time"),
            objects=objects if isinstance(objects, int) else 0,
            by=text(found, "by"),
        )

    def to_text(self) -> str:
        return orjson.dumps(self._asdict()).decode()


class Notes:
    """Reads and writes the records in the ConfigMap."""

    def __init__(self, client: ApiClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def read(self, resource: GroupResource) -> Note | None:
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, namespace=self._namespace)
        except NotFound:
            return None
        return Note.of_text(text(mapping(found, "data"), str(resource)))

    async def write(self, resource: GroupResource, note: Note | None) -> None:
        """Add or replace the record of a resource. Raises a StatusError or ConnectionFailed."""
        if note is None:
            return
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._put(str(resource), note.to_text())
            except Conflict:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
            else:
                return

    async def _put(self, name: str, said: str) -> None:
        try:
            await self._client.patch(
                CONFIG_MAPS, NAME, {"data": {name: said}}, namespace=self._namespace
            )
        except NotFound:
            body: Object = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": self._namespace},
                "data": {name: said},
            }
            await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)
