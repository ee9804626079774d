"""A CRD for gadgets, written to the store as the API would write it.

Each change is one guarded transaction that leaves the CRD as the server with the leader lock would
accept it. `storedVersions` grow in the write that changes the storage version, and shrink only
after
verification. Not here: servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from restow.apimachinery.names import GroupResource
from restow.kinds.defaults.crds import CLEANUP_FINALIZER
from restow.registry.custom.crds import (
    CustomResourceDefinition,
    definition_key,
    read_definition,
)
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Put,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Write,
)
from restow.storageversion.object_codec import decode_report, report_key
from restow.storageversion.records import name_of
from tests.support.storageversion_audit import stored_versions
from tests.unit.storageversion.world import GROUP

KIND = "Gadget"
PLURAL = "gadgets"
NAME = f"{PLURAL}.{GROUP}"
KEY = definition_key(NAME)
GADGETS = name_of(GroupResource(GROUP, PLURAL))
"""The name of its StorageVersion."""
GADGETS_ROOT = f"/registry/{GROUP}/{PLURAL}/"
_OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Edit = Callable[[dict[str, Any]], None]


def api_version(version: str) -> str:
    return f"{GROUP}/{version}"


class Gadgets:
    """Reads and writes the CRD."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._made = 0

    async def read(self) -> CustomResourceDefinition | None:
        item = await self._storage.get(KEY)
        return None if item is None else read_definition(item)

    async def now(self) -> CustomResourceDefinition:
        found = await self.read()
        assert found is not None
        return found

    async def create(
        self, versions: Sequence[str], *, plural: str = PLURAL, kind: str = KIND
    ) -> Revision:
        """Creates the CRD; the first version is the storage version."""
        self._made += 1
        names = {
            "plural": plural,
            "singular": kind.lower(),
            "kind": kind,
            "listKind": f"{kind}List",
        }
        obj = {
            "kind": "CustomResourceDefinition",
            "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {
                "name": f"{plural}.{GROUP}",
                "uid": f"definition-{self._made}",
                "generation": 1,
                "creationTimestamp": "2024-01-01T00:00:00Z",
                "finalizers": [CLEANUP_FINALIZER],
            },
            "spec": {
                "group": GROUP,
                "names": names,
                "scope": "Namespaced",
                "versions": [_version(each, is_stored=each == versions[0]) for each in versions],
                "conversion": {"strategy": "None"},
            },
            "status": {
                "acceptedNames": names,
                "conditions": [{"type": "NamesAccepted", "status": "True"}],
                "storedVersions": [versions[0]],
            },
        }
        key = definition_key(f"{plural}.{GROUP}")
        return await self._commit(Absent(key), write=Put(key, orjson.dumps(obj)))

    async def change(self, edit: Edit, *guards: Guard) -> Revision:
        item = await self._storage.get(KEY)
        assert item is not None
        obj = orjson.loads(item.value)
        edit(obj)
        put = Put(KEY, orjson.dumps(obj))
        return await self._commit(RevisionIs(KEY, item.revision), *guards, write=put)

    async def store_in(self, version: str) -> Revision:
        """Changes the storage version; the version is added if it is new."""

        def edit(obj: dict[str, Any]) -> None:
            _add(obj, version)
            for each in obj["spec"]["versions"]:
                each["storage"] = each["name"] == version
            stored = obj["status"]["storedVersions"]
            obj["status"]["storedVersions"] = list(dict.fromkeys([*stored, version]))

        return await self.change(edit)

    async def add(self, version: str) -> Revision:
        """Serves another version."""
        return await self.change(lambda obj: _add(obj, version))

    async def drop(self, version: str) -> Revision:
        """Removes a version, which must not be in storedVersions."""
        definition = await self.now()
        assert version not in (*definition.stored_versions, definition.storage_version)

        def edit(obj: dict[str, Any]) -> None:
            versions = obj["spec"]["versions"]
            obj["spec"]["versions"] = [each for each in versions if each["name"] != version]

        return await self.change(edit)

    async def trim(self) -> bool:
        """Lists only the storage version, if no object is stored in another one.

        All servers write it, none can have started to write another while the StorageVersion is the
        same,
        and no object is stored in another.
        """
        definition = await self.now()
        item = await self._storage.get(report_key(GADGETS))
        wanted = api_version(definition.storage_version)
        if item is None or decode_report(item).report.common_version != wanted:
            return False
        if set(await stored_versions(self._storage, GADGETS_ROOT)) - {wanted}:
            return False

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["storedVersions"] = [definition.storage_version]

        await self.change(edit, RevisionIs(item.key, item.revision))
        return True

    async def note(self, text: str = "all is well") -> Revision:
        """Changes its status without an effect on servers."""

        def edit(obj: dict[str, Any]) -> None:
            conditions = [each for each in obj["status"]["conditions"] if each["type"] != "Noted"]
            noted = {"type": "Noted", "status": "True", "message": text}
            obj["status"]["conditions"] = [*conditions, noted]

        return await self.change(edit)

    async def refuse_names(self) -> Revision:
        """Withdraws its names, as happens in a name conflict."""

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["conditions"] = [{"type": "NamesAccepted", "status": "False"}]
            obj["status"]["acceptedNames"] = {"plural": "", "kind": ""}

        return await self.change(edit)

    async def delete(self) -> Revision:
        """Requests its deletion: it closes, and waits for its instances."""

        def edit(obj: dict[str, Any]) -> None:
            obj["metadata"]["deletionTimestamp"] = "2024-01-02T00:00:00Z"

        return await self.change(edit)

    async def remove(self) -> Revision:
        """Removes it. Its instances must be gone."""
        item = await self._storage.get(KEY)
        assert item is not None
        assert not await self.instances()
        return await self._commit(RevisionIs(KEY, item.revision), write=Delete(KEY))

    async def remove_by_force(self) -> Revision:
        """Removes it with its finalizers patched away: its instances remain."""
        return await self._commit(write=Delete(KEY))

    async def instances(self) -> list[str]:
        """Returns the names of its objects."""
        found = (await self._storage.range(Span.of_prefix(GADGETS_ROOT))).items
        return [item.key.rpartition("/")[2] for item in found]

    async def _commit(self, *guards: Guard, write: Write) -> Revision:
        outcome = await self._storage.commit(Transaction(guards, (write,)))
        assert isinstance(outcome, Done), outcome
        return outcome.revision


def _version(name: str, *, is_stored: bool = False) -> dict[str, Any]:
    schema = {"openAPIV3Schema": _OPEN_SCHEMA}
    return {"name": name, "served": True, "storage": is_stored, "schema": schema}


def _add(obj: dict[str, Any], version: str) -> None:
    versions = obj["spec"]["versions"]
    if all(each["name"] != version for each in versions):
        versions.append(_version(version))
