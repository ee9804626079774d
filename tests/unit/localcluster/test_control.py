"""The control socket, from both ends."""

from __future__ import annotations

import asyncio
import os
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from restow.aio import Runtime
from restow.localcluster.control import CALLERS_MAX, SOCKET_NAME, ControlServer, socket_address
from restow.localcluster.control_client import ControlClient
from restow.localcluster.errors import ControlRefused, NoClusterRuns
from restow.localcluster.messages import ControlReply, ControlRequest, ProcessOverview, ProcessView

OVERVIEW = ProcessOverview(
    pid=1,
    data_dir="d",
    kubeconfig="k",
    front_url="https://127.0.0.1:6443",
    store="sqlite",
    is_ready=True,
    processes=(
        ProcessView(name="etcd-0", state="ready"),
        ProcessView(name="server-0", state="ready", index=0, port=6444, release="x"),
    ),
)


class Handler:
    """Records the requests, and replies as configured."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []

    async def __call__(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        self.requests.append(request)
        if request.verb == "restart":
            raise ControlRefused("there is no such process")
        if request.verb == "roll":
            yield ControlReply(progress="one")
            yield ControlReply(progress="two")
        yield ControlReply(overview=OVERVIEW)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def place(tmp_path: Path, handler: Handler) -> AsyncIterator[Path]:
    """A directory whose path is too long for a socket address."""
    folder = tmp_path / ("long-" * 30)
    folder.mkdir()
    server = await ControlServer.start(handler, runtime=Runtime.system(), data_dir=folder)
    yield folder
    await server.close()
    assert not (folder / SOCKET_NAME).exists()


async def send(folder: Path, line: bytes) -> bytes:
    with socket_address(folder) as address:
        reader, writer = await asyncio.open_unix_connection(address)
    writer.write(line)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_question_is_answered(place: Path, handler: Handler) -> None:
    """The overview is transferred unchanged, and `servers` contains only servers."""
    found = await ControlClient(place).overview()
    assert found == OVERVIEW
    assert [each.name for each in found.servers] == ["server-0"]
    assert handler.requests == [ControlRequest(verb="list")]


async def test_it_is_for_the_owner_only(place: Path) -> None:
    """Only the owner can open the socket."""
    assert (place / SOCKET_NAME).stat().st_mode & 0o777 == 0o600


async def test_progress_comes_before_the_end(place: Path) -> None:
    """The client receives progress messages."""
    said: list[str] = []
    request = ControlRequest(verb="roll", server=0, release="x+1")
    assert await ControlClient(place).ask(request, on_progress=said.append) == OVERVIEW
    assert said == ["one", "two"]


async def test_a_refusal_has_the_words_of_the_supervisor(place: Path) -> None:
    """A refusal is raised with the supervisor's reason."""
    with pytest.raises(ControlRefused, match="there is no such process"):
        await ControlClient(place).ask(ControlRequest(verb="restart", name="y"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"hello\n", "invalid request"),
        (b"\n", "invalid request"),
        (b'{"verb":"explode"}\n', "invalid request"),
        (b'{"version":2,"verb":"list"}\n', "another version of restow"),
        (b'{"verb":"list","name":"\xff"}\n', "invalid request"),
        (b'{"verb":"list","more":' + b"[" * 200_000 + b"}\n", "invalid request"),
    ],
)
async def test_invalid_requests_are_rejected(
    place: Path, handler: Handler, line: bytes, words: str
) -> None:
    """Invalid requests and other versions get an error, and nothing is executed."""
    answer = msgspec.json.decode(await send(place, line), type=ControlReply)
    assert words in answer.error
    assert handler.requests == []


async def test_a_line_without_end_is_refused(place: Path) -> None:
    """A long line cannot exhaust memory: the connection is closed, and others are served."""
    with suppress(ConnectionError):
        assert b"invalid request" in await send(place, b"x" * 2_000_000)
    assert await ControlClient(place).overview() == OVERVIEW


async def test_a_caller_that_leaves_does_no_harm(place: Path) -> None:
    """Other clients are served."""
    with socket_address(place) as address:
        _, writer = await asyncio.open_unix_connection(address)
    writer.close()
    assert await ControlClient(place).overview() == OVERVIEW


@pytest.mark.parametrize("exists", [True, False])
async def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path, exists: bool) -> None:
    """For an empty or missing directory the error says how to start a cluster."""
    with pytest.raises(NoClusterRuns, match="restow up --data-dir"):
        await ControlClient(tmp_path if exists else tmp_path / "none").overview()


async def connected(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with socket_address(folder) as address:
        return await asyncio.open_unix_connection(address)


async def test_silent_callers_are_disconnected(tmp_path: Path, handler: Handler) -> None:
    """Callers that send no request, or half of one, do not lock out others: while they hold all
    connections another caller gets the reason, and after a time they are disconnected."""
    server = await ControlServer.start(
        handler, runtime=Runtime.system(), data_dir=tmp_path, peer_seconds=1.0
    )
    silent = [await connected(tmp_path) for _ in range(CALLERS_MAX)]
    silent[0][1].write(b'{"verb":')
    with pytest.raises(ControlRefused, match="too many commands"):
        await ControlClient(tmp_path).overview()
    async with asyncio.timeout(20):
        for reader, writer in silent:
            assert b"no request" in await reader.read()
            writer.close()
    assert await ControlClient(tmp_path).overview() == OVERVIEW
    await server.close()


async def test_a_caller_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    """A stopped caller does not hold a connection forever."""
    ended = asyncio.Event()

    async def endless(request: ControlRequest) -> AsyncIterator[ControlReply]:
        try:
            while True:
                yield ControlReply(progress="x" * 100_000)
        finally:
            ended.set()

    server = await ControlServer.start(
        endless, runtime=Runtime.system(), data_dir=tmp_path, peer_seconds=0.2
    )
    _, writer = await connected(tmp_path)
    writer.write(msgspec.json.encode(ControlRequest(verb="list")) + b"\n")
    async with asyncio.timeout(20):
        await ended.wait()
    writer.close()
    await server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_is_disconnected(tmp_path: Path, handler: Handler) -> None:
    """Another user is refused even if the modes let it connect."""
    server = await ControlServer.start(handler, runtime=Runtime.system(), data_dir=tmp_path)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        link = Path(folder) / SOCKET_NAME
        link.hardlink_to(tmp_path / SOCKET_NAME)
        link.chmod(0o666)
        code = (
            "import os, socket, sys; os.setgid(65534); os.setuid(65534);"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            """s.send(b'{"verb":"stop"}\\n'); print(s.recv(1))"""
        )
        child = await asyncio.create_subprocess_exec(
            "/usr/bin/env", "python3", "-c", code, str(link), stdout=PIPE, stderr=PIPE
        )
        out, errors = await child.communicate()
    assert out == b"b''\n" or b"ConnectionResetError" in errors or b"BrokenPipe" in errors
    assert handler.requests == []
    await server.close()
