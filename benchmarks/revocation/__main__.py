"""`python -m benchmarks.revocation`: cost of checking the authorization of running watches again.

In one process, on a store in memory, with the authenticators and the authorizer of a server and
watches of service accounts that send nothing. Measured for several numbers of distinct accounts,
with and without a change of roles since the previous check, which drops all cached decisions:

    CPU of a check of all watches, and the part of a core that one every CHECK_SECONDS takes
    CPU per distinct sender
    the longest step of the event loop meanwhile, in CPU time
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from typing import Final

import uvloop

from restow.aio import Runtime
from restow.authentication import service_accounts_claims
from restow.endpoints.revocation import CHECK_SECONDS
from restow.httpserver import HttpRequest, PushStream, StreamWriter
from restow.httpserver.request import Headers, Peer
from restow.registry.errors import DoAgain
from restow.request.context import Context
from restow.request.request_info import parse_request
from restow.storage.memory import MemoryStorage
from tests.conformance.api.rights import binding, freshen, place, role, rule
from tests.conformance.api.servers import NS, RunningServer, start_server
from tests.conformance.api.test_service_accounts import AUDIENCE, ISSUER, KEY, RULES

RESOURCES: Final = ("configmaps", "secrets", "pods", "services", "endpoints", "events")
ROLES: Final = 50
"""Bindings that do not concern the accounts, and must be skipped for each decision."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.revocation", description=__doc__)
    parser.add_argument("--watches", type=int, default=9_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    uvloop.run(_measure(arguments.watches, arguments.rounds))


async def _measure(watches: int, rounds: int) -> None:
    storage = MemoryStorage()
    server = await start_server(storage, accounts=RULES)
    try:
        await _fill(server)
        for accounts in sorted({1, max(1, watches // 30), watches}):
            await _report(server, accounts, watches, rounds)
    finally:
        await server.stop()
        await storage.close()


async def _fill(server: RunningServer) -> None:
    """Create the roles: one for all service accounts, and others."""
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    rules = role("watcher", rule("get list watch", " ".join(RESOURCES)))
    await server.client.post(place("clusterroles"), rules)
    group = "system:serviceaccounts:default"
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    for number in range(ROLES):
        other = {**subject, "name": f"group-{number}"}
        await server.client.post(
            place("clusterrolebindings"), binding(f"other-{number}", "watcher", other)
        )
    await server.client.post(
        place("rolebindings", "default"), binding("watcher", "watcher", subject)
    )
    await freshen(server)


async def _report(server: RunningServer, accounts: int, watches: int, rounds: int) -> None:
    revocation = server.assembly.app.revocation
    writers = await _open(server, accounts, watches)
    assert len(revocation.requests) == watches
    await revocation.check_all()
    for is_changed in (False, True):
        found: list[tuple[float, float]] = []
        for _ in range(rounds):
            if is_changed:
                await _change_roles(server)
            found.append(await _check(server))
        seconds, longest = (median(each[number] for each in found) for number in (0, 1))
        print(
            f"{watches} watches of {accounts} accounts{', roles changed' * is_changed}:"
            f" {seconds * 1e3:.1f} ms, {seconds / CHECK_SECONDS:.2%} of a core every"
            f" {CHECK_SECONDS:.0f} s, {seconds / accounts * 1e6:.0f} us per account,"
            f" longest step {longest * 1e3:.1f} ms"
        )
    assert not revocation.ended
    for writer in writers:
        writer.close()
    assert len(revocation.requests) == 0


async def _change_roles(server: RunningServer) -> None:
    """A change of one binding drops all cached decisions."""
    path = f"{place('clusterrolebindings')}/other-0"
    changed = {"metadata": {"labels": {"changed": str(time.monotonic_ns())}}}
    assert (await server.client.patch(path, changed)).status == 200
    await freshen(server)


async def _open(server: RunningServer, accounts: int, watches: int) -> list[StreamWriter]:
    """Register watches, each with its own headers, as of its own connection."""
    tokens = [await _token(server, f"account-{number}") for number in range(accounts)]
    app = server.assembly.app
    writers = []
    for number in range(watches):
        path = f"{NS}/{RESOURCES[number // accounts % len(RESOURCES)]}"
        lines = [
            ("host", "127.0.0.1:6443"),
            ("user-agent", f"controller/{number}"),
            ("accept", "application/json"),
            ("authorization", f"Bearer {tokens[number % accounts]}"),
        ]
        request = HttpRequest("GET", path, "watch=1", Headers(lines), b"", Peer(number), 0.0)
        context = Context(request, parse_request("GET", f"{path}?watch=1"))
        try:
            app.access.admit(context)
        except DoAgain as lack:  # the first one loads the accounts
            await lack.settle()
            app.access.admit(context)
        answer = PushStream(200, lambda _: None)
        app.revocation.requests.add(context, answer)
        writer = StreamWriter(_Nowhere(), lambda _: None, chunked=True)
        answer.start(writer)
        writers.append(writer)
    return writers


class _Nowhere:
    """A connection that sends nothing."""

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None: ...

    def stream_abort(self) -> None: ...


async def _token(server: RunningServer, name: str) -> str:
    path = f"{NS}/serviceaccounts"
    reply = await server.client.post(path, {"metadata": {"name": name}})
    if reply.status == 409:
        reply = await server.client.get(f"{path}/{name}")
    now = int(Runtime.system().clock.wall().timestamp())
    claims = service_accounts_claims.make(
        issuer=ISSUER,
        namespace="default",
        account=(name, reply.json["metadata"]["uid"]),
        audiences=[AUDIENCE],
        bound={},
        token_id=name,
        now=now,
        expires=now + 3600,
    )
    return KEY.sign(claims)


async def _check(server: RunningServer) -> tuple[float, float]:
    """CPU of one check of all watches, and of the longest step of the event loop meanwhile."""
    longest, is_done = 0.0, False

    async def others() -> None:
        nonlocal longest
        last = time.thread_time()
        while not is_done:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watcher = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = time.process_time()
    await server.assembly.app.revocation.check_all()
    seconds = time.process_time() - before
    is_done = True
    await watcher
    return seconds, longest


if __name__ == "__main__":
    main()
