"""Deployments: `apps/v1beta1` has `spec.rollbackTo`, later versions an annotation for it.

Not here: the defaults of each version, which differ too (`restow.kinds.defaults`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.conversion import (
    SAME_SHAPE,
    Converter,
    Object,
    Spoke,
    part_of,
    with_part,
)

ROLLBACK_ANNOTATION: Final = "deprecated.deployment.rollback.rollbackTo"
# Digits of an int64. A longer text was not written by a conversion.
_DIGITS_MAX: Final = 19


def _to_v1(deployment: Object) -> Object:
    spec = part_of(deployment, "spec")
    rollback = spec.get("rollbackTo")
    if rollback is None:
        return deployment
    metadata = part_of(deployment, "metadata")
    annotations = {
        **part_of(metadata, "annotations"),
        ROLLBACK_ANNOTATION: str(rollback.get("revision", 0)),
    }
    return {
        **deployment,
        "metadata": {**metadata, "annotations": annotations},
        "spec": with_part(spec, "rollbackTo", None),
    }


def _from_v1(deployment: Object) -> Object:
    metadata = part_of(deployment, "metadata")
    annotations = part_of(metadata, "annotations")
    revision = _read_revision(annotations.get(ROLLBACK_ANNOTATION))
    if revision is None:
        return deployment
    kept = with_part(annotations, ROLLBACK_ANNOTATION, None)
    # Revision 0 means the last revision, and is omitted.
    rollback = {"revision": revision} if revision else {}
    return {
        **deployment,
        "metadata": with_part(metadata, "annotations", kept or None),
        "spec": {**part_of(deployment, "spec"), "rollbackTo": rollback},
    }


def _read_revision(text: Any) -> int | None:
    """Parse a revision that a conversion wrote. Any other text stays in the annotation."""
    if not isinstance(text, str) or not text.isascii() or len(text) > _DIGITS_MAX + 1:
        return None
    if not text.removeprefix("-").isdigit():
        return None
    revision = int(text)
    return revision if str(revision) == text else None


CONVERTER: Final = Converter(
    "Deployment.apps",
    hub="apps/v1",
    spokes={"apps/v1beta2": SAME_SHAPE, "apps/v1beta1": Spoke(_to_v1, _from_v1)},
)
