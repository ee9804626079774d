"""Requests for a sign-in link, and each possible response."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from restow.aio import SimulatedClock
from restow.apimachinery.status import Forbidden
from restow.client import ConnectionFailed, InProcessResponse, InProcessTransport
from restow.dashboard.links import ANSWER_SECONDS_MAX, TICKETS_PATH, login_link


def transport_of(status: int, body: bytes) -> InProcessTransport:
    async def answer(
        method: str, target: str, _headers: Mapping[str, str], _body: bytes
    ) -> InProcessResponse:
        assert (method, target) == ("POST", TICKETS_PATH)
        return InProcessResponse(status, body)

    return InProcessTransport(answer, server="https://one:1")


async def test_a_link_is_made_by_the_server() -> None:
    """The link is the server's, absolute or resolved, with its expiry."""
    expires = b'"expires":"2024-01-01T00:15:00+00:00"'
    for url in (b"https://one:1/dashboard/login#t", b"/dashboard/login#t"):
        transport = transport_of(201, b'{"url":"%b",%b}' % (url, expires))
        link = await login_link(transport, SimulatedClock())
        assert link.url == "https://one:1/dashboard/login#t"
        assert link.expires.minute == 15


async def test_a_refusal_is_the_server_s_error() -> None:
    """A failure Status is raised with its message."""
    transport = transport_of(
        403, b'{"kind":"Status","reason":"Forbidden","message":"no","code":403}'
    )
    with pytest.raises(Forbidden, match="no"):
        await login_link(transport, SimulatedClock())


async def test_an_answer_that_is_no_link_is_a_failure() -> None:
    """The response of another kind of server is rejected."""
    with pytest.raises(ConnectionFailed, match="not a link"):
        await login_link(transport_of(201, b"<html>"), SimulatedClock())


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    """After the time-out, the error says so and what to check."""
    clock = SimulatedClock()

    async def never(
        _method: str, _target: str, _headers: Mapping[str, str], _body: bytes
    ) -> InProcessResponse:
        await clock.sleep(ANSWER_SECONDS_MAX * 10)
        raise AssertionError

    with pytest.raises(ConnectionFailed, match="ready"):
        await clock.run_until_done(login_link(InProcessTransport(never), clock))
