"""The start and the end of answers that last: pushed streams and tunnels.

Slots, the audit log and the registry of long-running requests all need exactly one call at the end
of an answer, whichever side ends it, and even if it is never started.

Not here: what is done at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from restow.httpserver.stream import PushStream, StreamWriter
from restow.httpserver.tunnel import Tunnel, TunnelEnd

LongAnswer: TypeAlias = PushStream | Tunnel
AnswerEnd: TypeAlias = StreamWriter | TunnelEnd


def follow_answer(
    answer: LongAnswer,
    *,
    ended: Callable[[], None],
    started: Callable[[AnswerEnd], None] | None = None,
) -> None:
    """Call `ended` exactly once at the end of an answer, and `started` when it has started and has
    not ended meanwhile."""
    start, dropped = answer.start, answer.on_dropped

    def begin(end: Any) -> None:
        try:
            start(end)
        except BaseException:
            ended()
            raise
        if end.closed:
            ended()  # it ended during its start
            return
        before = end.on_end

        def on_end() -> None:
            try:
                ended()
            finally:
                if before is not None:
                    before()

        end.on_end = on_end
        if started is not None:
            started(end)

    def drop() -> None:
        try:
            ended()
        finally:
            if dropped is not None:
                dropped()

    answer.start, answer.on_dropped = begin, drop


def revoke(answer: LongAnswer, end: AnswerEnd, status_json: bytes) -> None:
    """End a started answer from this side, in a form that its client understands."""
    if answer.on_revoked is None:
        end.drop()
    else:
        answer.on_revoked(status_json)
