"""An operator on custom resources, for kopf to run: it keeps its notes in their status."""

from __future__ import annotations

from typing import Any

import kopf

GROUP = "operated.custom.example.org"


@kopf.on.create(GROUP, "v1", "widgets")
def created(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = f"made {spec['colour']}"


@kopf.on.update(GROUP, "v1", "widgets", field="spec.size")
def resized(new: Any, patch: kopf.Patch, **_: Any) -> None:
    patch.status["size"] = new
