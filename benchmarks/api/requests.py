"""Sends requests with wrk, by Lua scripts that are generated here."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.api.target import Target, on_other_cores

NAMESPACE = "restow-bench"
COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DATA = {f"key-{number}": "x" * 90 for number in range(10)}  # about 1 KB

_DONE = """
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"microseconds":%d,"bad":%d,"lost":%d,"p50":%.3f,"p99":%.3f}\\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """The result of a wrk run."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU time of the server per request, if known."""


def get(target: Target, *, seconds: int, connections: int) -> Rate:
    """Reads of one object."""
    return _run(target, get_script(target), seconds, connections)


def list_all(target: Target, *, seconds: int, connections: int) -> Rate:
    """Lists of the whole namespace."""
    return _run(target, list_script(target), seconds, connections)


def create(target: Target, *, seconds: int, connections: int, name: str) -> Rate:
    """Creates of new objects."""
    return _run(target, create_script(target, name), seconds, connections)


def update(target: Target, *, seconds: int, connections: int, items: int, mark: str = "") -> Rate:
    """Updates, without a precondition, of existing objects; each has a different content.

    Use another `mark` in each run, so that the content differs from that of an earlier run."""
    return _run(target, update_script(target, items, mark), seconds, connections)


def update_nothing(target: Target, *, seconds: int, connections: int) -> Rate:
    """Updates of one object, all but the first with its current content."""
    script = _body_script(target, "PUT", f'"{COLLECTION}/" .. name', '"item-000000"', note='"same"')
    return _run(target, script, seconds, connections)


def get_script(target: Target) -> str:
    return _plain(target, f"{COLLECTION}/item-000000")


def list_script(target: Target) -> str:
    return _plain(target, COLLECTION)


def create_script(target: Target, name: str) -> str:
    return _body_script(target, "POST", f'"{COLLECTION}"', f'"{name}-" .. id .. "-" .. count')


def update_script(target: Target, items: int, mark: str) -> str:
    return _of_items(target, "PUT", items, mark)


def patch_script(target: Target, items: int, mark: str) -> str:
    """Merge patches of existing objects; each has a different content."""
    return _of_items(target, "PATCH", items, mark, form="application/merge-patch+json")


def _of_items(
    target: Target, method: str, items: int, mark: str, *, form: str = "application/json"
) -> str:
    number = f'string.format("item-%06d", (count * 64 + id) % {items})'
    path, note = f'"{COLLECTION}/" .. name', f'"{mark}" .. count'
    return _body_script(target, method, path, number, note=note, form=form)


def _plain(target: Target, path: str) -> str:
    return f"""
wrk.headers["Authorization"] = "Bearer {target.token}"
wrk.headers["Accept"] = "application/json"
wrk.path = "{path}"
{_DONE}"""


def _body_script(
    target: Target,
    method: str,
    path: str,
    name: str,
    *,
    note: str = "count",
    form: str = "application/json",
) -> str:
    data = json.dumps(DATA).replace("\\", "\\\\").replace("'", "\\'")
    return f"""
local threads = 0
setup = function(thread) thread:set("id", threads); threads = threads + 1 end
local count = 0
local headers = {{
  ["Authorization"] = "Bearer {target.token}",
  ["Content-Type"] = "{form}",
  ["Accept"] = "application/json",
}}
local data = '{data}'
request = function()
  count = count + 1
  local name = {name}
  local body = '{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"' .. name ..
    '","annotations":{{"n":"' .. {note} .. '"}}}},"data":' .. data .. '}}'
  return wrk.format("{method}", {path}, headers, body)
end
{_DONE}"""


def _run(target: Target, script: str, seconds: int, connections: int) -> Rate:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "script.lua"
        file.write_text(script)
        before = target.cpu_seconds()
        done = subprocess.run(
            command(target, file, seconds=seconds, connections=connections),
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=on_other_cores,
        )
        cpu = target.cpu_seconds() - before
    return rate_of(target, done.stdout, cpu)


def command(target: Target, script: Path, *, seconds: int, connections: int) -> list[str]:
    """The wrk command line for a script."""
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), target.url]


def rate_of(target: Target, printed: str, cpu_seconds: float) -> Rate:
    """Parse the output of a wrk run."""
    line = next(line for line in printed.splitlines() if line.startswith("RESULT "))
    found = json.loads(line.removeprefix("RESULT "))
    if found["bad"] or found["lost"] or not found["requests"]:
        raise SystemExit(f"{target.name}: requests failed: {found}")
    return Rate(
        per_second=found["requests"] / (found["microseconds"] / 1e6),
        p50_ms=found["p50"],
        p99_ms=found["p99"],
        cpu_us=cpu_seconds / found["requests"] * 1e6,
    )
