"""`make prove`: the whole campaign, with a progress display, and a report in `proof/report.md`.

    model        exhaustive search through the protocol and its naive variants
    worlds       seeds of the simulator, every invariant checked at every commit
    advice       seeds in which operators request advice, compared with the raw store
    mutants      each rule removed, until a seed detects it
    processes    real servers on every store, every fault, under load; then every value is audited
    power cuts   at as many points of a workload on SQLite
    compatibility
                 stores and servers of an earlier restow, with the current code
    ledger       attacks on a cluster of `restow up`; every object is compared with the responses
                 that clients got

Each part can be left out, and each has a size. The report is also written if there are findings:
then the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.support.fire.run import FAULTS
from tests.support.fire.stores import STORES
from tests.support.sim.campaign import Tally, play_seeds
from tests.support.sim.coverage import advice_gaps, advice_table_of, gaps, table_of
from tests.support.sim.invariants import ROWS
from tests.support.sim.mutants import BY_NAME, seeds_for

ROOT: Final = Path(__file__).parents[1]
REPORT: Final = ROOT / "proof" / "report.md"
COMPATIBILITY: Final = "tests/e2e/compatibility"
LEDGER: Final = "tests/e2e/ledger"
LEDGER_LINE: Final = re.compile(r"^ledger (\| .*)$", re.MULTILINE)
POWER_CUTS: Final = "tests/unit/storage/sqlite/test_power_cut.py"
RUN_SECONDS_MAX: Final = 900.0
TRIES_OF_VOID_RUNS_MAX: Final = 3


@dataclass(slots=True)
class Part:
    """The result of one part."""

    title: str
    lines: list[str] = field(default_factory=list)
    """Lines of the report."""
    found: list[str] = field(default_factory=list)
    """Violations."""
    seconds: float = 0.0


class Progress:
    """A status line that is updated on a terminal; elsewhere a new line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, text: str, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if self._is_terminal:
            sys.stderr.write(f"\r\033[K{text}" + ("\n" if is_last else ""))
        elif is_last or now - self._shown_at > 30:
            sys.stderr.write(f"{text}\n")
            self._shown_at = now
        sys.stderr.flush()


