"""`python -m benchmarks.encryption`: the cost of encryption at rest.

Three servers on SQLite, one for each provider, run concurrently and are measured alternately, so
that a ratio is of two consecutive measurements. Gets and lists are served from a cache that has
decrypted each value once; creates and updates encrypt each value, and it is decrypted for the
cache. A no-op update checks in the store which key encrypts the object, if there are keys.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.api import connection, requests
from benchmarks.api.requests import Rate
from benchmarks.api.target import Target, started
from benchmarks.encryption import sealing
from tests.support.encryption_files import write_encryption_file

PLAIN: Final = "identity"
PROVIDERS: Final = (PLAIN, "aesgcm:bench", "secretbox:bench")
CIPHERS: Final = (*PROVIDERS, "aescbc:bench")
IN_FLIGHT: Final = 16
LISTS_IN_FLIGHT: Final = 2
SEALING_ROUNDS: Final = 15
LEFT_UNDER_THE_KEY: Final = 3
"""The exit code of `restow census --key` if values are encrypted with the key."""

Ask = Callable[[Target, str], Rate]


@dataclass(slots=True)
class Measured:
    """One kind of request, by provider and round."""

    what: str
    rounds: dict[str, list[Rate]] = field(default_factory=lambda: {each: [] for each in PROVIDERS})

    def ratio(self, provider: str, *, of: Callable[[Rate], float]) -> float:
        """The median of the rounds' ratios to the server without encryption."""
        pairs = zip(self.rounds[provider], self.rounds[PLAIN], strict=True)
        return median(of(ours) / of(plain) for ours, plain in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.encryption", description=__doc__)
    parser.add_argument("--items", type=int, default=2_000, help="objects in each server")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each server")
    parser.add_argument("--seconds", type=int, default=2, help="of a round")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        costs = sealing.measure(directory, CIPHERS, rounds=SEALING_ROUNDS)
        _print_costs(costs)
        targets = {each: stack.enter_context(_server(directory, each)) for each in PROVIDERS}
        for provider, target in targets.items():
            asyncio.run(_fill(target, arguments.items))
            _check_sealed(directory, provider)
        asked = _asked(items=arguments.items, seconds=arguments.seconds)
        _print_ratios([_measure(targets, *each, rounds=arguments.rounds) for each in asked])


def _server(directory: Path, provider: str) -> AbstractContextManager[Target]:
    """A server that writes with a provider; the plain one has no encryption configuration."""
    name, words = provider.partition(":")[0], list[str]()
    if provider != PLAIN:
        file = write_encryption_file(directory / f"{name}.yaml", provider, PLAIN)
        words = ["--encryption-provider-config", str(file)]
    place = directory / name
    place.mkdir()
    return started(name, place, f"sqlite:{place}/store.db", arguments=words)


def _asked(*, items: int, seconds: int) -> list[tuple[str, Ask]]:
    """The measured requests; each round gets another name for its objects."""
    many = {"seconds": seconds, "connections": IN_FLIGHT}
    few = {"seconds": seconds, "connections": LISTS_IN_FLIGHT}
    return [
        ("get", lambda target, _: requests.get(target, **many)),
        (f"list of {items:,}", lambda target, _: requests.list_all(target, **few)),
        ("create", lambda target, name: requests.create(target, **many, name=name)),
        ("update", lambda target, name: requests.update(target, **many, items=items, mark=name)),
        ("update of nothing", lambda target, _: requests.update_nothing(target, **many)),
    ]


def _measure(targets: dict[str, Target], what: str, ask: Ask, *, rounds: int) -> Measured:
    measured, order = Measured(what), list(targets)
    for number in range(rounds):
        for provider in order:
            measured.rounds[provider].append(ask(targets[provider], f"new-{number}"))
        order.append(order.pop(0))  # none is always the first
    return measured


async def _fill(target: Target, items: int) -> None:
    await connection.fill(target, items=items, path=requests.COLLECTION, data=requests.DATA)


def _check_sealed(directory: Path, provider: str) -> None:
    """Check that the stored values are encrypted, or the measurement is invalid."""
    name, _, key = provider.partition(":")
    command = [sys.executable, "-m", "restow", "census", "configmaps", "--key", key or PLAIN]
    command += ["--store", f"sqlite:{directory / name / 'store.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != LEFT_UNDER_THE_KEY:
        raise SystemExit(f"{provider}: no value is encrypted with it:\n{done.stdout}{done.stderr}")


def _print_costs(costs: dict[str, sealing.Cost]) -> None:
    print(f"{'1 KB, us of CPU':24} {'seal':>8} {'open':>8}")
    for provider, cost in costs.items():
        print(f"{provider.partition(':')[0]:24} {cost.seal:8.2f} {cost.open:8.2f}")


def _print_ratios(found: list[Measured]) -> None:
    names = [each.partition(":")[0] for each in PROVIDERS[1:]]
    print(f"\n{'to a server without keys':24} {'per s':>9}", end="")
    for name in names:
        print(f" {name + ' rate':>16} {name + ' CPU':>16}", end="")
    print()
    for each in found:
        plain = median(rate.per_second for rate in each.rounds[PLAIN])
        print(f"{each.what:24} {plain:9,.0f}", end="")
        for provider in PROVIDERS[1:]:
            rate = each.ratio(provider, of=lambda rate: rate.per_second)
            cpu = each.ratio(provider, of=lambda rate: rate.cpu_us)
            print(f" {rate:16.2f} {cpu:16.2f}", end="")
        print()


if __name__ == "__main__":
    main()
