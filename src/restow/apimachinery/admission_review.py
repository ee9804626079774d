"""AdmissionReview: how somebody else is asked about a write, and what is taken from the answer.

The answer says whether the write is allowed, and may warn, leave notes for the audit log and, if it
was asked for changes, bring a JSON patch. One that answers another question, or in another form
than was asked, is none.

Pure: values in, values out. Not here: who is asked, and how (`restow.admission.webhooks`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from restow.apimachinery.json_patch import JsonPatch
from restow.apimachinery.status_decoder import status_from_dict
from restow.apimachinery.status_error import StatusError

Object = dict[str, Any]

GROUP: Final = "admission.k8s.io"
KIND: Final = "AdmissionReview"
SUPPORTED: Final = ("v1", "v1beta1")

MESSAGE_CHARACTERS_MAX: Final = 8_192
"""What is told of a refusal, which may say anything at any length."""
WARNINGS_MAX: Final = 32
ANNOTATIONS_MAX: Final = 32
SHOWN_CHARACTERS_MAX: Final = 128

CODE_MIN: Final = 400
CODE_MAX: Final = 599


class AnswerInvalid(Exception):
    """What came back is no answer to what was asked; why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAnswer:
    """What somebody has said about a write."""

    is_allowed: bool
    result: Object
    """Why not: a Status, or parts of one."""
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    patch: JsonPatch | None = None


def review_version(offered: Iterable[str]) -> str:
    """The first of the versions that a webhook reads and that is known here; empty if none is."""
    return next((each for each in offered if each in SUPPORTED), "")


def write_review(request: Object, *, version: str) -> bytes:
    """The question. The request has its `uid`."""
    return orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request})


def read_review(body: bytes, *, uid: str, version: str, may_patch: bool) -> ReviewAnswer:
    """The answer. Raises `AnswerInvalid`."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AnswerInvalid("it is no JSON") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise AnswerInvalid("webhook response was absent")
    if version == "v1":
        _check_identity(review, response, uid)
    return ReviewAnswer(
        is_allowed=response.get("allowed") is True,
        result=_mapping(response.get("status")),
        warnings=_texts(response.get("warnings"))[:WARNINGS_MAX],
        annotations=tuple(_pairs(response.get("auditAnnotations")))[:ANNOTATIONS_MAX],
        patch=_read_patch(response, version=version, may_patch=may_patch),
    )


def refusal(webhook: str, result: Object) -> StatusError:
    """The error that a client gets when somebody does not allow a write."""
    denied = f'admission webhook "{webhook}" denied the request'
    said = result.get("message") or result.get("reason")
    told = (
        f"{denied}: {said}" if isinstance(said, str) and said else f"{denied} without explanation"
    )
    code = result.get("code")
    is_code = isinstance(code, int) and not isinstance(code, bool) and code >= CODE_MIN
    return status_from_dict(
        {
            **result,
            "message": told[:MESSAGE_CHARACTERS_MAX],
            "code": min(code, CODE_MAX) if is_code else CODE_MIN,  # type: ignore[type-var]
            "metadata": {},
        }
    )


def _check_identity(review: Object, response: Object, uid: str) -> None:
    said = response.get("uid")
    if said != uid:
        shown = str(said or "")[:SHOWN_CHARACTERS_MAX]
        raise AnswerInvalid(f'expected response.uid="{uid}", got "{shown}"')
    expected, found = (
        _kind_text(f"{GROUP}/v1", KIND),
        _kind_text(str(review.get("apiVersion") or ""), str(review.get("kind") or "")),
    )
    if found != expected:
        raise AnswerInvalid(f"expected webhook response of {expected}, got {found}")


def _kind_text(api_version: str, kind: str) -> str:
    return f"{api_version[:SHOWN_CHARACTERS_MAX]}, Kind={kind[:SHOWN_CHARACTERS_MAX]}"


def _read_patch(response: Object, *, version: str, may_patch: bool) -> JsonPatch | None:
    patch, kind = response.get("patch"), response.get("patchType")
    if not may_patch:
        if version == "v1" and patch:
            raise AnswerInvalid("validating webhook may not return response.patch")
        if version == "v1" and kind is not None:
            raise AnswerInvalid("validating webhook may not return response.patchType")
        return None
    if version == "v1":
        if patch and kind is None:
            raise AnswerInvalid("webhook returned response.patch but not response.patchType")
        if not patch and kind is not None:
            raise AnswerInvalid("webhook returned response.patchType but not response.patch")
        if patch and kind != "JSONPatch":
            raise AnswerInvalid(f'unsupported patch type "{str(kind)[:SHOWN_CHARACTERS_MAX]}"')
    if not patch:
        return None
    try:
        made = JsonPatch.parse(orjson.loads(base64.b64decode(patch, validate=True)))
    except (binascii.Error, ValueError, TypeError) as error:
        raise AnswerInvalid(f"received undecodable patch in webhook response: {error}") from None
    except StatusError as error:
        raise AnswerInvalid(
            f"received undecodable patch in webhook response: {error.message}"
        ) from None
    return made if made.operations else None


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _pairs(value: object) -> Iterable[tuple[str, str]]:
    return ((name, text) for name, text in _mapping(value).items() if isinstance(text, str))
