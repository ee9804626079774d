"""Builds the request for a backend and the response head for the client. Pure.

To the backend: method, path, query and body unchanged; all headers except those between the client
and this server (hop-by-hop headers, credentials) and those that only this server may set. A backend
trusts X-Remote-* because of the client certificate that comes with them, so no byte of them may
come from the client: not in another case, and not with `_` for `-`, which some servers treat as
equal. The same applies to all other identity headers that backends trust (`published_headers`). A
token among the protocols of a WebSocket is a credential, too.

To the client: status, headers and body unchanged, except headers between this server and the
backend and headers that instruct a browser. Browsers apply the latter to the origin, which also has
the dashboard: cookies, CORS permissions, service workers, login prompts, policies. Instead, every
response gets a policy by which a browser that displays it runs no script and puts it in an origin
of its own, and `nosniff` for the content type. A redirect is not forwarded: a client would follow
it with its credentials.

Not here: connections, and authentication.
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
"""Protocols that Kubernetes clients upgrade to. Not h2c: the requests inside it would not be
authorized."""

_HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"),
    }
)
# Between the client and this server, or set below.
_NOT_ASKED: Final = frozenset(
    {
        *("authorization", "cookie", "host", "content-length", "expect", "audit-id"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri"),
    }
)
_NOT_ASKED_PREFIXES: Final = ("x-remote-", "impersonate-")
_NOT_ANSWERED: Final = frozenset(
    {
        *("content-length", "date", "audit-id"),
        # Instructions to a browser: about its state for this origin,
        *("set-cookie", "set-cookie2", "clear-site-data", "strict-transport-security", "alt-svc"),
        *("service-worker-allowed", "www-authenticate", "authentication-info", "accept-ch"),
        *("public-key-pins", "expect-ct", "set-login", "origin-agent-cluster"),
        # what it loads, opens or sends next,
        *("refresh", "link", "sourcemap", "x-sourcemap", "speculation-rules", "nel", "report-to"),
        *("reporting-endpoints", "x-dns-prefetch-control", "supports-loading-mode"),
        # and its policies, which are set below.
        *("x-content-type-options", "x-frame-options", "x-xss-protection", "referrer-policy"),
        *("permissions-policy", "feature-policy", "document-policy", "timing-allow-origin"),
        *("x-permitted-cross-domain-policies", "p3p", "x-webkit-csp"),
    }
)
_NOT_ANSWERED_PREFIXES: Final = (
    *("access-control-", "x-remote-", "content-security-policy", "x-content-security-policy"),
    *("cross-origin-", "sec-session-", "secure-session-"),
)
_PROTOCOLS: Final = "sec-websocket-protocol"
_BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
"""Prefix of a token: how browsers authenticate a WebSocket."""
_BROWSER_POLICY: Final = (
    ("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# A query that all servers parse in the same way: some drop parts with `;` or an invalid escape.
_CLEAR_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~!$'()*+,:/?@=&-]|%[0-9A-Fa-f]{2})*")
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_EXTRA_KEY_SAFE: Final = re.compile(r"[A-Za-z0-9!#$&'*+.^_`|~-]")

Lines = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityHeaders:
    """Headers in which backends expect the user, besides X-Remote-*; in lower case, with `-`."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


NOTHING_ELSE: Final = IdentityHeaders()


def upgrade_of(headers: Headers) -> str:
    """Return the requested upgrade protocol if it is permitted, else an empty string."""
    wanted = headers.get_all("upgrade")
    if len(wanted) != 1 or "upgrade" not in _options(headers.get_all("connection")):
        return ""
    protocol = wanted[0].strip()
    return protocol if protocol.lower() in UPGRADES else ""


def question_of(
    context: Context, *, authority: str, identity_headers: IdentityHeaders = NOTHING_ELSE
) -> BackendRequest:
    """Build the request for the backend. Raises 400 or 431."""
    request = context.request
    upgrade = upgrade_of(request.headers) if request.version_minor else ""
    lines = [("Host", authority), *_request_headers(request.headers, identity_headers)]
    if upgrade:
        lines += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
    # The client controls the content of X-Forwarded-For, so it must not be trusted.
    lines += [each for each in _forwarded(context) if not identity_headers.has(each[0].lower())]
    lines += user_lines(context.user)
    if mark := id_in(request.answer_lines):
        lines.append(("Audit-Id", mark.decode()))  # the same ID in both audit logs
    query = _query(request.query)
    target = f"{request.path}?{query}" if query else request.path
    try:
        data = encode_passed_request(request.method, target, lines, request.body)
    except (ValueError, UnicodeEncodeError) as error:
        raise status.bad_request(f"cannot forward the request: {error}") from error
    if len(data) - len(request.body) > HEAD_BYTES_MAX:
        raise StatusError(f"the request headers exceed {HEAD_BYTES_MAX} bytes", code=431)
    return BackendRequest(
        method=request.method,
        data=data,
        is_stream=bool(upgrade) or context.info.is_long,
        upgrade=upgrade,
    )


