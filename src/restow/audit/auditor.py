"""The audit log: what has happened to each request, as the policy wants it written down.

    begin     who it is, is known       -> RequestReceived
    complete  there is an answer        -> ResponseComplete (Panic after an error nobody expected)
    stream    the answer has begun      -> ResponseStarted, and ResponseComplete at its end
    short     a get out of memory       -> the same as the first two, in as few steps as can be

Who cannot show who it is gets one event of stage ResponseStarted, as in Kubernetes. Whatever goes
wrong here is counted and logged, and never the request's trouble.

Not here: where lines go (`sink`), and what a request is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from restow.aio import Clock
from restow.audit.bodies import (
    NOTHING,
    STATUS_BEGIN,
    TRUNCATED_NOTE,
    Body,
    name_in,
    request_body,
    response_body,
    status_part,
)
from restow.audit.event_parts import (
    ALLOWED,
    NO_ANNOTATIONS,
    Event,
    annotations_part,
    encode,
    encode_text,
    origin_part,
    parts_of,
    user_part,
)
from restow.audit.policy import (
    COMPLETE,
    LEVEL_NAMES,
    METADATA,
    NONE,
    PANIC,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    AuditPolicy,
    RuleSet,
)
from restow.audit.records import (
    SILENT,
    AuditRecord,
    AuditSender,
    Noted,
    RecordTemplate,
    Short,
    kind_of,
    when_over,
)
from restow.audit.redaction import shown_uri
from restow.httpserver import HttpResponse, PullStream, PushStream, Tunnel
from restow.httpserver.request import Headers
from restow.request.audit_ids import quoted_line
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo
from restow.request.routes import ShortGet

SHORT_PARTS_MAX: Final = 16
"""Sets of rules of which the parts of a get are kept, for each object."""
REASONS_MAX: Final = 1_024

_CLOSED_EARLY: Final = (
    b',"responseStatus":{"metadata":{},"status":"Success","message":"Connection closed early"'
    b',"code":200}'
)
_TIMED_OUT: Final = (
    b',"responseStatus":{"metadata":{},"status":"Failure","message":"request did not complete'
    b' within the allotted timeout","reason":"Timeout","code":504}'
)
_HOW: Final = {code: b',"responseStatus":{"metadata":{},"code":%d}' % code for code in (200, 201)}
_OK: Final = _HOW[200]
_SWITCHED: Final = b',"responseStatus":{"metadata":{},"code":101}'
FAILED: Final = "a request could not be written to the audit log"
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_SUCCESS: Final = range(200, 300)

logger = logging.getLogger(__name__)

Stream: TypeAlias = "PushStream | PullStream | Tunnel"
Reason: TypeAlias = "Callable[[User, RequestInfo], str]"
"""Why somebody may do something."""


class AuditSink(Protocol):
    """Where events go."""

    def put(self, event: Event, own_bytes: int) -> None:
        """Take an event, with how much of its parts was made for it alone. Never waits for
        anything but the disk, and never fails."""


class Auditor:
    """Writes requests down."""

    def __init__(
        self, policy: AuditPolicy, sink: AuditSink, clock: Clock, *, reason: Reason | None = None
    ) -> None:
        self.listeners: Final[list[Callable[[], None]]] = []
        """Called when other things are to be written than before."""
        self._policy = policy
        self._nobody = policy.rules_for(None)
        self._sink = sink
        self.put: Final = sink.put
        """Have an event written, as it is."""
        self._clock = clock
        self._monotonic = clock.monotonic
        self.reason = reason
        self._reasons: dict[str, bytes] = {"": ALLOWED}
        self.levels = [0] * len(LEVEL_NAMES)
        """Requests, by the level at which they were written down."""
        self.failures = 0
        """Events that could not be made."""

    @property
    def policy(self) -> AuditPolicy:
        return self._policy

    def take(self, policy: AuditPolicy) -> None:
        """Go by these rules from now on."""
        self._policy = policy
        self._nobody = policy.rules_for(None)
        for tell in self.listeners:
            tell()

    # --- gets out of memory ------------------------------------------------------------------

    def short(self, short: ShortGet, headers: Headers, user: User) -> Noted | None:
        """What is to be written of such gets, until a role or the policy changes; None: that is
        found out on the long way."""
        sender: AuditSender | None = headers.audit_memo
        if sender is None or sender.user is not user or sender.policy is not self._policy:
            return None
        found: Short | None = short.audited.get(sender.rules)
        if found is None:
            found = self._make_short(short, sender.rules)
        if found.level > METADATA:
            return None
        end = ALLOWED
        if found.level and not user.is_master and self.reason is not None:
            end = self._why(self.reason(user, short.info))
        who, received, complete = (sender.asker, sender.origin), None, None
        if found.received is not None:
            before, stage, about = found.received
            received = parts_of(before, (stage, *who, about), NO_ANNOTATIONS)
        if found.complete is not None:
            before, stage, about = found.complete
            complete = parts_of(before, (stage, *who, about), end)
        return Noted(found.level, received, complete)

    def _make_short(self, short: ShortGet, rules: RuleSet) -> Short:
        info = short.info
        kind = kind_of(rules, info)
        uri, about = encode(shown_uri(info.path, "")), kind.about.part(info.name)
        received = complete = None
        if kind.level != NONE and (stage := kind.stages.get(RECEIVED)):
            received = (kind.head, b"".join((stage, uri, kind.verb)), about)
        if kind.level != NONE and (stage := kind.stages.get(COMPLETE)):
            complete = (kind.head, b"".join((stage, uri, kind.verb)), about + _OK)
        made = Short(kind.level, received, complete)
        if len(short.audited) >= SHORT_PARTS_MAX:
            short.audited.clear()
        short.audited[rules] = made
        return made

    def note_short(
        self, noted: Noted, line: bytes, received_seconds: float, now_seconds: float
    ) -> None:
        """Write down a get that was answered out of memory; `line` has its id."""
        level, received, complete = noted
        self.levels[level] += 1
        if received is not None:
            self.put((received, line, received_seconds, received_seconds), 0)
        if complete is not None:
            self.put((complete, line, received_seconds, now_seconds), 0)

    def _why(self, reason: str) -> bytes:
        found = self._reasons.get(reason)
        if found is None:
            if len(self._reasons) >= REASONS_MAX:
                self._reasons.clear()
            found = self._reasons[reason] = annotations_part(is_allowed=True, reason=reason)
        return found

    # --- all other requests ------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """Somebody is known to ask, and may: note that, before anything is done."""
        if context.audit is None:
            try:
                self._begin(context, is_allowed=True)
            except Exception as error:  # noqa: BLE001 - logged inside
                self._failed(context, error)

    def complete(self, context: Context, answer: HttpResponse) -> None:
        """A request has its answer."""
        try:
            record: AuditRecord | None = context.audit
            if record is None:
                record = self._refused(context, answer.status)
            kind = record.kind
            if kind is None:
                return
            how, body = _HOW.get(answer.status), answer.body
            if (
                how is not None
                and kind.is_brief
                and record.sender is not None
                and record.is_allowed
                and not record.has_panicked
                and context.annotations is None
                and not (isinstance(body, bytes) and body.startswith(STATUS_BEGIN))
            ):
                self._complete_brief(context, record, answer, how)
            else:
                self._complete(context, record, answer)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def stream(self, context: Context, stream: Stream) -> None:
        """A request has an answer that is not whole."""
        try:
            record: AuditRecord | None = context.audit
            if record is None:
                record = self._begin(context, is_allowed=True)
            if record.kind is not None:
                self._stream(context, record, stream)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def given_up(self, context: Context) -> None:
        """Nobody waits for the answer any longer: the client has left, or it took too long."""
        record: AuditRecord | None = context.audit
        if record is None or record.kind is None:
            return
        is_late = self._monotonic() >= context.request.answer_by_seconds
        how = _TIMED_OUT if is_late else _CLOSED_EARLY
        try:
            if record.kind.is_long:
                self._write(context, record, STARTED, how)
            self._write(context, record, COMPLETE, how)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def panicked(self, context: Context) -> None:
        """An error has come up that nobody expected."""
        record: AuditRecord | None = context.audit
        if record is not None and record is not SILENT:
            record.has_panicked = True

    def _begin(
        self, context: Context, *, is_allowed: bool | None, user_known: bool = True
    ) -> AuditRecord:
        info, request = context.info, context.request
        sender = self._sender(context) if user_known else None
        kind = kind_of(self._nobody if sender is None else sender.rules, info)
        self.levels[kind.level] += 1
        if kind.level == NONE:
            context.audit = SILENT
            return SILENT
        uri = shown_uri(request.path, request.query)
        record = context.audit = AuditRecord(kind, sender, uri, is_allowed=is_allowed)
        stage = kind.stages.get(RECEIVED)
        if sender is not None and stage is not None:
            at, line = request.received_seconds, quoted_line(request.answer_lines)
            who, about = (sender.asker, sender.origin), kind.about.part(info.name)
            begin = stage + encode_text(uri) + kind.verb
            parts = parts_of(kind.head, (begin, *who, about), NO_ANNOTATIONS)
            self.put((parts, line, at, at), len(parts[1]))
        return record

    def _refused(self, context: Context, code: int) -> AuditRecord:
        """Somebody was sent away before anything was done."""
        if code == _UNAUTHORIZED:
            return self._begin(context, is_allowed=None, user_known=False)
        is_allowed = False if code == _FORBIDDEN else None
        return self._begin(context, is_allowed=is_allowed)

    def _sender(self, context: Context) -> AuditSender:
        headers, user, impersonator = context.request.headers, context.user, context.impersonator
        known: AuditSender | None = headers.audit_memo
        if (
            known is not None
            and known.user is user
            and known.impersonator is impersonator
            and known.policy is self._policy
        ):
            return known
        asking = user if impersonator is None else impersonator
        asker = full = user_part(asking)
        if impersonator is not None:
            full += b',"impersonatedUser":' + user_part(user)
        sender = AuditSender(
            user,
            impersonator,
            self._policy,
            self._policy.rules_for(asking),
            asker,
            full,
            origin_part(headers, context.request.peer),
        )
        headers.audit_memo = sender
        return sender

    def _complete(self, context: Context, record: AuditRecord, answer: HttpResponse) -> None:
        kind, info = record.kind, context.info
        assert kind is not None
        how = status_part(answer, is_secret=kind.is_secret)
        if record.sender is None:
            self._write(context, record, STARTED, how)
            return
        if kind.is_long:
            self._write(context, record, STARTED, how)
        name = info.name
        if not name and info.verb == "create" and answer.status in _SUCCESS:
            name = name_in(answer)
        stage = PANIC if record.has_panicked else COMPLETE
        if kind.level < REQUEST or not record.is_allowed or not info.is_resource:
            self._write(context, record, stage, how, name=name)
            return
        omits, returned = kind.omits_managed_fields, NOTHING
        sent = request_body(context, omits_managed_fields=omits)
        if kind.level >= REQUEST_RESPONSE:
            returned = response_body(answer, omits_managed_fields=omits)
        self._write(context, record, stage, how, name=name, bodies=(sent, returned))

    def _complete_brief(
        self, context: Context, record: AuditRecord, answer: HttpResponse, how: bytes
    ) -> None:
        """The same in fewer steps, for most requests: of their events parts are made later."""
        info, request, user = context.info, context.request, context.user
        name = info.name
        if not name and info.verb == "create":
            name = name_in(answer)
        record.name, record.how, record.notes = name, how, ALLOWED
        if not user.is_master and self.reason is not None:
            record.notes = self._why(self.reason(user, info))
        at, now = request.received_seconds, self._monotonic()
        self.put((record, quoted_line(request.answer_lines), at, now), len(record.uri))

    def _stream(self, context: Context, record: AuditRecord, stream: Stream) -> None:
        kind = record.kind
        assert kind is not None
        if isinstance(stream, Tunnel):
            how = _SWITCHED
        else:
            how = b',"responseStatus":{"metadata":{},"code":%d}' % stream.status
        if isinstance(stream, PullStream):
            # It is whole, but for being sent.
            cut = Body(is_cut=kind.level >= REQUEST_RESPONSE)
            self._write(context, record, COMPLETE, how, bodies=(NOTHING, cut))
            return
        if kind.is_long or isinstance(stream, Tunnel):
            self._write(context, record, STARTED, how)

        def ended() -> None:
            try:
                self._write(context, record, COMPLETE, how)
            except Exception as error:  # noqa: BLE001 - logged inside
                self._failed(context, error)

        when_over(stream, ended)

    def _write(
        self,
        context: Context,
        record: AuditRecord,
        stage: str,
        how: bytes,
        *,
        name: str = "",
        bodies: tuple[Body, Body] | None = None,
    ) -> None:
        """Write an event down, unless its stage is left out."""
        kind, sender, request = record.kind, record.sender, context.request
        begin = None if kind is None else kind.stages.get(stage)
        if kind is None or begin is None:
            return
        name = name or context.info.name
        if bodies is None:
            about, objects, is_cut = kind.about.part(name), b"", False
        else:
            about, objects = _about(kind, name, bodies[0]), _objects(*bodies)
            is_cut = bodies[0].is_cut or bodies[1].is_cut
        if sender is None:
            who = user_part(None), origin_part(request.headers, request.peer)
        else:
            who = sender.full, sender.origin
        line = quoted_line(request.answer_lines)
        begin += encode_text(record.uri) + kind.verb
        notes = self._notes(context, record, is_cut=is_cut)
        parts = parts_of(kind.head, (begin, *who, about, how, objects), notes)
        own_bytes = len(parts[1]) + len(notes)
        self.put((parts, line, request.received_seconds, self._monotonic()), own_bytes)

    def _notes(self, context: Context, record: AuditRecord, *, is_cut: bool) -> bytes:
        noted, reason = context.annotations, ""
        if record.is_allowed is not None and not context.user.is_master and self.reason is not None:
            reason = self.reason(context.user, context.info)
        if is_cut:
            noted = {**(noted or {}), TRUNCATED_NOTE: "true"}
        if record.is_allowed and not noted:
            return self._why(reason)
        return annotations_part(is_allowed=record.is_allowed, reason=reason, noted=noted)

    def _failed(self, context: Context, error: Exception) -> None:
        """Nothing more is written of this request."""
        self.failures += 1
        context.audit = SILENT
        logger.error(FAILED, exc_info=error)


def _about(kind: RecordTemplate, name: str, sent: Body) -> bytes:
    """What a request is about, with what its body says of that."""
    metadata = sent.metadata or {}
    return kind.about.part(
        name or _text(metadata, "name"),
        _text(metadata, "uid"),
        _text(metadata, "resourceVersion"),
    )


def _objects(sent: Body, returned: Body) -> bytes:
    first = b',"requestObject":' + sent.text if sent.text else b""
    return first + b',"responseObject":' + returned.text if returned.text else first


def _text(metadata: dict[str, object], name: str) -> str:
    found = metadata.get(name)
    return found if isinstance(found, str) else ""
