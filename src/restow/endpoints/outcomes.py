"""The end of every request: errors become a Status, and each response is counted and audited.

All errors are converted to API errors in `as_status`. Not here: the encoding of a response
(`responses`), and the order of the steps (`app`).
"""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Clock
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status import of_machinery_error
from restow.apimachinery.status_error import StatusError
from restow.audit import AuditIds, Auditor
from restow.authentication import Authentication
from restow.httpserver import HttpRequest, HttpResponse
from restow.registry.errors import DoAgain, translate
from restow.request.context import ANONYMOUS, Context, User
from restow.request.metrics import Metrics
from restow.request.responses import error_answer
from restow.storage.errors import StorageError

logger = logging.getLogger(__name__)

_EXPECTED: Final = (StatusError, StorageError, MachineryError, RecursionError)


class RequestOutcomes:
    """Converts errors, and records every response."""

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        audit: Auditor | None,
        *,
        audit_ids: AuditIds,
        authentication: Authentication,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._audit = audit
        self._audit_ids = audit_ids
        self._authentication = authentication

    def failed(self, context: Context | None, error: Exception) -> HttpResponse:
        """The response for an error."""
        if context is not None and self._audit is not None and not isinstance(error, _EXPECTED):
            self._audit.panicked(context)
        return error_answer(context, as_status(error))

    def counted(
        self, context: Context | None, request: HttpRequest, answer: HttpResponse
    ) -> HttpResponse:
        """Record a response in the metrics and the audit log, and return it."""
        seconds = self._clock.monotonic() - request.received_seconds
        if context is not None and context.remote is not None:
            # The path behind the version is client input that was not validated, so it is not used
            # as a label.
            group, version = context.remote
            labels = (context.info.verb, group, version, "", "", str(answer.status))
        elif context is None or context.resource is None:
            labels = ("other", "", "", "", "", str(answer.status))
        else:
            info = context.info
            labels = (
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                str(answer.status),
            )
        self._metrics.count(labels, seconds)
        if self._audit is None:
            pass
        elif context is not None:
            self._audit.complete(context, answer)
        else:
            self._audit.refused(request, self._sender_of(request), answer)
        return answer

    def refused(self, request: HttpRequest, answer: HttpResponse) -> None:
        """Record a request that the listener has refused before its head was accepted."""
        request.answer_lines = self._audit_ids.line()
        if self._audit is not None:
            self._audit.refused(request, None, answer)

    def _sender_of(self, request: HttpRequest) -> User | None:
        """The user of a request whose path is invalid, for the audit log; None if that is not known
        at once."""
        try:
            user = self._authentication.authenticate(request)
        except (StatusError, DoAgain):
            return None
        if user is not ANONYMOUS:
            request.peer.admit(user.name, is_privileged=user.is_master)
        return user


def as_status(error: Exception) -> StatusError:
    """The API error for an exception."""
    match error:
        case StatusError():
            return error
        case StorageError():
            return translate(error)
        case MachineryError():
            return of_machinery_error(error)
        case RecursionError():
            return status.bad_request("the request is nested too deeply")
        case _:
            logger.error("a request has failed", exc_info=error)
            return status.internal(f"{type(error).__name__}: {error}")
