# (Python 3.11 has no `typing.override`.)
"""The root class of all status errors, and its wire format.

A Status object is JSON with `status: Failure`. Servers encode it here, clients parse it with
`status_decoder`.

Not here: the kinds of errors and their wording (`status`), and HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson


class StatusCause(NamedTuple):
    """One of several causes; `field` is a path such as `spec.ports[0].name`."""

    reason: str
    message: str
    field: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the cause for a Status object; empty members are omitted."""
        members = {"reason": self.reason, "message": self.message, "field": self.field}
        return {name: value for name, value in members.items() if value}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The subject of an error. `kind` is a resource's plural, or a Kind in `Invalid`."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""


class StatusError(Exception):
    """Root of the class tree, and the error of any code without a class of its own."""

    code: int = 500
    reason: str = ""

    def __init_subclass__(cls, *, code: int = 0) -> None:
        """A class with a code has its name as the reason."""
        if code:
            cls.code, cls.reason = code, cls.__name__

    def __init__(
        self,
        message: str,
        *,
        details: Details | None = None,
        causes: tuple[StatusCause, ...] = (),
        retry_after_seconds: int = 0,
        code: int | None = None,
        reason: str | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        """Seconds to wait before a retry; zero if unspecified."""
        self.continue_token = continue_token
        """With `Expired`: the token to continue a list from the current state."""
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason

    def to_dict(self) -> dict[str, Any]:
        """Return the Status object for the client."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:
            del body["reason"]
        details = self._details_as_dict()
        if details is not None:
            body["details"] = details
        return body

    def to_bytes(self) -> bytes:
        """Return the Status object as JSON."""
        # A message may quote client input with lone surrogates for invalid bytes.
        try:
            return orjson.dumps(self.to_dict())
        except orjson.JSONEncodeError:
            return orjson.dumps(_with_clean_text(self.to_dict()))

    def _details_as_dict(self) -> dict[str, Any] | None:
        if self.details is None and not self.causes and not self.retry_after_seconds:
            return None
        about = self.details or Details()
        found = {
            "name": about.name,
            "group": about.group,
            "kind": about.kind,
            "uid": about.uid,
            "causes": [cause.to_dict() for cause in self.causes],
            "retryAfterSeconds": self.retry_after_seconds,
        }
        return {name: value for name, value in found.items() if value}


def _with_clean_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_with_clean_text(key): _with_clean_text(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_clean_text(item) for item in value]
    return value
