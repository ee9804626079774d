"""What is kept of a request while it is being written down, and of those that are like it.

Not here: events (`auditor`) and their parts (`event_parts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from restow.audit.event_parts import HEADS, About, Parts, encode, encode_text, parts_of
from restow.audit.policy import (
    COMPLETE,
    METADATA,
    STAGES,
    AuditDecision,
    AuditPolicy,
    Level,
    RuleSet,
)
from restow.audit.redaction import holds_secrets
from restow.httpserver import PushStream, Tunnel
from restow.request.context import User
from restow.request.request_info import RequestInfo

KINDS_MAX: Final = 4_096
"""Kinds of requests that are remembered, for each set of rules."""


class AuditSender(NamedTuple):
    """What is written of all requests with the same header lines; kept with those lines."""

    user: User
    impersonator: User | None
    policy: AuditPolicy
    rules: RuleSet
    asker: bytes
    """The user who has sent it, before anything was found out about a wish to be another."""
    full: bytes
    """The same with whom it is done as."""
    origin: bytes


class Short(NamedTuple):
    """What is written of a get that is answered out of memory."""

    level: Level
    """None: nothing. More than the metadata: it must go the long way."""
    received: tuple[bytes, bytes, bytes] | None
    complete: tuple[bytes, bytes, bytes] | None
    """What stands before the id, before the user, and behind the origin."""


class Noted(NamedTuple):
    """The same for one sender: all that is written of such a get, but for its id and times."""

    level: Level
    received: Parts | None
    complete: Parts | None


class RecordTemplate:
    """What is written of all requests that differ in nothing but the object and its content."""

    __slots__ = (
        *("about", "head", "is_brief", "is_long", "is_secret", "level"),
        *("omits_managed_fields", "stages", "verb"),
    )

    def __init__(self, info: RequestInfo, decision: AuditDecision) -> None:
        self.is_secret = holds_secrets(info)
        self.is_long = info.is_long
        # Of what holds secrets no bodies are written, whatever the policy says.
        self.level = min(decision.level, METADATA) if self.is_secret else decision.level
        self.omits_managed_fields = decision.omits_managed_fields
        self.head = HEADS[self.level]
        self.about = About(info)
        self.stages = {
            stage: b'","stage":"%b","requestURI":' % stage.encode()
            for stage in STAGES
            if stage not in decision.omitted
        }
        self.is_brief = (
            self.level <= METADATA and not self.is_long and COMPLETE not in decision.omitted
        )
        """Of those that go well, one event is written at the end, without bodies."""
        self.verb = b',"verb":%b,"user":' % encode(info.verb)


def kind_of(rules: RuleSet, info: RequestInfo) -> RecordTemplate:
    """What the rules say of a request."""
    key: tuple[str, ...]
    if info.is_resource:
        place = (info.group, info.version, info.resource, info.subresource, info.namespace)
        key = (info.verb, *place, info.name if rules.names_objects else "")
    else:
        key = (info.verb, info.path)
    found: RecordTemplate | None = rules.kinds.get(key)
    if found is None:
        found = RecordTemplate(info, rules.decide(info))
        if len(rules.kinds) >= KINDS_MAX:
            rules.kinds.clear()
        rules.kinds[key] = found
    return found


class AuditRecord:
    """One request that is being written down; without a kind it is not."""

    __slots__ = ("has_panicked", "how", "is_allowed", "kind", "name", "notes", "sender", "uri")

    def __init__(
        self,
        kind: RecordTemplate | None,
        sender: AuditSender | None,
        uri: str,
        *,
        is_allowed: bool | None,
    ) -> None:
        self.kind = kind
        self.sender = sender
        self.uri = uri
        self.is_allowed = is_allowed
        self.has_panicked = False
        # Of one that is done, and of which only the lines must still be made.
        self.name = ""
        self.how = self.notes = b""

    def parts(self) -> Parts:
        """The parts of its last event."""
        kind, sender = self.kind, self.sender
        assert kind is not None
        assert sender is not None
        what = kind.stages[COMPLETE], encode_text(self.uri), kind.verb
        about = kind.about.part(self.name), self.how
        return parts_of(kind.head, (*what, sender.full, sender.origin, *about), self.notes)


SILENT: Final = AuditRecord(None, None, "", is_allowed=None)
"""Of a request that is not written down."""


def when_over(stream: PushStream | Tunnel, ended: Callable[[], None]) -> None:
    """Have something called once, whoever ends a stream, and also if nobody takes it."""
    start, dropped = stream.start, stream.on_dropped

    def begin(end: Any) -> None:
        try:
            start(end)
        except BaseException:
            ended()
            raise
        if end.closed:
            ended()  # in the same breath
            return
        before = end.on_end

        def over() -> None:
            ended()
            if before is not None:
                before()

        end.on_end = over

    def drop() -> None:
        ended()
        if dropped is not None:
            dropped()

    stream.start, stream.on_dropped = begin, drop
