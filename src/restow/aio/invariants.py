"""Broken invariants: how code says "this cannot be", and what then ends the process.

For states that only a bug can produce. Not for bad input, lost connections or anything else that
can happen to a correct program: those are ordinary exceptions or values.
"""

import logging
import os
from typing import NoReturn

# EX_SOFTWARE of sysexits.h: an internal error, told apart from a refused start or a signal.
EXIT_CODE_INVARIANT = 70

logger = logging.getLogger(__name__)


class InvariantViolation(BaseException):
    """Something that cannot be, is: the process must end before it spreads the damage.

    A BaseException, because a broad `except Exception` at a task's edge must not swallow it; not a
    SystemExit, because a plain thread drops that one silently.
    """


def invariant(condition: bool, message: str) -> None:  # noqa: FBT001  (reads like assert)
    """Raise InvariantViolation unless the condition holds; unlike assert, also under -O."""
    if not condition:
        raise InvariantViolation(message)


def find_violation(error: BaseException) -> InvariantViolation | None:
    """The first InvariantViolation that an error is or, as a group, contains."""
    if isinstance(error, InvariantViolation):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            if (found := find_violation(inner)) is not None:
                return found
    return None


def foremost(
    group: BaseExceptionGroup[BaseException], *preferred: type[BaseException]
) -> BaseException:
    """Of several errors the one to report: a broken invariant, else of the first of these types
    that is among them, else any."""
    if (violation := find_violation(group)) is not None:
        return violation
    found = (group.subgroup(wanted) for wanted in preferred)
    error: BaseException = next(filter(None, found), group)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def stop_loop(violation: InvariantViolation) -> NoReturn:
    """End the event loop from one of its callbacks; `finally` blocks still run on the way out.

    SystemExit, because asyncio and uvloop let only this and KeyboardInterrupt out of a callback.
    """
    raise SystemExit(EXIT_CODE_INVARIANT) from violation


def end_process(violation: InvariantViolation) -> NoReturn:
    """End the process at once: no `finally`, no flush of half-made state, nothing that can hang."""
    try:
        logger.critical("ending the process: %s", violation, exc_info=violation)
        logging.shutdown()
    finally:
        os._exit(EXIT_CODE_INVARIANT)