async def model(_options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("The model")
    progress.show("model: searching")
    code, output = await _pytest("small", "tests/model")
    passed = re.search(r"(\d+) passed", output)
    part.lines.append(
        "An exhaustive search through the protocol with two and three incarnations, and through"
        f" each naive variant of it: {passed.group(1) if passed else 0} tests passed."
    )
    if code:
        part.found.append(output[-2000:])
    return part


async def worlds(options: argparse.Namespace, progress: Progress) -> Part:
    part, done = Part("Simulated worlds"), Tally()
    began = time.monotonic()

    def on_result(line: dict[str, Any]) -> None:
        done.add(line)
        rate = done.worlds / max(time.monotonic() - began, 0.001)
        left = (options.worlds - done.worlds) / rate / 60
        progress.show(
            f"worlds: {done.worlds} of {options.worlds}, {len(done.failed)} broken,"
            f" {left:.0f} min left"
        )

    seeds = range(options.first_seed, options.first_seed + options.worlds)
    tally = await play_seeds(seeds, jobs=options.jobs, on_result=on_result)
    modes = ", ".join(f"{count} {mode}" for mode, count in sorted(tally.modes.items()))
    settled = f"{tally.settled_seconds_max:.0f} s of simulated time"
    part.lines += [
        f"Seeds {seeds.start} to {seeds.stop - 1}: {modes}. The cluster had converged at most",
        f"{settled} after the last server ran the last release.",
        "",
        "```",
        table_of(tally),
        "```",
    ]
    part.found += [f"the campaign is void: {each}" for each in gaps(tally)]
    part.found += [
        f"seed {seed} (`python -m tests.support.sim play {seed} --shrink`): {problems[0]}"
        for seed, problems in sorted(tally.failed.items())
    ]
    return part


async def advice(options: argparse.Namespace, progress: Progress) -> Part:
    part, done = Part("Worlds with advice"), Tally()

    def on_result(line: dict[str, Any]) -> None:
        done.add(line)
        progress.show(
            f"advice: {done.worlds} of {options.advice_worlds}, {len(done.failed)} broken"
        )

    seeds = range(options.first_seed, options.first_seed + options.advice_worlds)
    tally = await play_seeds(seeds, jobs=options.jobs, is_advised=True, on_result=on_result)
    part.lines += [f"Seeds {seeds.start} to {seeds.stop - 1}.", "", "```"]
    part.lines += [advice_table_of(tally), "```"]
    part.found += [f"the campaign is void: {each}" for each in advice_gaps(tally)]
    part.found += [
        f"seed {seed} (`python -m tests.support.sim play {seed} --advice --shrink`): {problems[0]}"
        for seed, problems in sorted(tally.failed.items())
    ]
    return part


async def mutants(options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("Mutants")
    part.lines += ["| mutant | removed rule | caught by | violation |", "|---|---|---|---|"]
    for number, (name, mutant) in enumerate(BY_NAME.items()):
        progress.show(f"mutants: {number} of {len(BY_NAME)}, now {name}")
        seeds = seeds_for(name, options.mutant_seeds)
        tally = await play_seeds(
            seeds, jobs=options.jobs, mutant=name, stops=lambda line: bool(line["problems"])
        )
        if not tally.failed:
            part.found.append(f"{name} was not caught by {tally.worlds} worlds")
            continue
        seed, problems = min(tally.failed.items())
        seen = problems[0].partition(" s: ")[2].replace("|", "/")
        part.lines.append(f"| {name} | {mutant.what} | seed {seed} | {seen[:110]} |")
    caught = len(BY_NAME) - len(part.found)
    part.lines.insert(0, f"{caught} of {len(BY_NAME)} caught.\n")
    return part


async def processes(options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("Real processes")
    heads = (
        *("store", "fault", "acknowledged", "writes/s", "refused", "put off", "unknown"),
        *("watchers cut", "events", "revisions audited", "values audited", "problems"),
    )
    part.lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    runs = [
        (store, name, seed)
        for seed in range(1, options.rounds + 1)
        for store in STORES
        for name, fault in FAULTS.items()
        if store in fault.STORES
    ]
    for number, (store, fault, seed) in enumerate(runs):
        progress.show(f"processes: {number} of {len(runs)}, now {fault} on {store}")
        result = await _fire(store, fault, seed, options.fire_seconds)
        if isinstance(result, str):
            part.found.append(f"{fault} on {store}, seed {seed}: {result}")
            continue
        columns = (
            *("store", "fault", "acknowledged", "writes_per_second", "refused", "put_off"),
            *("unknown", "cuts", "events", "revisions", "values"),
        )
        cells = [_cell(result[name]) for name in columns]
        part.lines.append(f"| {' | '.join(cells)} | {len(result['problems'])} |")
        part.found += [f"{fault} on {store}, seed {seed}: {each}" for each in result["problems"]]
    return part


async def power_cuts(_options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("Power cuts")
    progress.show("power cuts: 10,000")
    code, output = await _pytest("prove", POWER_CUTS)
    part.lines.append(
        "10,000 power cuts at points spread over a workload on SQLite, with all, some, the"
        " first or none of the unsynced writes left: "
        + ("nothing acknowledged was lost, nothing was corrupt." if not code else "see above.")
    )
    if code:
        part.found.append(output[-2000:])
    return part


async def compatibility(_options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("Compatibility")
    progress.show("compatibility: stores and servers of an earlier restow")
    code, output = await _pytest("prove", COMPATIBILITY)
    passed = re.search(r"(\d+) passed", output)
    part.lines.append(
        "Stores of an earlier restow opened and upgraded, and its servers beside present ones:"
        f" {passed.group(1) if passed else 0} tests passed."
    )
    if code:
        part.found.append(output[-2000:])
    elif "skipped" in output:
        part.found.append("the part is void: the history of this checkout lacks the earlier commit")
    return part


async def ledger(_options: argparse.Namespace, progress: Progress) -> Part:
    part = Part("The ledger")
    heads = (
        *("attack", "operations", "acknowledged", "put off", "unknown", "CRD changes"),
        *("objects compared", "values audited", "problems"),
    )
    part.lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    progress.show("ledger: attacks on a cluster under load")
    code, output = await _pytest("prove", LEDGER, "-rP")
    part.lines += LEDGER_LINE.findall(output)
    if code:
        part.found.append(output[-4000:])
    elif "skipped" in output:
        part.found.append(f"the part is not complete: {output[-1000:]}")
    return part


PARTS: Final[dict[str, Callable[[argparse.Namespace, Progress], Awaitable[Part]]]] = {
    "model": model,
    "power-cuts": power_cuts,
    "compatibility": compatibility,
    "ledger": ledger,
    "worlds": worlds,
    "advice": advice,
    "mutants": mutants,
    "processes": processes,
}


async def _pytest(size: str, path: str, *words: str) -> tuple[int, str]:
    return await _run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", path, *words],
        {**os.environ, "RESTOW_TEST_SIZE": size},
        seconds_max=7200,
    )


async def _fire(store: str, fault: str, seed: int, seconds: float) -> dict[str, Any] | str:
    """The result of a valid run; or the reason why there was none."""
    why = ""
    for attempt in range(TRIES_OF_VOID_RUNS_MAX):
        command = [sys.executable, "-m", "tests.support.fire", "--store", store, "--fault", fault]
        command += ["--seed", str(seed + 100 * attempt), "--seconds", str(seconds), "-o", "json"]
        code, output = await _run(command, dict(os.environ), seconds_max=RUN_SECONDS_MAX)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if code in (0, 1) and lines:
            result: dict[str, Any] = msgspec.json.decode(lines[-1])
            return result
        why = output[-500:]
    return f"void {TRIES_OF_VOID_RUNS_MAX} times: {why}"


async def _run(
    command: list[str], environment: dict[str, str], *, seconds_max: float
) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(seconds_max):
            output, _ = await child.communicate()
    except TimeoutError:
        return 2, f"timeout after {seconds_max:.0f} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return child.returncode or 0, output.decode(errors="replace")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _report(parts: list[Part]) -> str:
    found = [each for part in parts for each in part.found]
    return "\n".join(_report_lines(parts, found)) + "\n"


def _report_lines(parts: list[Part], found: list[str]) -> Iterator[str]:
    yield "# Proof\n"
    yield "Made by `make prove`. docs/architecture/proof.md describes each part.\n"
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    yield (
        f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {described or 'unknown'}, Python"
        f" {platform.python_version()}, {os.cpu_count()} cores"
    )
    for part in parts:
        yield f"- {part.title}: {part.seconds / 60:.0f} min, {len(part.found)} findings"
    yield f"\n**{'Nothing was found.' if not found else f'{len(found)} findings.'}**\n"
    for each in found:
        yield f"- {each}"
    for part in parts:
        yield f"\n## {part.title}\n"
        yield from part.lines
    yield "\n## Promises\n"
    yield "| row | promise | in every world | tests |"
    yield "|---|---|---|---|"
    for row in ROWS:
        tests = ", ".join(f"`{test.rpartition('/')[2]}`" for test in row.tests)
        yield f"| {row.id} | {row.text} | {'yes' if row.is_simulated else ''} | {tests} |"


async def _prove(options: argparse.Namespace) -> int:
    parts, progress = [], Progress()
    for name in options.parts:
        began = time.monotonic()
        part = await PARTS[name](options, progress)
        part.seconds = time.monotonic() - began
        parts.append(part)
        progress.show(
            f"{name}: {part.seconds / 60:.1f} min, {len(part.found)} findings", is_last=True
        )
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(_report(parts))  # so that a stop loses one part only
    print(f"the report is {options.report}")
    return 1 if any(part.found for part in parts) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.prove", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART",
                        help=f"of {', '.join(PARTS)}; default: all")  # fmt: skip
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--advice-worlds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--mutant-seeds", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1, help="of all faults on all stores")
    parser.add_argument("--fire-seconds", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    return asyncio.run(_prove(options))


if __name__ == "__main__":
    sys.exit(main())
