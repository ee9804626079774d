"""The shape of CRDs: keeps `storedVersions` consistent with the versions that servers write.

A client removes a version from `status.storedVersions` after it has verified that no object is
stored in it. While any server still reports that it writes that version, it is added back, like
the storage version. Not here: validation of CRDs (`restow.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from restow.apimachinery.conversion import Converter
from restow.kinds.kind import Kind
from restow.registry.resource import Object
from restow.registry.shapes import BuiltinShape

Written = Callable[[str, str], Collection[str]]
"""Returns the versions that servers write, for a group and a plural resource name."""


class CrdShape(BuiltinShape):
    """Satisfies `resource.Shape`."""

    def __init__(self, kind: Kind, converter: Converter, *, written: Written) -> None:
        super().__init__(kind, converter)
        self._written = written

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        kept = _listed(new)
        removed = [version for version in _listed(old) if version not in kept]
        if not removed:
            return
        spec = old["spec"]
        written = self._written(spec["group"], spec["names"]["plural"])
        if restored := [version for version in removed if version in written]:
            new["status"] = {**new["status"], "storedVersions": [*restored, *kept]}


def _listed(definition: Object) -> list[str]:
    status = definition.get("status")
    listed = status.get("storedVersions") if isinstance(status, dict) else None
    return listed if isinstance(listed, list) else []
