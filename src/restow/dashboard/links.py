"""Asking a server for a link that lets a person in: once, and for some minutes.

    link = await login_link(HttpTransport(load_config(path), clock=clock), clock)
    print(link.url)

The link stands for the user whose credential the transport sends. Whoever opens it is in as that
user, for reading; so it is printed for the person at the terminal and put nowhere else.
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
    """An address for a browser, and until when it can be opened."""

    url: str
    expires: datetime


class _Minted(msgspec.Struct):
    url: str
    expires: datetime


async def login_link(
    transport: Transport, clock: Clock, *, seconds_max: float = ANSWER_SECONDS_MAX
) -> LoginLink:
    """Have a link made. Raises a StatusError, or ConnectionFailed when no server answers."""
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
            transport.server, f"its answer is no link: {error}", advice="Is it a restow server?"
        ) from error
    url = minted.url if "://" in minted.url else transport.server.rstrip("/") + minted.url
    return LoginLink(url, minted.expires)
