"""Requests a sign-in link for the dashboard: valid once, for some minutes.

    link = await login_link(HttpTransport(load_config(path), clock=clock), clock)
    print(link.url)

The link is for the user whose credential the transport sends. A browser that opens it is signed in
as that user, read-only; so it is printed on the terminal and not stored or logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from restow.aio import Clock
from restow.client import ConnectionFailed, Transport
from restow.client.errors import status_of_answer
from restow.client.transport import ClientRequest

TICKETS_PATH: Final = "/dashboard/tickets"
ANSWER_BYTES_MAX: Final = 64 * 1024
ANSWER_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class LoginLink:
    """The URL for a browser, and its expiration."""

    url: str
    expires: datetime


class _Minted(msgspec.Struct):
    url: str
    expires: datetime


async def login_link(
    transport: Transport, clock: Clock, *, seconds_max: float = ANSWER_SECONDS_MAX
) -> LoginLink:
    """Request a link. Raises a StatusError, or ConnectionFailed when no server responds."""
    request = ClientRequest(
        method="POST", target=TICKETS_PATH, headers=(("Accept", "application/json"),)
    )
    try:
        async with clock.timeout(seconds_max), transport.send(request) as response:
            body = await response.read(bytes_max=ANSWER_BYTES_MAX)
    except TimeoutError:
        what = f"no answer within {seconds_max:g} s"
        raise ConnectionFailed(transport.server, what, advice="Is the server ready?") from None
    if response.status != 201:
        raise status_of_answer(response.status, response.headers, body)
    try:
        minted = msgspec.json.decode(body, type=_Minted)
    except msgspec.MsgspecError as error:
        raise ConnectionFailed(
            transport.server,
            f"its response is not a link: {error}",
            advice="Is it a restow server?",
        ) from error
    url = minted.url if "://" in minted.url else transport.server.rstrip("/") + minted.url
    return LoginLink(url, minted.expires)
