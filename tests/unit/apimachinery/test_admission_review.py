"""Responses of admission webhooks: parsing and validation."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from restow.apimachinery.admission_review import (
    ANNOTATIONS_MAX,
    MESSAGE_CHARACTERS_MAX,
    WARNINGS_MAX,
    AnswerInvalid,
    ReviewAnswer,
    read_review,
    refusal,
    review_version,
    write_review,
)

PATCH = base64.b64encode(b'[{"op":"add","path":"/a","value":1}]').decode()


def read(
    response: Any, *, version: str = "v1", may_patch: bool = True, **more: Any
) -> ReviewAnswer:
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", **more}
    body = orjson.dumps({**review, "response": response})
    return read_review(body, uid="u", version=version, may_patch=may_patch)


def test_a_question() -> None:
    """The request has the first version that the webhook and this server support."""
    assert review_version(["v9", "v1beta1", "v1"]) == "v1beta1"
    assert review_version(["v9"]) == ""
    written = orjson.loads(write_review({"uid": "u"}, version="v1"))
    assert written == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "u"},
    }


def test_members_of_a_response() -> None:
    """Only a true `allowed` allows; other members are taken up to limits, if their type is
    valid.
    """
    said = read(
        {
            "uid": "u",
            "allowed": True,
            "patch": PATCH,
            "patchType": "JSONPatch",
            "warnings": [7, *map(str, range(100))],
            "auditAnnotations": {str(each): "x" for each in range(100)} | {"bad": 7},
        }
    )
    assert said.is_allowed
    assert said.patch is not None
    assert said.patch.apply({}) == {"a": 1}
    assert (len(said.warnings), len(said.annotations)) == (WARNINGS_MAX, ANNOTATIONS_MAX)
    for allowed in (None, 1, "true", False):
        assert not read({"uid": "u", "allowed": allowed}).is_allowed


def test_v1beta1() -> None:
    """For v1beta1 uid and kind are not validated; a patch needs no type."""
    said = read({"allowed": True, "patch": PATCH}, version="v1beta1", kind="", apiVersion="")
    assert said.patch is not None
    assert read({"allowed": True, "patch": PATCH}, version="v1beta1", may_patch=False).patch is None


@pytest.mark.parametrize(
    ("response", "more", "message"),
    [
        (None, {}, "webhook response was absent"),
        ({"uid": "x"}, {}, 'expected response.uid="u", got "x"'),
        ({"uid": "u"}, {"kind": "Pod"}, "expected webhook response of admission.k8s.io/v1, Kind="),
        ({"uid": "u", "patch": PATCH}, {}, "response.patch but not response.patchType"),
        ({"uid": "u", "patch": 7, "patchType": "JSONPatch"}, {}, "undecodable patch"),
    ],
)
def test_invalid_responses(response: Any, more: dict[str, Any], message: str) -> None:
    """Responses to another request, or in another format, are rejected."""
    with pytest.raises(AnswerInvalid, match=message):
        read(response, **more)


def test_a_denial_is_truncated() -> None:
    """The message of a webhook is truncated."""
    error = refusal("a.b.c", {"message": "x" * 100_000, "code": 403, "details": {"name": "n"}})
    assert (error.code, len(error.message)) == (403, MESSAGE_CHARACTERS_MAX)
    assert error.details is not None
    assert error.details.name == "n"
