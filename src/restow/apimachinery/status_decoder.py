"""Parses status errors in responses of other servers.

The response may come from any server, so all types are checked.

Not here: HTTP. The caller provides code and body.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.status_error import Details, StatusCause, StatusError

# Maximum length of the message from a body that is not a Status object.
FOREIGN_MESSAGE_LENGTH_MAX: Final = 2048

# If two classes share a code, the first is used for the code alone.
CLASSES: Final[tuple[type[StatusError], ...]] = (
    status.BadRequest,
    status.Unauthorized,
    status.Forbidden,
    status.NotFound,
    status.MethodNotAllowed,
    status.NotAcceptable,
    status.Conflict,
    status.AlreadyExists,
    status.Expired,
    status.Gone,
    status.RequestEntityTooLarge,
    status.UnsupportedMediaType,
    status.Invalid,
    status.TooManyRequests,
    status.InternalError,
    status.ServerTimeout,
    status.ServiceUnavailable,
    status.Timeout,
)
_BY_REASON: Final = {each.reason: each for each in CLASSES}
_BY_CODE: Final = {each.code: each for each in reversed(CLASSES)}


def status_from_dict(body: dict[str, Any], *, code: int = 0) -> StatusError:
    """Return the error of a Status object, as the best matching class.

    The object may come from any server, so all types are checked.
    """
    body_code = _number(body.get("code")) or code or 500
    reason = _text(body.get("reason"))
    details = _mapping(body.get("details"))
    causes = details.get("causes") or ()
    return _class_of(reason, body_code)(
        _text(body.get("message")) or reason or f"the server responded with {body_code}",
        details=_details_from(details) if "details" in body else None,
        causes=tuple(_cause_from(_mapping(cause)) for cause in _items(causes)),
        retry_after_seconds=_number(details.get("retryAfterSeconds")),
        code=body_code,
        reason=reason,
        continue_token=_text(_mapping(body.get("metadata")).get("continue")),
    )


def status_from_response(code: int, body: bytes, *, retry_after_seconds: int = 0) -> StatusError:
    """Return the error of an HTTP response, which may be a Status object, text, or empty."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and value.get("kind") == "Status":
        error = status_from_dict(value, code=code)
        error.retry_after_seconds = error.retry_after_seconds or retry_after_seconds
        return error
    text = body[:FOREIGN_MESSAGE_LENGTH_MAX].decode(errors="replace").strip()
    found = _class_of("", code)
    return found(
        text or f"the server responded with {code}",
        code=code,
        retry_after_seconds=retry_after_seconds,
    )


def _class_of(reason: str, code: int) -> type[StatusError]:
    return _BY_REASON.get(reason) or _BY_CODE.get(code, StatusError)


def _details_from(details: dict[str, Any]) -> Details:
    return Details(
        name=_text(details.get("name")),
        group=_text(details.get("group")),
        kind=_text(details.get("kind")),
        uid=_text(details.get("uid")),
    )


def _cause_from(cause: dict[str, Any]) -> StatusCause:
    return StatusCause(
        _text(cause.get("reason")), _text(cause.get("message")), _text(cause.get("field"))
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
