"""AdmissionReview: the request to an admission webhook, and the validation of its response.

The response allows or denies a write, and may contain warnings, audit annotations and, for mutating
webhooks, a JSON patch. A response to another request, or in another version, is invalid.

Pure: values in, values out. Not here: calling webhooks (`restow.admission.webhooks`).
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
"""Maximum length of a denial's message, which a webhook controls."""
WARNINGS_MAX: Final = 32
ANNOTATIONS_MAX: Final = 32
SHOWN_CHARACTERS_MAX: Final = 128

CODE_MIN: Final = 400
CODE_MAX: Final = 599


class AnswerInvalid(Exception):
    """The response is invalid; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAnswer:
    """The decision of a webhook."""

    is_allowed: bool
    result: Object
    """The reason for a denial: a Status, or parts of one."""
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    patch: JsonPatch | None = None


def review_version(offered: Iterable[str]) -> str:
    """Return the first version that the webhook and this server support; empty if there is none."""
    return next((each for each in offered if each in SUPPORTED), "")


def write_review(request: Object, *, version: str) -> bytes:
    """Encode the request, which contains its `uid`."""
    return orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request})


def read_review(body: bytes, *, uid: str, version: str, may_patch: bool) -> ReviewAnswer:
    """Parse the response. Raises `AnswerInvalid`."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AnswerInvalid("the response is not JSON") from None
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
    """Return the error for the client when a webhook denies a write."""
    denied = f'admission webhook "{webhook}" denied the request'
    reason = result.get("message") or result.get("reason")
    message = (
        f"{denied}: {reason}"
        if isinstance(reason, str) and reason
        else f"{denied} without explanation"
    )
    code = result.get("code")
    is_code = isinstance(code, int) and not isinstance(code, bool) and code >= CODE_MIN
    return status_from_dict(
        {
            **result,
            "message": message[:MESSAGE_CHARACTERS_MAX],
            "code": min(code, CODE_MAX) if is_code else CODE_MIN,  # type: ignore[type-var]
            "metadata": {},
        }
    )


def _check_identity(review: Object, response: Object, uid: str) -> None:
    reason = response.get("uid")
    if reason != uid:
        shown = str(reason or "")[:SHOWN_CHARACTERS_MAX]
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
