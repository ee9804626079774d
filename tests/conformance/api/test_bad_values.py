"""Bad values with every verb that can carry them: the right 4xx, and no change.

A value that create refuses and a patch accepts is a hole, so every verb is tested. The server is a
real process with full admission and validation, so that its CPU time and memory can be measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.conformance.api.bad_values.differences import DIFFERENCES
from tests.conformance.api.bad_values.matrix import VERBS, Bad, Raw, Request, Whole
from tests.conformance.api.bad_values.setting import CASES, good_of, prepare, requests_of
from tests.conformance.custom.servers import place_of
from tests.support.api_client import ApiClient, Reply
from tests.support.server_process import ServerProcess

NAMES_MIN: Final = 300
CPU_SECONDS_MAX: Final = 5.0
MEMORY_MIB_MAX: Final = 100.0
ANSWER_BYTES_MAX: Final = 128 * 1024
REASONS: Final = {
    400: "BadRequest",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bad")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(server: ServerProcess) -> AsyncIterator[ApiClient]:
    client = place_of(server).client()
    await prepare(client)
    yield client
    await client.close()


class Usage:
    """What a case costs the server: CPU time, and peak memory."""

    def __init__(self, server: ServerProcess) -> None:
        assert server.process is not None
        self._directory = Path(f"/proc/{server.process.pid}")
        (self._directory / "clear_refs").write_text("5")  # resets the peak
        self._seconds = self._cpu_seconds()
        self._mib = self._memory_mib("VmRSS")

    def check(self) -> None:
        assert self._cpu_seconds() - self._seconds < CPU_SECONDS_MAX
        assert self._memory_mib("VmHWM") - self._mib < MEMORY_MIB_MAX

    def _cpu_seconds(self) -> float:
        fields = (self._directory / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def _memory_mib(self, name: str) -> float:
        for line in (self._directory / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        raise AssertionError(name)


def test_number_of_cases() -> None:
    """Names are unique, and enough cases go through every verb."""
    counted = Counter(case.name for case in CASES)
    assert [name for name, times in counted.items() if times > 1] == []
    whole = [case for case in CASES if set(case.codes) == set(VERBS)]
    assert len(whole) >= NAMES_MIN


def test_documented_differences_are_tested() -> None:
    """Each documented difference from the reference is one of the cases."""
    asked = {(case.name, verb): code for case in CASES for verb, code in case.codes.items()}
    for difference in DIFFERENCES:
        for key in difference.requests():
            assert asked[key] != difference.code, key
    said = [key for difference in DIFFERENCES for key in difference.requests()]
    assert len(said) == len(set(said))
    assert len(said) < 0.05 * len(asked)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_bad_values(server: ServerProcess, api: ApiClient, case: Bad | Raw | Whole) -> None:
    """Every verb gets the right Status, and no object has changed."""
    usage = Usage(server)
    before = await _objects(api, case)
    for request in await requests_of(api, case):
        reply = await api.request(
            request.method, request.target, request.body, content_type=request.content_type
        )
        _check(request, reply)
    usage.check()
    assert await _objects(api, case) == before


def _check(request: Request, reply: Reply) -> None:
    assert reply.status == request.code, (request.verb, reply.body[:500])
    found = reply.json
    assert (found["kind"], found["status"], found["code"]) == ("Status", "Failure", reply.status)
    assert found["reason"] == REASONS[reply.status]
    assert found["message"]
    assert len(reply.body) < ANSWER_BYTES_MAX
    assert "x-evil" not in reply.headers


async def _objects(api: ApiClient, case: Bad | Raw | Whole) -> dict[str, Any]:
    """All objects of the case's kind, without the fields that the server itself writes."""
    found = {}
    for item in (await api.get(good_of(case).collection)).json["items"]:
        item.pop("status", None)
        for name in ("resourceVersion", "managedFields"):
            item["metadata"].pop(name, None)
        found[item["metadata"]["name"]] = item
    return found
