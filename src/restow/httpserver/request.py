"""The application's view of a request: request line, headers, and the peer.

Nothing is parsed beyond need: path and query are undecoded, the body is bytes. No routing and no
authentication here.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from restow.httpserver.connection_classes import ConnectionClasses


class Headers:
    """The header lines of a request. Names are lower case; Content-Length is left out.

    Requests of one connection whose header lines are equal byte for byte (except for the length of
    the body) share one object, so it is immutable. `memo` belongs to the application, which can
    store there what it derived from these lines (the user, the accepted media types). `audit_memo`
    is the same for audit events of such requests.
    """

    __slots__ = ("_first", "_lines", "_repeated", "audit_memo", "memo")

    def __init__(self, lines: Sequence[tuple[str, str]]) -> None:
        first: dict[str, str] = {}
        repeated = False
        for name, value in lines:
            if name in first:
                repeated = True
            else:
                first[name] = value
        self._first = first
        self._lines = lines
        self._repeated = repeated
        self.memo: Any = None
        self.audit_memo: Any = None

    def get(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return self._first.get(name)

    def get_all(self, name: str) -> list[str]:
        """All values of a header, in order."""
        if not self._repeated:
            value = self._first.get(name)
            return [] if value is None else [value]
        return [value for key, value in self._lines if key == name]

    def items(self) -> Iterator[tuple[str, str]]:
        """All lines, in order."""
        return iter(self._lines)

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def __len__(self) -> int:
        return len(self._lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """A client certificate that was verified against the listener's authorities."""

    common_name: str
    organizations: tuple[str, ...]
    not_before_epoch_seconds: float
    not_after_epoch_seconds: float
    der: bytes

    @classmethod
    def of(cls, ssl_object: ssl.SSLObject | ssl.SSLSocket) -> PeerCertificate | None:
        """Return the certificate from a finished handshake; None if the client sent none."""
        shown = ssl_object.getpeercert()
        der = ssl_object.getpeercert(binary_form=True)
        if not shown or der is None:
            return None
        common_name, organizations = "", []
        subject: Any = shown.get("subject", ())
        for key, value in (pair for pairs in subject for pair in pairs):
            if key == "commonName":
                common_name = value
            elif key == "organizationName":
                organizations.append(value)
        return cls(
            common_name=common_name,
            organizations=tuple(organizations),
            not_before_epoch_seconds=float(ssl.cert_time_to_seconds(str(shown["notBefore"]))),
            not_after_epoch_seconds=float(ssl.cert_time_to_seconds(str(shown["notAfter"]))),
            der=der,
        )


class Peer:
    """The remote end of one connection: the same object for all its requests.

    The application sets `memo`, like that of Headers, which lives as long as the connection, and
    calls `admit` for each authenticated request: that decides the class of the connection.
    """

    __slots__ = (
        *("_certificate", "_classes", "_ssl_object", "address", "connection_id"),
        *("is_known", "is_privileged", "key", "memo", "port", "user"),
    )

    def __init__(
        self,
        connection_id: int,
        *,
        address: str = "",
        port: int = 0,
        ssl_object: ssl.SSLObject | ssl.SSLSocket | None = None,
        certificate: PeerCertificate | None = None,
        classes: ConnectionClasses | None = None,
    ) -> None:
        """`classes`: all connections of its listener."""
        self.connection_id = connection_id
        self.address = address
        self.port = port
        self.is_known = False
        """Whether a request of the connection was authenticated."""
        self.is_privileged = False
        """Whether one was of a privileged user."""
        self.user = ""
        """The user of the first one; the first privileged user, if there was one."""
        self.key = address
        """Whose share of the limits of its class the connection uses: the address, or the user."""
        self.memo: Any = None
        self._ssl_object = ssl_object
        self._certificate = certificate
        self._classes = classes

    def admit(self, user: str, *, is_privileged: bool) -> bool:
        """Note an authenticated request, and move the connection to its class. False if the limit
        of that class is reached: then refuse the request."""
        if self.is_known and (self.is_privileged or not is_privileged):
            return True
        classes = self._classes
        if classes is not None:
            if not classes.enter(user, is_privileged=is_privileged):
                return self.is_known
            classes.leave(self)
        self.is_known = True
        self.is_privileged = is_privileged
        self.user = self.key = user
        return True

    def leave(self) -> None:
        """Note the end of the connection."""
        classes, self._classes = self._classes, None
        if classes is not None:
            classes.leave(self)

    @property
    def displacer(self) -> Callable[[], None] | None:
        """Aborts the connection in favor of another one; None if it is authenticated."""
        return None if self.is_known or self._classes is None else self._displace

    def _displace(self) -> None:
        if self._classes is not None:
            self._classes.abort(self)

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's certificate, parsed on first use."""
        if self._ssl_object is not None:
            self._certificate = PeerCertificate.of(self._ssl_object)
            self._ssl_object = None
        return self._certificate


class RequestLine:
    """Method, path and query of requests. All requests with equal lines share one object.

    `memo` belongs to the application, like that of Headers: how it has parsed the line.
    """

    __slots__ = ("memo", "method", "path", "query")

    def __init__(self, method: str, path: str, query: str) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.memo: Any = None


class HttpRequest:
    """One request. Path and query are percent-encoded as received, without the question mark.

    Set by the application: `answer_by_seconds`, the deadline of the response on the clock of
    `received_seconds`, after which a 504 is sent; `answer_lines`, encoded header lines of any
    response, even one of the listener; `memo`, decisions made when the head was complete and the
    body was not; and `is_shielded`: the request runs to its end even if the client disconnects, as
    a write does.
    """

    __slots__ = (
        "answer_by_seconds",
        "answer_lines",
        "body",
        "headers",
        "is_shielded",
        "keep_alive",
        "memo",
        "method",
        "path",
        "peer",
        "query",
        "received_seconds",
        "version_minor",
    )

    # Once per request, with positional arguments, which are faster.
    def __init__(  # noqa: PLR0917
        self,
        method: str,
        path: str,
        query: str,
        headers: Headers,
        body: bytes,
        peer: Peer,
        received_seconds: float,
        version_minor: int = 1,
        keep_alive: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.peer = peer
        self.received_seconds = received_seconds
        self.answer_by_seconds = math.inf
        self.answer_lines = b""
        self.memo: Any = None
        self.is_shielded = False
        self.version_minor = version_minor
        self.keep_alive = keep_alive

    def __repr__(self) -> str:
        # Neither query nor headers: they can contain credentials.
        return f"<Request {self.method} {self.path}>"
