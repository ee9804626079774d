"""`python -m tests.support.sim`: play worlds, play mutants, inspect one seed."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from typing import Any

import orjson

from tests.support.sim.advice.plan import make_advice_plan
from tests.support.sim.advice.scenarios import SCENARIOS, VARIED
from tests.support.sim.campaign import HASH_SEED, Tally, play_seeds, to_line
from tests.support.sim.coverage import advice_table_of, table_of
from tests.support.sim.mutants import ADVICE_MUTANTS, BY_NAME, seeds_for, switched
from tests.support.sim.plan import Plan, make_plan
from tests.support.sim.play import Played, play_plan, shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("play", help="one seed: its plan, and its result")
    one.add_argument("seed", type=int)
    one.add_argument("--mutant", default="", choices=["", *BY_NAME])
    one.add_argument("--shrink", action="store_true", help="remove all unnecessary steps")
    one.add_argument("--advice", action="store_true", help="a world with advice")
    one.add_argument("--log", action="store_true", help="show the logs of the processes")
    named = commands.add_parser("scenario", help="a world with advice, by its name")
    named.add_argument("name", choices=SCENARIOS)
    named.add_argument("--log", action="store_true", help="show the logs of the processes")
    many = commands.add_parser("seeds", help="many seeds, and a table of what was exercised")
    many.add_argument("count", type=int)
    many.add_argument("--first", type=int, default=0)
    many.add_argument("--advice", action="store_true", help="worlds with advice")
    many.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    bad = commands.add_parser("mutants", help="the seed that detects each")
    bad.add_argument("names", nargs="*", metavar="MUTANT")
    bad.add_argument("--seeds-max", type=int, default=2000)
    bad.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    worlds = commands.add_parser("worlds", help="one line of JSON for each seed")
    worlds.add_argument("seeds", type=int, nargs="+")
    worlds.add_argument("--mutant", default="", choices=["", *BY_NAME])
    worlds.add_argument("--advice", action="store_true", help="worlds with advice")
    varied = commands.add_parser(
        "variants", help="which plan of a varied scenario detects a mutant"
    )
    varied.add_argument("name", choices=VARIED)
    varied.add_argument("--mutant", required=True, choices=[each.name for each in ADVICE_MUTANTS])
    varied.add_argument("--first", type=int, default=0, help="the plan to try first")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # Otherwise a seed would be another world.
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, "-m", "tests.support.sim", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)
    match options.command:
        case "play":
            return _play(options)
        case "scenario":
            _set_logging(is_shown=options.log)
            return _print_result(SCENARIOS[options.name], play_plan(SCENARIOS[options.name]))
        case "variants":
            return _variants(options)
        case "seeds":
            return asyncio.run(_seeds(options))
        case "mutants":
            return asyncio.run(_mutants(options))
        case _:
            return _worlds(options)


def _play(options: argparse.Namespace) -> int:
    _set_logging(is_shown=options.log)
    mutant = BY_NAME.get(options.mutant)
    plan = _plan(options.seed, is_advised=options.advice)
    with switched(mutant):
        played = play_plan(plan, is_structural=mutant is None)
        if played.problems and options.shrink:
            plan = shrink(plan, is_structural=mutant is None)
            played = play_plan(plan, is_structural=mutant is None)
    return _print_result(plan, played)


def _variants(options: argparse.Namespace) -> int:
    """Which plan of a varied scenario detects a mutant, the given one first; and the result of the
    plan without it."""
    logging.disable()
    mutant = next(each for each in ADVICE_MUTANTS if each.name == options.mutant)
    plans = VARIED[options.name]
    for number in dict.fromkeys((options.first, *range(len(plans)))):
        with switched(mutant):
            problems = play_plan(plans[number]).problems
        if problems:
            sound = play_plan(plans[number]).problems
            found = {"plan": number, "problems": problems, "without": sound}
            print(orjson.dumps(found).decode())
            return 0
    return 1


def _set_logging(*, is_shown: bool) -> None:
    if is_shown:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    else:
        logging.disable()


def _print_result(plan: Plan, played: Played) -> int:
    print(plan)
    print(
        f"{played.steps:,} steps in {played.seconds:.1f} s of its time, trace {played.trace[:16]}"
    )
    for problem in played.problems:
        print(problem)
    print("no problems" if not played.problems else f"{len(played.problems)} problems")
    return 1 if played.problems else 0


def _plan(seed: int, *, is_advised: bool) -> Plan:
    return make_advice_plan(seed) if is_advised else make_plan(seed)


def _worlds(options: argparse.Namespace) -> int:
    logging.disable()
    mutant = BY_NAME.get(options.mutant)
    with switched(mutant):
        for seed in options.seeds:
            plan = _plan(seed, is_advised=options.advice)
            played = play_plan(plan, is_structural=mutant is None)
            sys.stdout.buffer.write(orjson.dumps(to_line(played, plan.mode)) + b"\n")
            sys.stdout.buffer.flush()
    return 0


async def _seeds(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.count)
    done = Tally()

    def on_result(line: dict[str, Any]) -> None:
        done.add(line)
        if line["problems"]:
            print(f"\nseed {line['seed']}: {line['problems'][0]}", flush=True)
        print(f"\r{done.worlds} of {len(seeds)} worlds", end="", file=sys.stderr, flush=True)

    tally = await play_seeds(
        seeds, jobs=options.jobs, is_advised=options.advice, on_result=on_result
    )
    print(file=sys.stderr)
    print(advice_table_of(tally) if options.advice else table_of(tally))
    for seed, problems in sorted(tally.failed.items()):
        option = " --advice" if options.advice else ""
        print(f"seed {seed} (python -m tests.support.sim play {seed}{option} --shrink):")
        print("\n".join(f"  {each}" for each in problems))
    return 1 if tally.failed else 0


async def _mutants(options: argparse.Namespace) -> int:
    missed = []
    for name in options.names or BY_NAME:
        tally = await play_seeds(
            seeds_for(name, options.seeds_max),
            jobs=options.jobs,
            mutant=name,
            stops=lambda line: bool(line["problems"]),
        )
        if tally.failed:
            seed, problems = min(tally.failed.items())
            print(f"{name:26} caught by seed {seed:4}: {problems[0][:140]}", flush=True)
        else:
            missed.append(name)
            print(f"{name:26} NOT CAUGHT by {tally.worlds} worlds", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
