"""Command line of a single run.

    python -m tests.support.fire --store etcd3 --fault leader-killed --seed 3 --seconds 30

Exit codes: 0 no problems, 1 problems, 2 the run is void or could not be made.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.support.child_process import ProcessFailed
from tests.support.fire.run import FAULTS, FireResult, RunVoid, run_fire
from tests.support.fire.stage import StageFailed
from tests.support.fire.stores import STORES, CannotBeMade

COLUMNS: Final = (
    *("store", "fault", "seed", "seconds", "acknowledged", "writes_per_second", "refused"),
    *("put_off", "unknown", "watchers", "cuts", "events", "revisions", "values", "narrowed"),
)
EXIT_WRONG, EXIT_VOID = 1, 2


def line_of(result: FireResult) -> str:
    """A result on one line, and each problem on a line of its own."""
    words = [f"{name} {_text(getattr(result, name))}" for name in COLUMNS]
    verdict = "good" if result.is_good else f"{len(result.problems)} PROBLEMS"
    return "\n  ".join([f"{', '.join(words)}: {verdict}", *result.problems])


def _text(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fire", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--fault", choices=sorted(FAULTS), default="kill-one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--directory", type=Path, help="new, and kept; default: one that is not")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="restow-fire-") as temporary:
        run = run_fire(
            given.store,
            given.fault,
            seed=given.seed,
            seconds=given.seconds,
            directory=given.directory or Path(temporary) / "run",
        )
        try:
            result = asyncio.run(run)
        except (RunVoid, CannotBeMade, ProcessFailed, StageFailed) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return EXIT_VOID
    is_json = given.output == "json"
    sys.stdout.write(msgspec.json.encode(result).decode() if is_json else line_of(result))
    sys.stdout.write("\n")
    return 0 if result.is_good else EXIT_WRONG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
