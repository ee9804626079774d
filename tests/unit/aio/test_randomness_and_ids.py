"""Randomness and identifiers: reproducible when seeded, always well formed."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import RandomIds, Randomness, SeededRandomness, SystemRandomness
from restow.aio.ids import SUFFIX_ALPHABET, SUFFIX_LENGTH

SOURCES: list[Randomness] = [SystemRandomness(), SeededRandomness(1)]


def draws(randomness: Randomness) -> list[object]:
    shuffled = list(range(10))
    randomness.shuffle(shuffled)
    return [
        randomness.uniform(0, 1),
        randomness.randrange(1_000_000),
        randomness.choice("abcdef"),
        shuffled,
        randomness.token_bytes(8),
    ]


@given(st.integers() | st.text())
def test_a_seed_replays(seed: int | str) -> None:
    """The same seed gives the same values, and another seed different ones."""
    assert draws(SeededRandomness(seed)) == draws(SeededRandomness(seed))
    assert draws(SeededRandomness(seed)) != draws(SeededRandomness(f"not {seed}"))


def test_a_seed_means_the_same_for_ever() -> None:
    """The values of a seed are fixed here, so that an old failing seed stays useful."""
    assert SeededRandomness(7).token_bytes(4).hex() == "ec2257a5"
    assert RandomIds(SeededRandomness(7)).suffix() == "2zltr"


def test_children_are_independent_streams() -> None:
    """The use of a child affects neither its parent nor its siblings."""
    parent, untouched = SeededRandomness(7), SeededRandomness(7)
    draws(parent.child("a"))
    assert draws(parent) == draws(untouched)
    assert draws(parent.child("a")) == draws(untouched.child("a"))
    assert draws(parent.child("a")) != draws(parent.child("b"))


@pytest.mark.parametrize("source", SOURCES, ids=["system", "seeded"])
def test_draws_stay_in_bounds(source: Randomness) -> None:
    """Every value is within its bounds."""
    for _ in range(200):
        assert 2 <= source.uniform(2, 3) <= 3
        assert 0 <= source.randrange(3) < 3
        assert source.choice(("x", "y")) in {"x", "y"}
    items = list(range(50))
    source.shuffle(items)
    assert sorted(items) == list(range(50))
    assert len(source.token_bytes(12)) == 12


@pytest.mark.parametrize("source", SOURCES, ids=["system", "seeded"])
def test_ids_are_well_formed(source: Randomness) -> None:
    """UIDs are version 4 UUIDs as text, nonces hexadecimal, suffixes short and without vowels."""
    ids = RandomIds(source)
    uid = uuid.UUID(ids.uid())
    assert (uid.version, uid.variant) == (4, uuid.RFC_4122)
    assert len(bytes.fromhex(ids.nonce(16))) == 16
    assert len(ids.suffix()) == SUFFIX_LENGTH
    assert set(ids.suffix()) <= set(SUFFIX_ALPHABET)
    assert len({ids.uid() for _ in range(1_000)}) == 1_000


def test_uids_match_the_standard_library() -> None:
    """A UID is equal to the one that the standard library makes from the same bytes."""
    for seed in range(200):
        made = RandomIds(SeededRandomness(seed)).uid()
        raw = SeededRandomness(seed).token_bytes(16)
        assert made == str(uuid.UUID(bytes=raw, version=4))
