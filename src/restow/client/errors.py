"""What a client raises, and the border where an HTTP answer becomes an error of ours.

    ClientError                 of the client's own; what the API says is a StatusError
    ├── ConfigInvalid           a kubeconfig, or a credential, that cannot be used
    ├── ConnectionFailed        no answer, or not a whole one
    │   └── AnswerTooLarge      more than the caller takes
    ├── NoSuchResource          a name that discovery does not know
    └── CacheFull               more objects than an informer may hold

`status_of_answer` makes a StatusError of every answer that is not a success. `connection_failed`
makes a ConnectionFailed of all that goes wrong below HTTP. Both are total: nothing else comes up.

Not here: whether to try again (`retry_policy`).
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

# What foreign headers may ask for at most; whoever retries has a limit of its own.
RETRY_AFTER_SECONDS_MAX: Final = 24 * 60 * 60
_SECONDS: Final = re.compile(r"[0-9]{1,9}", flags=re.ASCII)


class ClientError(Exception):
    """Root of what is not said by the API itself."""


class ConfigInvalid(ClientError):
    """A configuration that cannot be used; the text names the file and the field."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or its answer broke off; the text says what to do next."""

    def __init__(
        self, server: str, what: str, *, advice: str, may_have_happened: bool = False
    ) -> None:
        then = "; the request may have been carried out" if may_have_happened else ""
        super().__init__(f"{server}: {what}{then}. {advice}")
        self.server = server
        self.what = what
        self.advice = advice
        self.may_have_happened = may_have_happened
        """Whether a server may have acted on it, so that to do it again is to do it twice."""


class AnswerTooLarge(ConnectionFailed):
    """An answer was given up because it has more bytes than the caller takes."""

    def __init__(self, server: str, *, bytes_max: int) -> None:
        super().__init__(
            server,
            f"its answer has more than {bytes_max} bytes",
            advice="Ask for less at once: list with a limit",
        )


class NoSuchResource(ClientError):
    """A name of a resource that the server does not know."""


class CacheFull(ClientError):
    """There are more objects than the informer was allowed to hold."""


class ProtocolBroken(Exception):
    """Bytes that are no HTTP/1.1 as we read it; becomes a ConnectionFailed at the border."""


def status_of_answer(code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """The error that an answer means; the names of headers are in lower case.

    Any code, any body: a Status object, a proxy's page, or nothing.
    """
    asked = _SECONDS.fullmatch(headers.get("retry-after", "").strip())
    seconds = min(int(asked[0]), RETRY_AFTER_SECONDS_MAX) if asked else 0
    if "retry-after" in headers and not asked:
        seconds = 1  # a date, of a clock that need not be ours
    error = status_from_response(code, body, retry_after_seconds=seconds)
    # What HTTP says counts: a proxy may pass on the body of another answer.
    error.code = code
    return error


def connection_failed(
    error: BaseException, *, server: str, may_have_happened: bool = False
) -> ConnectionFailed:
    """The error that a failure below HTTP means, with what a person should look at."""
    if isinstance(error, ConnectionFailed):
        return error
    what, advice = _explain(error)
    return ConnectionFailed(server, what, advice=advice, may_have_happened=may_have_happened)


def _explain(error: BaseException) -> tuple[str, str]:
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted: {getattr(error, 'verify_message', error)}",
                (
                    "Check certificate-authority and tls-server-name in the kubeconfig, and whose "
                    "server answers at this address"
                ),
            )
        case ssl.SSLError():
            reason = getattr(error, "reason", None) or str(error)
            return (
                f"TLS failed: {reason}",
                "Check that the address speaks HTTPS, and client-certificate and client-key",
            )
        case TimeoutError():
            return "no answer in time", "Check that the server is up, and the network to it"
        case socket.gaierror():
            return (
                f"its name is not known: {error.strerror}",
                "Check the server of the cluster in the kubeconfig, and the resolver",
            )
        case ConnectionRefusedError():
            return "connection refused", "Check that the server runs, and its address and port"
        case asyncio.IncompleteReadError() | ConnectionError() | EOFError():
            return (
                "the connection was closed before the answer was complete",
                "The server may have been restarted: try again",
            )
        case ProtocolBroken() | asyncio.LimitOverrunError():
            return (
                f"the answer is no HTTP/1.1 of an API server: {error}",
                "Check that this is the address of a Kubernetes API server, and of no proxy",
            )
        case OSError() if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
            return "no route to it", "Check the address, and the network to it"
        case OSError():
            return f"{error.strerror or error}", "Check the address, and the network to it"
        case _:
            return f"{type(error).__name__}: {error}", "This is not expected: please report it"
