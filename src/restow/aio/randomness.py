"""Randomness: the seam through which all code draws chance.

Nothing else in the project may import `random` or `secrets`. What the draws mean (names, keys,
delays) does not live here.
"""

import hashlib
import random
import secrets
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Randomness(Protocol):
    """A source of chance."""

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        ...

    def randrange(self, stop: int) -> int:
        """A whole number from 0 up to, not including, stop."""
        ...

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, which must not be empty."""
        ...

    def shuffle(self, items: list[Any]) -> None:
        """Reorder the list in place."""
        ...

    def token_bytes(self, nbytes: int) -> bytes:
        """So many bytes; from the real source they are fit for secrets."""
        ...


BLOCK_BYTES = 4096


class _Drawing:
    """The draws that both sources make the same way."""

    _source: random.Random

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._source.randrange(stop)

    def choice(self, options: Sequence[T]) -> T:
        return self._source.choice(options)

    def shuffle(self, items: list[Any]) -> None:
        self._source.shuffle(items)


class SystemRandomness(_Drawing):
    """The operating system's source; cannot be predicted or replayed."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()
        self._drawn = b""
        self._used = 0

    def token_bytes(self, nbytes: int) -> bytes:
        # Drawn in blocks, since asking the system costs more than an id; no byte is used twice.
        begin, end = self._used, self._used + nbytes
        if end > len(self._drawn):
            if nbytes > BLOCK_BYTES:
                return secrets.token_bytes(nbytes)
            self._drawn = secrets.token_bytes(BLOCK_BYTES)
            begin, end = 0, nbytes
        self._used = end
        return self._drawn[begin:end]


class SeededRandomness(_Drawing):
    """The same seed gives the same draws, on every machine. Never for secrets."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        # Hashed, so that neighbouring seeds and a number and its text give unrelated streams.
        digest = hashlib.sha256(repr(seed).encode()).digest()
        self._source = random.Random(int.from_bytes(digest, "big"))  # noqa: S311

    def token_bytes(self, nbytes: int) -> bytes:
        return self._source.randbytes(nbytes)

    def child(self, name: str) -> "SeededRandomness":
        """A stream of its own: drawing from it does not move this one, nor another child."""
        return SeededRandomness(f"{self.seed!r}/{name}")
