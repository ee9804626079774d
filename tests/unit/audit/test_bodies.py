"""Bodies of requests and answers in events."""

from __future__ import annotations

import tracemalloc

import orjson

from restow.audit.bodies import OBJECT_BYTES_MAX, response_body, status_part
from restow.httpserver import HttpResponse
from restow.request.responses import JSON_HEADERS

PIECE = b"x" * OBJECT_BYTES_MAX


def test_a_long_list_is_omitted_without_a_copy() -> None:
    """An answer in many pieces is omitted based on its length, without joining the pieces."""
    answer = HttpResponse(200, [PIECE] * 64, JSON_HEADERS)
    tracemalloc.start()
    try:
        found = response_body(answer, omits_managed_fields=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.is_cut
    assert not found.text
    assert peak < len(PIECE)


def test_an_answer_in_pieces() -> None:
    """A short answer in pieces is recorded completely, and so is the status of an error."""
    sent = {"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}
    text = orjson.dumps(sent)
    answer = HttpResponse(409, [text[:9], text[9:]], JSON_HEADERS)
    assert orjson.loads(response_body(answer, omits_managed_fields=False).text) == sent
    assert b'"reason":"Conflict"' in status_part(answer, is_secret=False)
    assert not response_body(HttpResponse(200, [], JSON_HEADERS), omits_managed_fields=False).is_cut
