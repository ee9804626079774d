"""The kind of definitions itself, on a server that knows what others write.

A version leaves `storedVersions` by a write of the status, when somebody has proved that nothing is
stored in it. As long as a server says that it writes that version, this cannot be: it is put back,
as the storage version is. Not here: what else is right for a definition (`restow.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from restow.apimachinery.conversion import Converter
from restow.kinds.kind import Kind
from restow.registry.resource import Object
from restow.registry.shapes import BuiltinShape

Written = Callable[[str, str], Collection[str]]
"""Asked with a group and a plural: the versions that servers write."""


class CrdShape(BuiltinShape):
    """Satisfies `resource.Shape`."""

    def __init__(self, kind: Kind, converter: Converter, *, written: Written) -> None:
        super().__init__(kind, converter)
        self._written = written

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        kept = _listed(new)
        gone = [version for version in _listed(old) if version not in kept]
        if not gone:
            return
        spec = old["spec"]
        written = self._written(spec["group"], spec["names"]["plural"])
        if back := [version for version in gone if version in written]:
            new["status"] = {**new["status"], "storedVersions": [*back, *kept]}


def _listed(definition: Object) -> list[str]:
    status = definition.get("status")
    listed = status.get("storedVersions") if isinstance(status, dict) else None
    return listed if isinstance(listed, list) else []
