"""What a target of fuzzing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.status import StatusError

SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, the errors that it may raise, and some seeds."""

    name: str
    run: Callable[[bytes], None]
    right: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        try:
            self.run(data)
        except StatusError as error:
            if StatusError not in self.right or error.code >= SERVER_ERROR:
                raise
        except self.right:
            pass
