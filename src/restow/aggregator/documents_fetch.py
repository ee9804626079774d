"""Fetches one document from the server of an aggregated API, bounded in time and size.

Redirects are not followed: the backend could direct this server, with its trusted client
certificate, to any address. Every error becomes a FetchFailed.

Not here: which documents exist, and their content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aggregator.interface import Backends, RemoteApi
from restow.aio import Clock
from restow.client.errors import ConnectionFailed
from restow.client.transport import ClientRequest, ClientResponse

TAG_CHARACTERS_MAX: Final = 256

# Identity of this server. Backends know the name and let it read their discovery documents.
IDENTITY: Final = (
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-Group", "system:masters"),
)
_NOT_MODIFIED: Final = 304


class FetchFailed(Exception):
    """The document could not be fetched. The message contains the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A document to fetch."""

    target: str
    accept: str = "application/json"
    bytes_max: int
    seconds_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A response. Only one with status 200 has a body."""

    status: int
    content_type: str = ""
    tag: str = ""
    body: bytes = b""

    @property
    def is_unchanged(self) -> bool:
        return self.status == _NOT_MODIFIED


async def fetch(
    backends: Backends, api: RemoteApi, wanted: Wanted, *, clock: Clock, tag: str = ""
) -> Fetched:
    """Fetch once. With the ETag of an earlier response, an unchanged document is not sent again.

    Raises FetchFailed; a 4xx is a response, every other status except 200 and 304 is an error.
    """
    headers = [("Accept", wanted.accept), *IDENTITY]
    if tag:
        headers.append(("If-None-Match", tag))
    request = ClientRequest(method="GET", target=wanted.target, headers=tuple(headers))
    try:
        async with clock.timeout(wanted.seconds_max), backends.send(api, request) as response:
            return await _read(response, wanted, is_tagged=bool(tag))
    except TimeoutError as error:
        raise FetchFailed(f"{wanted.target}: no response in {wanted.seconds_max:g} s") from error
    except (ConnectionFailed, ValueError) as error:
        raise FetchFailed(f"{wanted.target}: {error}") from error


async def _read(response: ClientResponse, wanted: Wanted, *, is_tagged: bool) -> Fetched:
    status = response.status
    if status == 200:
        return Fetched(
            status=status,
            content_type=response.headers.get("content-type", ""),
            tag=_usable(response.headers.get("etag", "")),
            body=await response.read(bytes_max=wanted.bytes_max),
        )
    if status == _NOT_MODIFIED and is_tagged:
        return Fetched(status=status)
    if 300 <= status < 400:
        raise FetchFailed(f"{wanted.target}: the response is a redirect ({status}), not followed")
    if 400 <= status < 500:
        return Fetched(status=status)
    raise FetchFailed(f"{wanted.target}: the response has status {status}")


def _usable(tag: str) -> str:
    """The ETag if it can be sent back, else nothing."""
    is_plain = len(tag) <= TAG_CHARACTERS_MAX and all(" " < each <= "~" for each in tag)
    return tag if is_plain else ""
