"""Audit annotations of failed validations."""

from __future__ import annotations

import orjson
import pytest

from restow.admission.policies_result import _FAILURES, _annotate_failures
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.request.context import ANNOTATION_LENGTH_MAX, Context
from restow.request.request_info import parse_request


@pytest.mark.parametrize("message", ["short", "x" * 5_000, "\x01" * 5_000, "é" * 5_000])
@pytest.mark.parametrize("count", [1, 60])
def test_annotations_are_valid_json(message: str, count: int) -> None:
    """However many and long the failures are, the annotation is valid JSON and names a policy."""
    request = HttpRequest("POST", "/api/v1/pods", "", Headers([]), b"", Peer(1), 0.0)
    context = Context(request, parse_request("POST", "/api/v1/pods"))
    _annotate_failures(context, [{"message": message, "policy": "p" * 253}] * count)
    assert context.annotations is not None
    noted = context.annotations[_FAILURES]
    assert len(noted) <= ANNOTATION_LENGTH_MAX
    assert orjson.loads(noted)[0]["policy"] == "p" * 253
