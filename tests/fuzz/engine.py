"""Feeds bytes to the targets: guided by coverage if atheris is installed, otherwise random.

    python -m tests.fuzz.engine --runs 20000            all targets in one run, as `make test` does
    python -m tests.fuzz.engine --target CEL --seconds 600
    python -m tests.fuzz.engine --list

An input that a target fails on is written to the directory that is named first, and the exit code
is not 0. atheris has wheels for Linux on x86-64 only; elsewhere the seeds are mutated at random,
which finds less.

Not here: the targets, and their valid results; the files of the kept inputs (`corpus`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.corpus import kept_inputs

if TYPE_CHECKING:
    from tests.fuzz.target import Target

LENGTH_MAX: Final = 4096
"""Limit of an input; longer ones have tests elsewhere."""
RUN_SECONDS_MAX: Final = 10
MEMORY_MIB_MAX: Final = 1500
SEED: Final = 7


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.engine")
    parser.add_argument("--target", default="", help="one of --list; default: all, in turn")
    parser.add_argument("--runs", type=int, default=0, help="end after so many inputs")
    parser.add_argument("--seconds", type=int, default=0, help="end after so much time")
    parser.add_argument("--findings", type=Path, help="a directory; default: a fresh one")
    parser.add_argument("--list", action="store_true", help="name the targets, and end")
    asked = parser.parse_args(arguments)
    guided = None if asked.list else _atheris()
    if guided is not None:
        with guided.instrument_imports(include=["restow", "wsproto"], enable_loader_override=False):
            from tests.fuzz import targets
    else:
        from tests.fuzz import targets
    chosen = [each for each in targets.TARGETS if asked.target in ("", each.name)]
    if asked.list or not chosen:
        sys.stdout.writelines(f"{each.name}\n" for each in targets.TARGETS)
        return 0 if asked.list else 2
    if guided is not None:
        directory = asked.findings or Path(tempfile.mkdtemp(prefix="restow-fuzz-"))
        return _guided(guided, chosen, directory, runs=asked.runs, seconds=asked.seconds)
    return _random(chosen, runs=asked.runs, seconds=asked.seconds)


def _atheris() -> Any:
    if importlib.util.find_spec("atheris") is None:
        return None
    import atheris

    return atheris


def one_of(chosen: Sequence[Target]) -> Callable[[bytes], None]:
    """Combines targets: the first byte selects one if there are several."""
    if len(chosen) == 1:
        return chosen[0]

    def run(data: bytes) -> None:
        if data:
            chosen[data[0] % len(chosen)](data[1:])

    return run


def _corpus(chosen: Sequence[Target]) -> list[bytes]:
    if len(chosen) == 1:
        return [*chosen[0].seeds, *kept_inputs(chosen[0].name)]
    return [
        bytes([index]) + seed
        for index, each in enumerate(chosen)
        for seed in (*each.seeds, *kept_inputs(each.name))
    ]


def _guided(
    atheris: Any, chosen: Sequence[Target], directory: Path, *, runs: int, seconds: int
) -> int:
    """Never returns: libFuzzer ends the process itself."""
    seeds = directory / "seeds"
    seeds.mkdir()
    for index, seed in enumerate(_corpus(chosen)):
        (seeds / str(index)).write_bytes(seed)
    sys.stderr.write(f"findings go to {directory}\n")
    flags = [
        f"-artifact_prefix={directory}/",
        f"-max_len={LENGTH_MAX}",
        f"-timeout={RUN_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-seed={SEED}",
        "-verbosity=0",
    ]
    if runs:
        flags.append(f"-runs={runs}")
    if seconds:
        flags.append(f"-max_total_time={seconds}")
    atheris.Setup([sys.argv[0], *flags, str(seeds)], one_of(chosen))
    atheris.Fuzz()
    return 0


def _random(chosen: Sequence[Target], *, runs: int, seconds: int) -> int:
    """The same without coverage: slightly mutated seeds."""
    drawn = random.Random(SEED)
    corpus, target = _corpus(chosen), one_of(chosen)
    deadline = time.monotonic() + seconds
    done = 0
    while (not runs or done < runs) and (not seconds or time.monotonic() < deadline):
        data = changed(drawn.choice(corpus), corpus, drawn)
        try:
            target(data)
        except BaseException:
            sys.stderr.write(f"this input is not survived: {data!r}\n")
            raise
        done += 1
    return 0


def changed(seed: bytes, corpus: Sequence[bytes], drawn: random.Random) -> bytes:
    """Returns a seed with some bytes inserted, replaced, deleted, or taken from another seed."""
    data = bytearray(seed)
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(len(data) + 1)
        match drawn.randrange(4):
            case 0:
                data[at:at] = bytes([drawn.randrange(256)])
            case 1:
                data[at : at + 1] = bytes([drawn.randrange(256)])
            case 2:
                del data[at : at + drawn.randint(1, 8)]
            case _:
                other = drawn.choice(corpus)
                begin = drawn.randrange(len(other))
                data[at:at] = other[begin : begin + drawn.randint(1, 16)]
    return bytes(data[:LENGTH_MAX])


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
