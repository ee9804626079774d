"""Randomness: the interface through which all code gets random values.

Nothing else in the project may import `random` or `secrets`. Not here: the use of the values
(names, keys, delays).
"""

import hashlib
import random
import secrets
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Randomness(Protocol):
    """A source of random values."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between low and high."""
        ...

    def randrange(self, stop: int) -> int:
        """Return an integer from 0 up to, not including, stop."""
        ...

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options, which must not be empty."""
        ...

    def shuffle(self, items: list[Any]) -> None:
        """Shuffle the list in place."""
        ...

    def token_bytes(self, nbytes: int) -> bytes:
        """Return `nbytes` random bytes; those of the system source are suitable for secrets."""
        ...


BLOCK_BYTES = 4096


class _SharedMethods:
    """Methods that both sources share."""

    _source: random.Random

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._source.randrange(stop)

    def choice(self, options: Sequence[T]) -> T:
        return self._source.choice(options)

    def shuffle(self, items: list[Any]) -> None:
        self._source.shuffle(items)


class SystemRandomness(_SharedMethods):
    """The operating system's source; not predictable or reproducible."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()
        self._block = b""
        self._used = 0

    def token_bytes(self, nbytes: int) -> bytes:
        # Read in blocks, since a system call costs more than an ID; no byte is used twice.
        begin, end = self._used, self._used + nbytes
        if end > len(self._block):
            if nbytes > BLOCK_BYTES:
                return secrets.token_bytes(nbytes)
            self._block = secrets.token_bytes(BLOCK_BYTES)
            begin, end = 0, nbytes
        self._used = end
        return self._block[begin:end]


class SeededRandomness(_SharedMethods):
    """Reproducible: the same seed gives the same values on every machine. Never for secrets."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        # Hashed, so that similar seeds give unrelated streams, and so do a number and its text.
        digest = hashlib.sha256(repr(seed).encode()).digest()
        self._source = random.Random(int.from_bytes(digest, "big"))  # noqa: S311

    def token_bytes(self, nbytes: int) -> bytes:
        return self._source.randbytes(nbytes)

    def child(self, name: str) -> "SeededRandomness":
        """Return an independent stream: its use affects neither this one nor other children."""
        return SeededRandomness(f"{self.seed!r}/{name}")
