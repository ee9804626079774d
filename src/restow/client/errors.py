"""The errors of a client, and the conversion of HTTP responses to errors.

    ClientError                 errors of the client; those of the API are StatusErrors
    ├── ConfigInvalid           an invalid kubeconfig or credential
    ├── ConnectionFailed        no response, or an incomplete one
    │   ├── AnswerTooLarge      a response over the size limit
    │   └── CredentialsFailed   a credential plugin returned no credential
    ├── NoSuchResource          a resource name that discovery does not contain
    └── CacheFull               more objects than the limit of an informer

`status_of_answer` converts every unsuccessful response to a StatusError. `connection_failed`
converts every failure below HTTP to a ConnectionFailed. Both are total: no other error is raised.

Not here: retries (`retry_policy`).
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final

from restow.apimachinery.status_decoder import status_from_response
from restow.apimachinery.status_error import StatusError

# Limit of Retry-After headers; callers that retry have their own limit.
RETRY_AFTER_SECONDS_MAX: Final = 24 * 60 * 60
_SECONDS: Final = re.compile(r"[0-9]{1,9}", flags=re.ASCII)


class ClientError(Exception):
    """Base class of errors that are not from the API."""


class ConfigInvalid(ClientError):
    """An invalid configuration; the text names the file and the field."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or its response broke off; the text has the next step."""

    def __init__(
        self, server: str, what: str, *, advice: str, may_have_happened: bool = False
    ) -> None:
        then = "; the request may have been executed" if may_have_happened else ""
        super().__init__(f"{server}: {what}{then}. {advice}")
        self.server = server
        self.what = what
        self.advice = advice
        self.may_have_happened = may_have_happened
        """Whether the server may have executed the request, so that a retry could repeat it."""


class AnswerTooLarge(ConnectionFailed):
    """A response exceeds the size limit of the caller."""

    def __init__(self, server: str, *, bytes_max: int) -> None:
        super().__init__(
            server,
            f"the response is larger than {bytes_max} bytes",
            advice="Request less at once: list with a limit",
        )


class CredentialsFailed(ConnectionFailed):
    """A credential plugin failed. Nothing was sent, and the next request runs it again."""


class NoSuchResource(ClientError):
    """A resource name that the server does not have."""


class CacheFull(ClientError):
    """There are more objects than the limit of the informer."""


class ProxyFailed(Exception):
    """A proxy opened no tunnel; converted to a ConnectionFailed by `connection_failed`."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


class ProtocolBroken(Exception):
    """Invalid HTTP/1.1; converted to a ConnectionFailed by `connection_failed`."""


def status_of_answer(code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """Convert a response to its error; header names are in lower case.

    The body can be anything: a Status object, a page of a proxy, or empty.
    """
    requested = _SECONDS.fullmatch(headers.get("retry-after", "").strip())
    seconds = min(int(requested[0]), RETRY_AFTER_SECONDS_MAX) if requested else 0
    if "retry-after" in headers and not requested:
        seconds = 1  # a date, of a clock that may differ from the local one
    error = status_from_response(code, body, retry_after_seconds=seconds)
    # The HTTP code has precedence: a proxy may pass the body of another response.
    error.code = code
    return error


def connection_failed(
    error: BaseException, *, server: str, may_have_happened: bool = False
) -> ConnectionFailed:
    """Convert a failure below HTTP to an error with advice."""
    if isinstance(error, ConnectionFailed):
        return error
    what, advice = _explain(error)
    return ConnectionFailed(server, what, advice=advice, may_have_happened=may_have_happened)


def _explain(error: BaseException) -> tuple[str, str]:
    match error:
        case ProxyFailed():
            return error.what, error.advice
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted: {getattr(error, 'verify_message', error)}",
                (
                    "Check certificate-authority and tls-server-name in the kubeconfig, and which "
                    "server responds at this address"
                ),
            )
        case ssl.SSLError():
            reason = getattr(error, "reason", None) or str(error)
            return (
                f"TLS failed: {reason}",
                "Check that the address uses HTTPS; check client-certificate and client-key",
            )
        case TimeoutError():
            return "no response in time", "Check that the server is running, and the network to it"
        case socket.gaierror():
            return (
                f"its host name cannot be resolved: {error.strerror}",
                "Check the server of the cluster in the kubeconfig, and DNS",
            )
        case ConnectionRefusedError():
            return (
                "connection refused",
                "Check that the server is running, and its address and port",
            )
        case asyncio.IncompleteReadError() | ConnectionError() | EOFError():
            return (
                "the connection was closed before the response was complete",
                "The server may have been restarted: try again",
            )
        case ProtocolBroken() | asyncio.LimitOverrunError():
            return (
                f"invalid HTTP/1.1 response: {error}",
                "Check that this is the address of a Kubernetes API server, not of a proxy",
            )
        case OSError() if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
            return "no route to it", "Check the address, and the network to it"
        case OSError():
            return f"{error.strerror or error}", "Check the address, and the network to it"
        case _:
            return f"{type(error).__name__}: {error}", "This is unexpected: please report it"
