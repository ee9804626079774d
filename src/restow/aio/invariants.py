"""Broken invariants: assertions for states that only a bug can produce, and the end of the process.

Not for bad input, lost connections or anything else that can happen to a correct program: those are
ordinary exceptions or values.
"""

import logging
import os
from typing import NoReturn

# EX_SOFTWARE of sysexits.h: an internal error, distinct from a failed start or a signal.
EXIT_CODE_INVARIANT = 70

logger = logging.getLogger(__name__)


class InvariantViolation(BaseException):
    """An invariant does not hold: the process must end before it does more damage.

    A BaseException, so that a broad `except Exception` at the top of a task does not catch it; not
    a SystemExit, because a plain thread drops that silently.
    """


def invariant(condition: bool, message: str) -> None:  # noqa: FBT001  (reads like assert)
    """Raise InvariantViolation unless the condition holds; unlike assert, also with -O."""
    if not condition:
        raise InvariantViolation(message)


def find_violation(error: BaseException) -> InvariantViolation | None:
    """Return the first InvariantViolation in an error or exception group."""
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
    """Return the error of a group to report: a broken invariant, else the first of these types that
    the group contains, else any."""
    if (violation := find_violation(group)) is not None:
        return violation
    found = (group.subgroup(wanted) for wanted in preferred)
    error: BaseException = next(filter(None, found), group)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def stop_loop(violation: InvariantViolation) -> NoReturn:
    """End the event loop from one of its callbacks; `finally` blocks still run.

    SystemExit, because asyncio and uvloop let only this and KeyboardInterrupt leave a callback.
    """
    raise SystemExit(EXIT_CODE_INVARIANT) from violation


def end_process(violation: InvariantViolation) -> NoReturn:
    """End the process at once: no `finally` blocks, no flush of partial state, nothing can hang."""
    try:
        logger.critical("ending the process: %s", violation, exc_info=violation)
        logging.shutdown()
    finally:
        os._exit(EXIT_CODE_INVARIANT)
