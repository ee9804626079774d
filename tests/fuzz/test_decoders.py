"""Parsers survive any bytes: they raise only declared errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import DIRECTORY, corpus_file, kept_inputs
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.sizes import SIZES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", TARGETS, ids=[each.name for each in TARGETS])
def test_seeds_and_their_mutations(target: Target) -> None:
    """No seed, kept input or small mutation of a seed causes an undeclared error."""
    for seed in (*target.seeds, *kept_inputs(target.name)):
        target(seed)
    neighbours = st.builds(
        lambda seed, at, gone, put: (
            seed[: at % (len(seed) + 1)] + put + seed[at % (len(seed) + 1) + gone :]
        ),
        st.sampled_from(target.seeds),
        st.integers(0, 4096),
        st.integers(0, 8),
        st.binary(max_size=8) | st.sampled_from(target.seeds),
    )

    @settings(max_examples=SIZES.fuzz_examples)
    @given(neighbours | st.binary(max_size=64))
    def survives(data: bytes) -> None:
        target(data)

    survives()


def test_the_corpus_is_of_targets() -> None:
    """Each file of kept inputs belongs to a target, and its inputs are different ones."""
    files = {corpus_file(each.name): each.name for each in TARGETS}
    assert set(DIRECTORY.glob("*")) <= set(files)
    for path, name in files.items():
        inputs = kept_inputs(name)
        assert len(set(inputs)) == len(inputs), path


def test_a_run_over_all_targets(tmp_path: Path) -> None:
    """Many inputs, guided by coverage, and no target fails.

    In a process of its own, since the instrumentation traces every line.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.engine"),
            *("--runs", str(SIZES.fuzz_runs), "--findings", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SIZES.test_seconds_max,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
