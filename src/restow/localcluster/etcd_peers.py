"""Updates the peer URLs of etcd members, for the change to TLS.

It uses etcd's JSON gateway, with the client certificate of the cluster: gRPC must not be loaded in
a process that forks. Not here: when it is done (`supervisor`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from restow.aio import Backoff, Runtime
from restow.apimachinery.cipher_suites import DEFAULT_CIPHERS
from restow.apiserver.pki import ETCD_CA_FILE, ETCD_CLIENT_FILES
from restow.localcluster.errors import ClusterFailed
from restow.localcluster.etcd import HOST
from restow.localcluster.layout import Layout
from restow.localcluster.state import EtcdState

CALL_SECONDS_MAX: Final = 5.0
ATTEMPTS_MAX: Final = 10
ANSWER_BYTES_MAX: Final = 1024 * 1024
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=2, jitter=0.5)


async def move_peers(
    members: Sequence[EtcdState], urls: Mapping[str, str], *, layout: Layout, runtime: Runtime
) -> None:
    """Set the peer URL of each named member.

    Correct URLs are kept. Raises ClusterFailed; some members may be updated then.
    """
    context, last = await asyncio.to_thread(_make_context, layout), ""
    for failures in range(ATTEMPTS_MAX):
        port = members[failures % len(members)].client_port
        try:
            async with runtime.clock.timeout(CALL_SECONDS_MAX):
                await _move(port, context, urls)
        except (OSError, TimeoutError, ValueError) as error:
            last = str(error) or "no response in time"
            await runtime.clock.sleep(BACKOFF.delay_seconds(failures, runtime.randomness))
        else:
            return
    raise ClusterFailed(f"the peer URLs of etcd could not be changed to TLS: {last}")


async def _move(port: int, context: ssl.SSLContext, urls: Mapping[str, str]) -> None:
    found = await _call(port, context, "list", {"linearizable": True})
    members = {each.get("name", ""): each for each in found.get("members", ())}
    if missing := sorted(urls.keys() - members.keys()):  # it would keep its old URL
        raise ValueError(f"it has no member {missing[0]}")
    for name, url in urls.items():
        if members[name].get("peerURLs") != [url]:
            change = {"ID": members[name].get("ID"), "peerURLs": [url]}
            await _call(port, context, "update", change)


async def _call(port: int, context: ssl.SSLContext, verb: str, body: object) -> dict[str, Any]:
    """Call one member. Raises OSError and ValueError."""
    data = msgspec.json.encode(body)
    head = (
        f"POST /v3/cluster/member/{verb} HTTP/1.0\r\nHost: {HOST}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    try:
        writer.write(head.encode() + data)
        answer = b""
        while len(answer) <= ANSWER_BYTES_MAX and (more := await reader.read(ANSWER_BYTES_MAX)):
            answer += more
    finally:
        writer.close()
    first, _, rest = answer.partition(b"\r\n\r\n")
    if b" 200 " not in first.partition(b"\r\n")[0]:
        raise ValueError(f"unexpected response {answer[:500].decode(errors='replace')!r}")
    return msgspec.json.decode(rest, type=dict[str, Any])


def _make_context(layout: Layout) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(layout.pki / ETCD_CA_FILE))
    context.set_ciphers(DEFAULT_CIPHERS)
    certificate, key = (layout.pki / name for name in ETCD_CLIENT_FILES)
    context.load_cert_chain(certificate, key)
    return context
