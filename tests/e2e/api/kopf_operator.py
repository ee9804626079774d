"""An operator on ConfigMaps that carry a label, for kopf to run: it notes what it has seen.

Annotations say what was created and changed; the log says what was deleted.
"""

from __future__ import annotations

import logging
from typing import Any

import kopf

SEEN = "example.com/seen"
LABELS: dict[str, Any] = {"example.com/operated": "yes"}

logger = logging.getLogger("operator")


@kopf.on.create("configmaps", labels=LABELS)
def created(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.annotations[SEEN] = "created"
    kopf.info(body, reason="Seen", message="it was created")


@kopf.on.update("configmaps", labels=LABELS, field="data")
def updated(new: Any, patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.annotations[SEEN] = f"updated to {new['color']}"


@kopf.on.delete("configmaps", labels=LABELS)
def deleted(name: str | None, **_: Any) -> None:
    logger.info("saw the end of %s", name)
