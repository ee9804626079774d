"""An operator for kopf to run: on ConfigMaps with a label, and on a custom kind.

It records events in annotations of ConfigMaps, keeps its progress for widgets in their status, and
refuses blue widgets. Annotations record creations and changes; the log records deletions.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import kopf

GROUP = "kopf.example.org"
SEEN = "example.com/seen"
LABELS: dict[str, Any] = {"example.com/operated": "yes"}
CERTIFICATES = "OPERATOR_CERTIFICATES"
"""A folder with the certificate of its webhook."""

logger = logging.getLogger("operator")


@kopf.on.startup()
def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    folder = os.environ[CERTIFICATES]
    settings.admission.managed = "auto.kopf.dev"
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        certfile=f"{folder}/cert.pem",
        pkeyfile=f"{folder}/key.pem",
        cafile=f"{folder}/ca.pem",
    )


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


@kopf.on.create(GROUP, "v1", "widgets")
def made(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = f"made {spec['colour']}"


@kopf.on.update(GROUP, "v1", "widgets", field="spec.size")
def resized(new: Any, patch: kopf.Patch, **_: Any) -> None:
    patch.status["size"] = new


@kopf.on.validate(GROUP, "v1", "widgets", id="colours")
def no_blue(spec: kopf.Spec, warnings: list[str], **_: Any) -> None:
    if spec.get("colour") == "blue":
        raise kopf.AdmissionError("blue is not for widgets", code=422)
    warnings.append("a widget is looked at")