def user_lines(user: User) -> Lines:
    """The identity headers of a user. Raises 400 for a name that would be changed in transit."""
    lines = [("X-Remote-User", _sent(user.name))]
    if user.uid:
        lines.append(("X-Remote-Uid", _sent(user.uid)))
    lines += [("X-Remote-Group", _sent(group)) for group in user.groups]
    for key, values in user.extra:
        name = f"X-Remote-Extra-{_extra_key(key)}"
        lines += [(name, _sent(value)) for value in values]
    return lines


def answer_lines(code: int, lines: Lines) -> bytes:
    """The response headers for the client. Raises ValueError if one cannot be sent."""
    own = _options(value for name, value in lines if name == "connection")
    passed = (
        (name, value)
        for name, value in lines
        if name not in _HOP_BY_HOP
        and name not in _NOT_ANSWERED
        and name not in own
        and not name.startswith(_NOT_ANSWERED_PREFIXES)
        and not (name == "location" and 300 <= code < 400)
    )
    return header_block((*passed, *_BROWSER_POLICY))


def is_redirect(code: int, lines: Lines) -> bool:
    """Whether a response redirects the client. A 304 does not."""
    if code in _REDIRECTS:
        return True
    return 300 <= code < 400 and code != 304 and any(name == "location" for name, _ in lines)


def names_token(protocols: str) -> bool:
    """Whether a WebSocket protocol list contains a token."""
    return any(each.startswith(_BEARER_PROTOCOL) for each in _options([protocols]))


def _request_headers(
    headers: Headers, identity_headers: IdentityHeaders
) -> Iterator[tuple[str, str]]:
    own = _options(headers.get_all("connection"))
    for name, value in headers.items():
        plain = name.replace("_", "-")
        if name in own or plain in _HOP_BY_HOP or plain in _NOT_ASKED:
            continue
        if plain.startswith(_NOT_ASKED_PREFIXES) or identity_headers.has(plain):
            continue
        if plain != _PROTOCOLS or not names_token(value):
            yield name, value
        elif others := [each for each in _listed(value) if not names_token(each)]:
            yield name, ", ".join(others)


def _forwarded(context: Context) -> Lines:
    """X-Forwarded-For and similar headers. Values of the client come first, as a hint."""
    request = context.request
    before = request.headers.get_all("x-forwarded-for")
    hops = [*before, request.peer.address] if request.peer.address else before
    lines = [("X-Forwarded-For", ", ".join(hops))] if hops else []
    if (host := request.headers.get("host")) is not None:
        lines.append(("X-Forwarded-Host", host))
    return [*lines, ("X-Forwarded-Proto", "https"), ("X-Forwarded-Uri", request.path)]


def _query(query: str) -> str:
    """The query unchanged, or encoded again if servers could parse it differently."""
    if _CLEAR_QUERY.fullmatch(query):
        return query
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_PARAMETERS_MAX)
    return urlencode(pairs)


def _options(values: Iterator[str] | Sequence[str]) -> set[str]:
    return {each.lower() for value in values for each in _listed(value)}


def _listed(value: str) -> list[str]:
    return [each.strip() for each in value.split(",")]


def _sent(text: str) -> str:
    """A text as its UTF-8 bytes, one character each."""
    # Spaces at the ends would be stripped in transit, which could result in another user's name.
    if _UNSENDABLE.search(text) or text != text.strip(" "):
        raise status.bad_request(f"cannot forward the user {text[:64]!r} in a header")
    try:
        return text.encode().decode("latin-1")
    except UnicodeEncodeError as error:
        raise status.bad_request("the user's name is not valid UTF-8") from error


def _extra_key(key: str) -> str:
    """A key in lower case, percent-encoding characters that a header name must not contain."""
    return "".join(
        each
        if _EXTRA_KEY_SAFE.fullmatch(each)
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in key.lower()
    )
