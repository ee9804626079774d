"""Identifiers: uids, nonces and the short suffixes of generated names.

Nothing else in the project may import `uuid`. Whether an identifier is taken already is not known
here; whoever stores it finds out.
"""

from typing import Protocol

from restow.aio.randomness import Randomness

# No vowels and nothing that looks like one, so that no suffix spells a word.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5


class Ids(Protocol):
    """A maker of identifiers."""

    def uid(self) -> str:
        """A version 4 UUID as text: unique across space and time."""
        ...

    def nonce(self, nbytes: int) -> str:
        """So many random bytes, as twice as many hexadecimal digits."""
        ...

    def suffix(self) -> str:
        """Five characters that end a generated name; may collide, so be ready to ask again."""
        ...


class RandomIds:
    """Identifiers drawn from a source of randomness.

    Also the simulated maker, over a seeded source: a counter instead would never collide, and the
    simulator would not see what a collision does.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def uid(self) -> str:
        # As the standard library makes it, five times as fast: every object gets one.
        text = self._randomness.token_bytes(16).hex()
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def nonce(self, nbytes: int) -> str:
        return self._randomness.token_bytes(nbytes).hex()

    def suffix(self) -> str:
        return "".join(self._randomness.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_LENGTH))
