"""The kept inputs of each target: those that reach code which no shorter input reaches.

    tests/fuzz/corpus/<target>.txt      one input per line, in base64, shortest first

They are seeds of further runs, and each test run replays them. To add those that a run has found:

    python -m tests.fuzz.engine --target X --seconds 600 --findings DIR
    python -m tests.fuzz.corpus --target X DIR/seeds

Not here: fuzzing (`engine`).
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import wsproto

import restow

DIRECTORY: Final = Path(__file__).parent / "corpus"
INPUTS_MAX: Final = 250
"""Inputs of one target; the shortest are kept."""
INPUT_BYTES_MAX: Final = 1024

_SOURCES: Final = tuple(str(Path(each.__path__[0])) for each in (restow, wsproto))

Arc = tuple[str, int, int]
"""A step from one line of a file to another."""


def corpus_file(target: str) -> Path:
    return DIRECTORY / f"{target.replace(' ', '-').lower()}.txt"


def kept_inputs(target: str) -> tuple[bytes, ...]:
    """The kept inputs of a target."""
    path = corpus_file(target)
    if not path.exists():
        return ()
    return tuple(base64.b64decode(line, validate=True) for line in path.read_text().splitlines())


def main(arguments: Sequence[str]) -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.corpus")
    parser.add_argument("--target", required=True, choices=[each.name for each in TARGETS])
    parser.add_argument("directory", type=Path, help="its files are inputs")
    asked = parser.parse_args(arguments)
    (target,) = (each for each in TARGETS if each.name == asked.target)
    found = (each.read_bytes() for each in asked.directory.iterdir())
    chosen = minimized(target, target.seeds, {*found, *kept_inputs(target.name)})
    DIRECTORY.mkdir(exist_ok=True)
    lines = (base64.b64encode(each).decode() + "\n" for each in chosen)
    corpus_file(target.name).write_text("".join(lines))
    sys.stdout.write(f"{len(chosen)} inputs are in {corpus_file(target.name)}\n")
    return 0


def minimized(
    run: Callable[[bytes], None], seeds: Iterable[bytes], inputs: Iterable[bytes]
) -> list[bytes]:
    """The inputs that reach what neither the seeds nor a shorter input reaches, up to a limit."""
    known: set[Arc] = set()
    for seed in seeds:
        known |= _arcs(run, seed)
    chosen: list[bytes] = []
    for data in sorted(inputs, key=lambda each: (len(each), each)):
        if len(data) > INPUT_BYTES_MAX or len(chosen) == INPUTS_MAX:
            break
        arcs = _arcs(run, data)
        if not arcs <= known:
            known |= arcs
            chosen.append(data)
    return chosen


def _arcs(run: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """What an input reaches in the source of restow and of its WebSocket parser."""
    found: set[Arc] = set()

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_SOURCES):
            return None
        before = 0

        def on_line(frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal before
            found.add((name, before, frame.f_lineno))
            before = frame.f_lineno
            return on_line

        return on_line

    sys.settrace(on_call)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
