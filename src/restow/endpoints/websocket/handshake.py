"""The handshake of a WebSocket (RFC 6455, section 4): detects upgrade requests and answers them.

As in Kubernetes, a request must have an `Origin` header, but any origin is accepted. A page sends
its own bearer token; a session cookie does not authenticate a WebSocket. A browser with a client
certificate presents it for any page, here as in every other request. At most one subprotocol beside
the token is allowed. It is confirmed whatever it is: the data sent does not depend on it.

Not here: authentication (`restow.authentication`).
"""

from __future__ import annotations

import re
from typing import Final

from wsproto.utilities import generate_accept_token

from restow.apimachinery import status
from restow.authentication.tokens import BEARER_PROTOCOL
from restow.httpserver import Headers, HttpRequest, HttpResponse, header_block
from restow.request.responses import JSON_HEADERS

VERSION: Final = "13"

_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_PROTOCOL: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def asks_for_websocket(request: HttpRequest) -> bool:
    """Whether a request asks to upgrade to WebSocket. HTTP/1.0 has no upgrades."""
    headers = request.headers
    upgrade = headers.get("upgrade")
    if upgrade is None or upgrade.lower() != "websocket" or not request.version_minor:
        return False
    return any(
        token.strip().lower() == "upgrade"
        for line in headers.get_all("connection")
        for token in line.split(",")
    )


def agreed_headers(request: HttpRequest) -> bytes | HttpResponse:
    """The response headers of the handshake; or an error response. Raises 400 or 403."""
    headers = request.headers
    if headers.get("sec-websocket-version") != VERSION:
        error = status.bad_request("missing or bad WebSocket Version")
        version_line = header_block([("Sec-WebSocket-Version", VERSION)])
        return HttpResponse(error.code, error.to_bytes(), JSON_HEADERS + version_line)
    key = headers.get("sec-websocket-key")
    if not key:
        raise status.bad_request("mismatch challenge/response: there is no Sec-WebSocket-Key")
    if _ORIGIN.fullmatch(headers.get("origin") or "") is None:
        raise status.forbidden("a WebSocket requires an Origin header with a URL")
    accepted = generate_accept_token(key.encode()).decode()
    lines = [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accepted)]
    if protocol := _protocol(headers):
        lines.append(("Sec-WebSocket-Protocol", protocol))
    return header_block(lines)


def _protocol(headers: Headers) -> str:
    """The subprotocol to confirm, or none. Raises 400 if there are several: none is preferred."""
    asked = ",".join(headers.get_all("sec-websocket-protocol")).split(",")
    protocols = [each.strip() for each in asked if each.strip()]
    others = [each for each in protocols if not each.startswith(BEARER_PROTOCOL)]
    if len(others) > 1:
        raise status.bad_request("at most one WebSocket subprotocol is supported")
    if others and _PROTOCOL.fullmatch(others[0]) is None:
        raise status.bad_request("a WebSocket subprotocol must be a token")
    return others[0] if others else ""
