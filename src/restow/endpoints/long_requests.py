"""The registry of long-running requests: every watch, bundle, proxied stream and tunnel.

Each is registered with what is needed to check it again, and leaves when it ends, in whatever way.
Requests are grouped, so that each distinct credential is authenticated once and each distinct
question is authorized once, however many requests depend on it:

    sender (header lines, client certificate) -> question (verb, path, selected name) -> requests

Not here: when and how they are checked (`revocation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from restow.httpserver import AnswerEnd, HttpRequest, LongAnswer, follow_answer, revoke
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo

IGNORED_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "audit-id", "sec-websocket-key", "user-agent"}
)
"""Headers that never identify a user, and that differ between requests of one client."""

_SenderKey = tuple[object, ...]
_QuestionKey = tuple[str, str, str]


class LongRequest:
    """One running request."""

    __slots__ = ("_answer", "_end")

    def __init__(self, answer: LongAnswer) -> None:
        self._answer = answer
        self._end: AnswerEnd | None = None

    def begin(self, end: AnswerEnd) -> None:
        self._end = end

    def end(self, status_json: bytes) -> bool:
        """End it with this Status; return False if it has not started, or has ended. One that has
        not started is ended by the next check."""
        if self._end is None or self._end.closed:
            return False
        revoke(self._answer, self._end, status_json)
        return True


@dataclass(slots=True)
class Question:
    """What the requests of one sender need to be authorized for."""

    info: RequestInfo
    requests: dict[LongRequest, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class LongSender:
    """The requests with one credential."""

    request: HttpRequest
    """One of them: they have the same credential."""
    user: User
    impersonator: User | None
    questions: dict[_QuestionKey, Question] = field(default_factory=dict)
    unknown_since_seconds: float | None = None
    """Since when it could not be checked."""

    def note_known(self) -> None:
        """All its requests could be checked."""
        self.unknown_since_seconds = None

    def note_unknown(self, now: float) -> float:
        """It could not be checked; return for how many seconds."""
        if self.unknown_since_seconds is None:
            self.unknown_since_seconds = now
        return now - self.unknown_since_seconds

    def requests(self) -> Iterator[LongRequest]:
        for question in self.questions.values():
            yield from question.requests


class LongRequests:
    """All running requests of one server."""

    def __init__(self) -> None:
        self._senders: dict[_SenderKey, LongSender] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def senders(self) -> list[LongSender]:
        """All senders with a running request."""
        return list(self._senders.values())

    def add(self, context: Context, answer: LongAnswer) -> None:
        """Register the answer to an admitted request until it ends."""
        sender_key, question_key = _sender_key(context.request), _question_key(context.info)
        sender = self._senders.get(sender_key)
        if sender is None:
            sender = LongSender(context.request, context.user, context.impersonator)
            self._senders[sender_key] = sender
        question = sender.questions.get(question_key)
        if question is None:
            question = sender.questions[question_key] = Question(context.info)
        long = LongRequest(answer)
        question.requests[long] = None
        self._count += 1

        def leave() -> None:
            self._count -= 1
            del question.requests[long]
            if not question.requests:
                del sender.questions[question_key]
            if not sender.questions:
                del self._senders[sender_key]

        follow_answer(answer, ended=leave, started=long.begin)


def _sender_key(request: HttpRequest) -> _SenderKey:
    """Everything that authentication depends on, besides the configuration of the server."""
    certificate = request.peer.certificate
    lines = (line for line in request.headers.items() if line[0] not in IGNORED_HEADERS)
    return (request.method, None if certificate is None else certificate.der, *lines)


def _question_key(info: RequestInfo) -> _QuestionKey:
    return info.verb, info.path, info.parameter("fieldSelector")
