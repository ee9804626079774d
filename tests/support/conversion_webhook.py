"""A conversion webhook for tests: a real HTTPS server with scripted responses, right or wrong.

It counts its requests. Not for production use, and no example of a good webhook: it treats any
request as a review, whatever its path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.support.certificates import make_certificate
from tests.support.webhook_server import Answer, Object, WebhookServer

Convert = Callable[[Object, str], Object]
"""Converts an object to a version."""


Behave = Callable[[Object], Answer]
"""From the whole request to the whole response."""


@dataclass(slots=True)
class Question:
    """One request."""

    target: str
    names: list[str]
    path: str


@dataclass(slots=True, kw_only=True)
class ConversionWebhook(WebhookServer):
    """A webhook that converts custom resources."""

    convert: Convert
    behave: Behave | None = None
    """If set, responds instead of converting."""
    questions: list[Question] = field(default_factory=list)

    @classmethod
    async def start(cls, directory: Path, convert: Convert, *, port: int = 0) -> Self:
        made = cls(convert=convert, files=make_certificate(directory, name="webhook"))
        await made.listen(port)
        return made

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/convert"

    @property
    def asked(self) -> int:
        """Number of objects in all requests since the start."""
        return sum(len(question.names) for question in self.questions)

    def definition_part(self, **changes: Any) -> Object:
        """`spec.conversion` of a CRD that uses this webhook."""
        client = {"url": self.url, "caBundle": self.ca_bundle, **changes}
        return {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
        }

    def answer(self, review: Object) -> Object:
        """The correct response to a request."""
        request = review["request"]
        target = request["desiredAPIVersion"]
        return {
            "kind": "ConversionReview",
            "apiVersion": review["apiVersion"],
            "response": {
                "uid": request["uid"],
                "result": {"status": "Success"},
                "convertedObjects": [self.convert(obj, target) for obj in request["objects"]],
            },
        }

    def respond_to(self, review: Object, path: str) -> Answer:
        request = review["request"]
        names = [obj["metadata"].get("name", "") for obj in request["objects"]]
        self.questions.append(Question(request["desiredAPIVersion"], names, path))
        return self.answer(review) if self.behave is None else self.behave(review)
