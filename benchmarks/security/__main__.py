"""`python -m benchmarks.security`: what authentication, RBAC, admission and the audit log cost.

Servers on SQLite run concurrently and are measured in slices of some milliseconds, so that a ratio
is of simultaneous measurements. The CPU time of the server per request is compared:

    before      another checkout (`--before DIR`), with an administrator's token
    plain       this checkout with the same: an administrator's token, no audit log
    everything  the token of a service account with a role, an audit log at level Metadata, and a
                webhook, a policy and a quota that match another resource
    concerned   the same, and all three match the written resource
    untracked   as everything, but without tracking of field managers (`--untracked`): the cost of
                security alone; `benchmarks.managers` measures that of the field managers

The ratio is that of `everything` to `before`, or to `plain` if there is no other checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from benchmarks.api import connection, fan_out, requests
from benchmarks.api.connection import Connection
from benchmarks.api.target import Target, started
from benchmarks.security import alternating, objects

BEFORE: Final = "before"
PLAIN: Final = "plain"
EVERYTHING: Final = "everything"
CONCERNED: Final = "concerned"
UNTRACKED: Final = "untracked"
SECURED: Final = (EVERYTHING, CONCERNED, UNTRACKED)
ITEMS: Final = 500
IN_FLIGHT: Final = 16
LISTS_IN_FLIGHT: Final = 2
WATCHERS: Final = 100
DELETED: Final = 64
DELETE_TURNS: Final = 6
"""Objects in one slice, and slices in a round."""
RATIO_MAX: Final = 1.25
AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""

Targets = dict[str, Target]
Ask = Callable[[Targets, str], dict[str, float]]
"""Measures the CPU of each server per request, in us; the text names the objects of the round."""


@dataclass(slots=True)
class Measured:
    """One kind of request, by server and round."""

    what: str
    found: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str, to: str) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.found[name], self.found[to], strict=True)
        return median(ours / theirs for ours, theirs in pairs)

    def ratio_of_best(self, name: str, to: str) -> float:
        """The ratio of the least disturbed rounds."""
        return min(self.found[name]) / min(self.found[to])


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="of each kind of request")
    parser.add_argument("--seconds", type=int, default=1, help="of a round, for each server")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--only", action="append", default=[], help="these requests only")
    parser.add_argument("--without-concerned", action="store_true", help="three servers at most")
    parser.add_argument("--untracked", action="store_true", help="one more server")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        webhook = stack.enter_context(objects.running_webhook())
        names = [BEFORE] * bool(arguments.before) + [PLAIN, EVERYTHING]
        names += [CONCERNED] * (not arguments.without_concerned)
        names += [UNTRACKED] * arguments.untracked
        targets: Targets = {}
        for name in names:
            target = stack.enter_context(_server(directory, name, arguments.before))
            asyncio.run(_fill(target))
            if name in SECURED:
                about = objects.MEASURED if name == CONCERNED else objects.OTHER
                target = asyncio.run(objects.with_everything(target, about=about, webhook=webhook))
            targets[name] = target
        asked = _asked(arguments.seconds, alternating.idle_cpu(targets))
        asked = [each for each in asked if _is_wanted(each, arguments.only)]
        found = [_measure(targets, *each, rounds=arguments.rounds) for each in asked]
        _check_audit(directory)
    _print(found, to=names[0])


def _is_wanted(asked: tuple[str, Ask], only: list[str]) -> bool:
    return not only or asked[0].split()[0] in only


def _server(directory: Path, name: str, before: Path | None) -> AbstractContextManager[Target]:
    place = directory / name
    place.mkdir()
    words: list[str] = []
    if name in SECURED:
        policy = directory / f"{name}-policy.yaml"
        policy.write_text(AUDIT_POLICY)
        words = ["--audit-log-path", str(_audit_log(directory, name))]
        words += ["--audit-policy-file", str(policy)]
    store = f"sqlite:{place}/store.db"
    checkout = before if name == BEFORE else None
    module = "benchmarks.managers.untracked" if name == UNTRACKED else "restow"
    return started(name, place, store, arguments=words, checkout=checkout, module=module)


def _audit_log(directory: Path, name: str) -> Path:
    return directory / f"{name}-audit.log"


def _check_audit(directory: Path) -> None:
    """Check that the audit log has the requests, and with the account as user."""
    line = _audit_log(directory, EVERYTHING).read_text().splitlines()[-1]
    if f'"system:serviceaccount:{requests.NAMESPACE}:{objects.ACCOUNT}"' not in line:
        raise SystemExit(f"the last request in the audit log is not the account's: {line}")


async def _fill(target: Target) -> None:
    await connection.fill(target, items=ITEMS, path=requests.COLLECTION, data=requests.DATA)


def _asked(seconds: int, idle: dict[str, float]) -> list[tuple[str, Ask]]:
    """The requests to the servers. Those that create objects come last."""

    def wrk(make: Callable[[Target, str], str], *, in_flight: int = IN_FLIGHT) -> Ask:
        def ask(targets: Targets, name: str) -> dict[str, float]:
            script = partial(_script, make, name)
            return alternating.measure(
                targets, script, seconds=seconds, connections=in_flight, idle=idle
            )

        return ask

    return [
        ("get", wrk(lambda target, _: requests.get_script(target))),
        (
            f"list of {ITEMS}",
            wrk(lambda target, _: requests.list_script(target), in_flight=LISTS_IN_FLIGHT),
        ),
        ("update", wrk(lambda target, name: requests.update_script(target, ITEMS, name))),
        ("patch", wrk(lambda target, name: requests.patch_script(target, ITEMS, name))),
        (f"event to {WATCHERS} watchers", partial(_watched, seconds)),
        ("create", wrk(requests.create_script)),
        ("delete", lambda targets, name: uvloop.run(_deleted(targets, name))),
    ]


def _script(make: Callable[[Target, str], str], name: str, target: Target) -> str:
    return make(target, name)


def _watched(seconds: int, targets: Targets, _name: str) -> dict[str, float]:
    return {
        name: fan_out.measure(target, watchers=WATCHERS, seconds=seconds)[1]
        for name, target in targets.items()
    }


async def _deleted(targets: Targets, name: str) -> dict[str, float]:
    """Deletes of objects whose creation is not measured."""
    used = dict.fromkeys(targets, 0.0)
    clients = {
        each: [await Connection.open(targets[each]) for _ in range(IN_FLIGHT)] for each in targets
    }
    for turn in range(DELETE_TURNS):
        paths = [f"{requests.COLLECTION}/{name}-gone-{turn}-{number}" for number in range(DELETED)]
        for each, target in targets.items():
            await _send(target, clients[each], "POST", paths)
        for each, target in targets.items():
            before = target.cpu_seconds()
            await _send(target, clients[each], "DELETE", paths)
            used[each] += target.cpu_seconds() - before
    for one in chain.from_iterable(clients.values()):
        one.close()
    return {each: cpu / (DELETED * DELETE_TURNS) * 1e6 for each, cpu in used.items()}


async def _send(
    target: Target, connections: list[Connection], method: str, paths: list[str]
) -> None:
    left = iter(paths)

    async def work(one: Connection) -> None:
        for path in left:
            named = {"name": path.rpartition("/")[2]}
            body = {"metadata": named, "data": requests.DATA} if method == "POST" else None
            where = path if body is None else requests.COLLECTION
            code, text = await one.send(method, where, body)
            if code not in (200, 201):
                raise SystemExit(f"{target.name}: {method}: {code} {text[:200]!r}")

    await asyncio.gather(*map(work, connections))


def _measure(targets: Targets, what: str, ask: Ask, *, rounds: int) -> Measured:
    measured, order = Measured(what, {name: [] for name in targets}), list(targets)
    begin = time.monotonic()
    for number in range(rounds):
        found = ask({name: targets[name] for name in order}, f"new-{number}")
        for name, cpu_us in found.items():
            measured.found[name].append(cpu_us)
        order.append(order.pop(0))  # none is always the first
    print(f"{what}: {rounds} rounds in {time.monotonic() - begin:.0f} s", flush=True)
    return measured


def _print(found: list[Measured], *, to: str) -> None:
    names = list(found[0].found)
    print(f"\n{'us of CPU, median (least)':26}" + "".join(f"{name:>18}" for name in names), end="")
    print("".join(f"{name[:10] + ' ratio':>22}" for name in names[1:]))
    for each in found:
        print(f"{each.what:26}", end="")
        for name in names:
            shown = f"{median(each.found[name]):.1f} ({min(each.found[name]):.1f})"
            print(f"{shown:>18}", end="")
        for name in names[1:]:
            print(f"{each.ratio(name, to):15.2f} ({each.ratio_of_best(name, to):.2f})", end="")
        print()
    worst = max(found, key=lambda each: each.ratio(EVERYTHING, to))
    ratio = worst.ratio(EVERYTHING, to)
    print(f"\nmost, with everything on: {worst.what}, {ratio:.2f} times the CPU")
    if ratio > RATIO_MAX:
        raise SystemExit(f"that is more than {RATIO_MAX}")


if __name__ == "__main__":
    main()
