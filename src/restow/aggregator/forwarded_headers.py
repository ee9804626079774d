"""What of a request goes on to a backend, and what of its answer comes back. Pure.

To the backend: method, path, query and body as they came. Of the headers, all but those that are
between the client and this server (hop by hop, the credentials) and those that only this server may
set. A backend believes X-Remote-* because of the certificate they come with, so no byte of theirs
may be the client's: not in another case, and not with `_` for `-`, which some servers read alike.
The same holds for whatever other headers backends are told to believe (`published_headers`).
A token among the protocols of a WebSocket is a credential, too.

To the client: status, headers and body as they came, but for what is between this server and the
backend, and for what would act on other paths of this address: cookies, and leave for the pages of
other sites. A redirect is not passed on: a client would follow it, with its credentials. Browsers
are told to believe the content type that is said.

Not here: connections, and who the user is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode

from restow.aggregator.exchanges import BackendRequest
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.client.http1 import HEAD_BYTES_MAX, encode_passed_request
from restow.httpserver import Headers, header_block
from restow.request.audit_ids import id_in
from restow.request.context import Context, User
from restow.request.request_info import QUERY_PARAMETERS_MAX

UPGRADES: Final = frozenset({"websocket", "spdy/3.1"})
"""Protocols that clients of Kubernetes switch to. Another HTTP is not among them: requests inside
it would be nobody's to authorise."""

_HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"),
    }
)
# Between the client and this server, or said anew below.
_NOT_ASKED: Final = frozenset(
    {
        *("authorization", "cookie", "host", "content-length", "expect", "audit-id"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri"),
    }
)
_NOT_ASKED_PREFIXES: Final = ("x-remote-", "impersonate-")
_NOT_ANSWERED: Final = frozenset(
    {
        *("content-length", "date", "set-cookie", "set-cookie2", "clear-site-data", "audit-id"),
        *("strict-transport-security", "alt-svc", "service-worker-allowed", "refresh"),
    }
)
_NOT_ANSWERED_PREFIXES: Final = ("access-control-", "x-remote-")
_PROTOCOLS: Final = "sec-websocket-protocol"
_BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
"""With a token behind it: how a page that opens a WebSocket says who it is."""
_NOSNIFF: Final = ("x-content-type-options", "nosniff")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# A query that all servers read alike: others drop what has a `;` or a broken escape.
_CLEAR_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~!$'()*+,:/?@=&-]|%[0-9A-Fa-f]{2})*")
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_EXTRA_KEY_SAFE: Final = re.compile(r"[A-Za-z0-9!#$&'*+.^_`|~-]")

Lines = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """Headers from which backends learn who asks, beside our own; in lower case, with `-`."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


NOTHING_ELSE: Final = Believed()


def upgrade_of(headers: Headers) -> str:
    """The protocol that a request asks to switch to, if it is one that may be; else nothing."""
    wanted = headers.get_all("upgrade")
    if len(wanted) != 1 or "upgrade" not in _options(headers.get_all("connection")):
        return ""
    protocol = wanted[0].strip()
    return protocol if protocol.lower() in UPGRADES else ""


def question_of(
    context: Context, *, authority: str, believed: Believed = NOTHING_ELSE
) -> BackendRequest:
    """The request as the backend gets it. Raises 400 or 431."""
    request = context.request
    upgrade = upgrade_of(request.headers) if request.version_minor else ""
    lines = [("Host", authority), *_asked(request.headers, believed)]
    if upgrade:
        lines += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
    # The client has a say in where it comes from, so that is for nobody to believe.
    lines += [each for each in _forwarded(context) if not believed.has(each[0].lower())]
    lines += user_lines(context.user)
    if mark := id_in(request.answer_lines):
        lines.append(("Audit-Id", mark.decode()))  # so that both logs call it the same
    query = _query(request.query)
    target = f"{request.path}?{query}" if query else request.path
    try:
        data = encode_passed_request(request.method, target, lines, request.body)
    except (ValueError, UnicodeEncodeError) as error:
        raise status.bad_request(f"the request cannot be passed on: {error}") from error
    if len(data) - len(request.body) > HEAD_BYTES_MAX:
        raise StatusError(f"the header lines are over {HEAD_BYTES_MAX} bytes", code=431)
    return BackendRequest(
        method=request.method,
        data=data,
        is_stream=bool(upgrade) or context.info.is_long,
        upgrade=upgrade,
    )


def user_lines(user: User) -> Lines:
    """Who asks, as backends are told. Raises 400 for a name that would arrive as another."""
    lines = [("X-Remote-User", _sent(user.name))]
    if user.uid:
        lines.append(("X-Remote-Uid", _sent(user.uid)))
    lines += [("X-Remote-Group", _sent(group)) for group in user.groups]
    for key, values in user.extra:
        name = f"X-Remote-Extra-{_extra_key(key)}"
        lines += [(name, _sent(value)) for value in values]
    return lines


def answer_lines(code: int, lines: Lines) -> bytes:
    """The header lines of an answer for the client. ValueError when one cannot be sent."""
    own = _options(value for name, value in lines if name == "connection")
    is_typed = code == 101 or any(name == _NOSNIFF[0] for name, _ in lines)
    return header_block(
        (name, value)
        for name, value in (*lines, *(() if is_typed else (_NOSNIFF,)))
        if name not in _HOP_BY_HOP
        and name not in _NOT_ANSWERED
        and name not in own
        and not name.startswith(_NOT_ANSWERED_PREFIXES)
        and not (name == "location" and 300 <= code < 400)
    )


def is_redirect(code: int, lines: Lines) -> bool:
    """Whether an answer sends the client elsewhere. That nothing has changed (304) does not."""
    if code in _REDIRECTS:
        return True
    return 300 <= code < 400 and code != 304 and any(name == "location" for name, _ in lines)


def names_token(protocols: str) -> bool:
    """Whether a list of protocols of a WebSocket has a token in it."""
    return any(each.startswith(_BEARER_PROTOCOL) for each in _options([protocols]))


def _asked(headers: Headers, believed: Believed) -> Iterator[tuple[str, str]]:
    own = _options(headers.get_all("connection"))
    for name, value in headers.items():
        plain = name.replace("_", "-")
        if name in own or plain in _HOP_BY_HOP or plain in _NOT_ASKED:
            continue
        if plain.startswith(_NOT_ASKED_PREFIXES) or believed.has(plain):
            continue
        if plain != _PROTOCOLS or not names_token(value):
            yield name, value
        elif others := [each for each in _listed(value) if not names_token(each)]:
            yield name, ", ".join(others)


def _forwarded(context: Context) -> Lines:
    """Where the request came from. What the client says of that is kept in front, as a hint."""
    request = context.request
    before = request.headers.get_all("x-forwarded-for")
    hops = [*before, request.peer.address] if request.peer.address else before
    lines = [("X-Forwarded-For", ", ".join(hops))] if hops else []
    if (host := request.headers.get("host")) is not None:
        lines.append(("X-Forwarded-Host", host))
    return [*lines, ("X-Forwarded-Proto", "https"), ("X-Forwarded-Uri", request.path)]


def _query(query: str) -> str:
    """The query as it came, or, if servers could differ about it, as it was read here."""
    if _CLEAR_QUERY.fullmatch(query):
        return query
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_PARAMETERS_MAX)
    return urlencode(pairs)


def _options(values: Iterator[str] | Sequence[str]) -> set[str]:
    return {each.lower() for value in values for each in _listed(value)}


def _listed(value: str) -> list[str]:
    return [each.strip() for each in value.split(",")]


def _sent(text: str) -> str:
    """A text as the bytes of its UTF-8, one character each."""
    # A space at an end would be taken off on the way, and leave the name of somebody else.
    if _UNSENDABLE.search(text) or text != text.strip(" "):
        raise status.bad_request(f"the user {text[:64]!r} cannot be named to another server")
    try:
        return text.encode().decode("latin-1")
    except UnicodeEncodeError as error:
        raise status.bad_request("the user's name is no UTF-8") from error


def _extra_key(key: str) -> str:
    """A key in lower case, with what a header's name cannot have percent-encoded."""
    return "".join(
        each
        if _EXTRA_KEY_SAFE.fullmatch(each)
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in key.lower()
    )
