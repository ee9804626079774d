"""The handshake of a WebSocket (RFC 6455, section 4): which requests ask for one, and the answer.

As the reference does: who asks must say where they come from (`Origin`), but anywhere will do. A
page shows a token of its own; a session's cookie does not open one. A browser that holds a
certificate shows that for any page, here as in every other request. Of protocols there is at most
one beside the token. It is told back as agreed, whatever it is: what is sent does not depend on it.

Not here: who it is (`restow.authentication`).
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
    """Whether a request would rather have a WebSocket. In HTTP/1.0 there is no such question."""
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
    """The header lines of the answer that agrees; or the refusal. Raises 400 or 403."""
    headers = request.headers
    if headers.get("sec-websocket-version") != VERSION:
        error = status.bad_request("missing or bad WebSocket Version")
        version_line = header_block([("Sec-WebSocket-Version", VERSION)])
        return HttpResponse(error.code, error.to_bytes(), JSON_HEADERS + version_line)
    key = headers.get("sec-websocket-key")
    if not key:
        raise status.bad_request("mismatch challenge/response: there is no Sec-WebSocket-Key")
    if _ORIGIN.fullmatch(headers.get("origin") or "") is None:
        raise status.forbidden("a WebSocket needs an Origin header that is a URL")
    accepted = generate_accept_token(key.encode()).decode()
    lines = [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accepted)]
    if protocol := _protocol(headers):
        lines.append(("Sec-WebSocket-Protocol", protocol))
    return header_block(lines)


def _protocol(headers: Headers) -> str:
    """The one that is agreed on, or none. Raises 400: nobody here could choose among several."""
    asked = ",".join(headers.get_all("sec-websocket-protocol")).split(",")
    protocols = [each.strip() for each in asked if each.strip()]
    others = [each for each in protocols if not each.startswith(BEARER_PROTOCOL)]
    if len(others) > 1:
        raise status.bad_request("a WebSocket can be asked for with one protocol only")
    if others and _PROTOCOL.fullmatch(others[0]) is None:
        raise status.bad_request("the protocol of a WebSocket is one word")
    return others[0] if others else ""
