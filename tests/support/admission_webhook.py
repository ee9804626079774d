"""An admission webhook for tests: a real HTTPS server with scripted responses, right or wrong.

It records its requests. Not for production use, and no example of a good webhook: it treats any
request as a review, whatever its path.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from tests.support.certificates import make_certificate
from tests.support.webhook_server import Answer, Object, Raw, WebhookServer

Response = Callable[[Object], Answer]
"""From the `request` of a review to its `response`, without the uid; or to a raw response."""


def allow(_request: Object) -> Object:
    """Allow everything."""
    return {"allowed": True}


def answer(said: Object | Raw) -> Response:
    """Always give the same response."""
    return lambda _request: said


def deny(message: str, **result: Any) -> Response:
    """Deny everything."""
    return lambda _request: {"allowed": False, "status": {"message": message, **result}}


def patch(*operations: Object) -> Response:
    """Patch every object in the same way."""
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return lambda _request: {"allowed": True, "patch": encoded, "patchType": "JSONPatch"}


@dataclass(slots=True, kw_only=True)
class AdmissionWebhook(WebhookServer):
    """A webhook that admits, denies or patches objects."""

    respond: Response = allow
    requests: list[Object] = field(default_factory=list)
    """All reviews since the start."""
    paths: list[str] = field(default_factory=list)

    @classmethod
    async def start(cls, directory: Path, respond: Response = allow) -> Self:
        names = ("localhost", "hook.default.svc")
        files = make_certificate(directory, name="webhook", host_names=names)
        made = cls(files=files, respond=respond)
        await made.listen()
        return made

    def forget(self) -> None:
        """Forget all recorded requests."""
        self.requests.clear()
        self.paths.clear()

    def client_config(self, path: str = "/review") -> Object:
        """The `clientConfig` of a webhook configuration."""
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca_bundle}

    def hook(self, name: str = "rules.example.com", **changes: Any) -> Object:
        """One webhook of a configuration; by default for every write of config maps."""
        rule = {
            "operations": ["*"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
        return {
            "name": name,
            "clientConfig": self.client_config(),
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
            **changes,
        }

    def respond_to(self, review: Object, path: str) -> Answer:
        self.requests.append(review["request"])
        self.paths.append(path)
        return self.respond(review["request"])

    def complete(self, review: Object, answer: Object) -> Object:
        response = {"uid": review["request"]["uid"], **answer}
        head = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"]}
        return {**head, "response": response}
