"""`python -m benchmarks.tls_layers.steps`: the longest iteration of the event loop under an attack.

The listener runs in this process, with an application that returns 401, on one TLS layer after the
other. One attack comes from another process. Measured is the CPU time of the event loop's thread
between two iterations: an authenticated client waits at least for that. Other load on the machine
does not count, and one run is enough to distinguish 1 ms from 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.tls_layers import event_loop_tls
from restow.aio import Runtime
from restow.httpserver import HttpRequest, HttpResponse, Listener, TlsFiles, TlsMaterial, server
from restow.httpserver.shared_port import SharedPort
from tests.support.certificates import CertificateFiles, make_certificate
from tests.support.key_updates import keep_secrets, key_updates

KEY_UPDATES: Final = 20_000
SHORT_RECORDS: Final = 20_000
HANDSHAKES: Final = 200
SETTLE_SECONDS: Final = 1.0


class MemoryClient:
    """A client whose TLS is in memory."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self._port = port

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)

    def hello(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    async def handshake(self) -> None:
        await self.connect()
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(self.outgoing.read())
                self.incoming.write(await self.reader.read(1 << 16))
        self.writer.write(self.outgoing.read())


async def attack_key_updates(context: ssl.SSLContext, port: int, directory: Path) -> None:
    """20,000 KeyUpdate messages of one client."""
    keep_secrets(context, directory / "secrets")
    client = MemoryClient(context, port)
    await client.handshake()
    client.writer.write(key_updates(directory / "secrets", client.tls, KEY_UPDATES))
    await asyncio.sleep(SETTLE_SECONDS)


async def attack_short_records(context: ssl.SSLContext, port: int, _directory: Path) -> None:
    """20,000 records of one byte of one client."""
    client = MemoryClient(context, port)
    await client.handshake()
    for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * SHORT_RECORDS:
        client.tls.write(bytes([byte]))
    client.writer.write(client.outgoing.read())
    await asyncio.sleep(SETTLE_SECONDS)


async def attack_handshakes(context: ssl.SSLContext, port: int, _directory: Path) -> None:
    """200 clients that send their ClientHello at the same time, after a first byte of it."""
    clients = [MemoryClient(context, port) for _ in range(HANDSHAKES)]
    hellos = [client.hello() for client in clients]
    for client, hello in zip(clients, hellos, strict=True):
        await client.connect()
        client.writer.write(hello[:1])
    await asyncio.sleep(SETTLE_SECONDS)
    for client, hello in zip(clients, hellos, strict=True):
        client.writer.write(hello[1:])
    await asyncio.sleep(SETTLE_SECONDS)


ATTACKS: Final[dict[str, Callable[[ssl.SSLContext, int, Path], Coroutine[Any, Any, None]]]] = {
    "key_updates": attack_key_updates,
    "short_records": attack_short_records,
    "handshakes": attack_handshakes,
}


def refuse(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(401)


async def longest_step(layer: str, attack: str, files: CertificateFiles) -> float:
    """CPU seconds of the longest iteration."""
    port = SharedPort if layer == "own" else event_loop_tls.EventLoopPort
    setattr(server, "SharedPort", port)  # noqa: B010 - not a name of its interface
    event_loop_tls.use_contexts(limited=layer == "limited")
    material = TlsMaterial(TlsFiles(cert_file=files.cert_file, key_file=files.key_file))
    listener = await Listener.start(
        refuse, bind="127.0.0.1", port=0, runtime=Runtime.system(), tls=material
    )
    words = [sys.executable, "-m", __spec__.name, "--attack", attack]
    words += [str(listener.port), str(files.ca_file)]
    attacker = subprocess.Popen(words)  # noqa: ASYNC220 - nothing is measured yet
    longest, before = 0.0, time.thread_time()
    while attacker.poll() is None:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await listener.stop(grace_seconds=0)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(prog=__spec__.name, description=__doc__)
    parser.add_argument("--attack", choices=ATTACKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("target", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restow-tls-") as path:
        if arguments.target:
            port, ca_file = arguments.target
            os.nice(10)
            context = ssl.create_default_context(cafile=ca_file)
            asyncio.run(ATTACKS[arguments.attack](context, int(port), Path(path)))
            return
        files = make_certificate(Path(path), name="localhost")
        gc.disable()
        print(f"{'longest iteration, ms of CPU':30} {'own':>8} {'plain':>8} {'limited':>8}")
        for attack in ATTACKS:
            found: dict[str, list[float]] = {"own": [], "plain": [], "limited": []}
            for _ in range(arguments.rounds):
                for layer, seconds in found.items():
                    seconds.append(uvloop.run(longest_step(layer, attack, files)))
            line = "".join(f" {sorted(each)[len(each) // 2] * 1e3:8.2f}" for each in found.values())
            print(f"{attack:30}{line}", flush=True)


if __name__ == "__main__":
    main()
