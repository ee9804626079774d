"""Creates the audit events of each request, as the audit policy requires.

    begin      the request is authorized     -> RequestReceived
    complete   the response exists           -> ResponseComplete (Panic after an internal error)
    stream     the response has started      -> ResponseStarted, and ResponseComplete at its end
    events_of_get  a get from the watch cache -> the same as begin and complete, which its shortcut
               (`short_gets`) writes
    refused    the head or path is invalid   -> ResponseComplete

A request whose authentication fails gets one event of stage ResponseStarted, as in Kubernetes. An
error in this module is counted and logged; it never affects the request.

Not here: the output of events (`sink`), and the responses to requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from restow.aio import Clock
from restow.aio.events import EventChannel
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
    HEADS,
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
    GetEvents,
    GetTemplate,
    RecordTemplate,
    template_for,
)
from restow.audit.redaction import redacted_uri
from restow.httpserver import (
    HttpRequest,
    HttpResponse,
    PullStream,
    PushStream,
    Tunnel,
    follow_answer,
)
from restow.httpserver.request import Headers
from restow.request.audit_ids import quoted_line
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo
from restow.request.routes import ShortGet

SHORT_PARTS_MAX: Final = 16
"""Maximum number of rule sets for which the parts of a cached get are kept, for each object."""
REASONS_MAX: Final = 1_024

_CLOSED_EARLY: Final = (
    b',"responseStatus":{"metadata":{},"status":"Success","message":"Connection closed early"'
    b',"code":200}'
)
_TIMED_OUT: Final = (
    b',"responseStatus":{"metadata":{},"status":"Failure","message":"request did not complete'
    b' within the allotted timeout","reason":"Timeout","code":504}'
)
_STATUS_BY_CODE: Final = {
    code: b',"responseStatus":{"metadata":{},"code":%d}' % code for code in (200, 201)
}
_OK: Final = _STATUS_BY_CODE[200]
_SWITCHED: Final = b',"responseStatus":{"metadata":{},"code":101}'
FAILED: Final = "cannot create the audit event of a request"
_REFUSED_BEGIN: Final = b'","stage":"%b","requestURI":' % COMPLETE.encode()
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_SUCCESS: Final = range(200, 300)

logger = logging.getLogger(__name__)

Stream: TypeAlias = "PushStream | PullStream | Tunnel"
Reason: TypeAlias = "Callable[[User, RequestInfo], str]"
"""Returns why a user is authorized for a request."""


class AuditSink(Protocol):
    """The output of audit events."""

    def put(self, event: Event, own_bytes: int) -> None:
        """Write an event. `own_bytes` is the size of its parts that no other event shares. It
        blocks only on the disk, and never raises."""


class Auditor:
    """Creates audit events."""

    def __init__(
        self, policy: AuditPolicy, sink: AuditSink, clock: Clock, *, reason: Reason | None = None
    ) -> None:
        self.changed: EventChannel[[]] = EventChannel()
        """Called when the audit policy has changed."""
        self._policy = policy
        self._unauthenticated_rules = policy.rules_for(None)
        self._sink = sink
        self.put: Final = sink.put
        """Write an event unchanged."""
        self._clock = clock
        self._monotonic = clock.monotonic
        self.reason = reason
        self._reasons: dict[str, bytes] = {"": ALLOWED}
        self.levels = [0] * len(LEVEL_NAMES)
        """Number of requests by audit level."""
        self.failures = 0
        """Number of events that could not be created."""

    @property
    def policy(self) -> AuditPolicy:
        return self._policy

    def take(self, policy: AuditPolicy) -> None:
        """Replace the audit policy."""
        self._policy = policy
        self._unauthenticated_rules = policy.rules_for(None)
        self.changed.emit()

    # --- gets from the watch cache -----------------------------------------------------------

    def events_of_get(self, short: ShortGet, headers: Headers, user: User) -> GetEvents | None:
        """Return the events of gets like this one, valid until a role or the policy changes.

        None: the get must take the normal request path."""
        sender: AuditSender | None = headers.audit_memo
        if sender is None or sender.user is not user or sender.policy is not self._policy:
            return None
        found: GetTemplate | None = short.audited.get(sender.rules)
        if found is None:
            found = self._make_get_template(short, sender.rules)
        if found.level > METADATA:
            return None
        end = ALLOWED
        if found.level and not user.is_master and self.reason is not None:
            end = self._annotations_of(self.reason(user, short.info))
        identity, received, complete = (sender.user_json, sender.origin), None, None
        if found.received is not None:
            before, stage, about = found.received
            received = parts_of(before, (stage, *identity, about), NO_ANNOTATIONS)
        if found.complete is not None:
            before, stage, about = found.complete
            complete = parts_of(before, (stage, *identity, about), end)
        return GetEvents(found.level, received, complete)

    def _make_get_template(self, short: ShortGet, rules: RuleSet) -> GetTemplate:
        info = short.info
        kind = template_for(rules, info)
        uri, about = encode(redacted_uri(info.path, "")), kind.about.part(info.name)
        received = complete = None
        if kind.level != NONE and (stage := kind.stages.get(RECEIVED)):
            received = (kind.head, b"".join((stage, uri, kind.verb)), about)
        if kind.level != NONE and (stage := kind.stages.get(COMPLETE)):
            complete = (kind.head, b"".join((stage, uri, kind.verb)), about + _OK)
        made = GetTemplate(kind.level, received, complete)
        if len(short.audited) >= SHORT_PARTS_MAX:
            short.audited.clear()
        short.audited[rules] = made
        return made

    def _annotations_of(self, reason: str) -> bytes:
        found = self._reasons.get(reason)
        if found is None:
            if len(self._reasons) >= REASONS_MAX:
                self._reasons.clear()
            found = self._reasons[reason] = annotations_part(is_allowed=True, reason=reason)
        return found

    # --- all other requests ------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """Record a request that is authenticated and authorized, before it is executed."""
        if context.audit is None:
            try:
                self._begin(context, is_allowed=True)
            except Exception as error:  # noqa: BLE001 - logged inside
                self._failed(context, error)

    def complete(self, context: Context, answer: HttpResponse) -> None:
        """Record the response to a request."""
        try:
            record: AuditRecord | None = context.audit
            if record is None:
                record = self._begin_rejected(context, answer.status)
            kind = record.kind
            if kind is None:
                return
            response_status, body = _STATUS_BY_CODE.get(answer.status), answer.body
            if (
                response_status is not None
                and kind.is_brief
                and record.sender is not None
                and record.is_allowed
                and not record.has_panicked
                and context.annotations is None
                and not (isinstance(body, bytes) and body.startswith(STATUS_BEGIN))
            ):
                self._complete_brief(context, record, answer, response_status)
            else:
                self._complete(context, record, answer)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def refused(self, request: HttpRequest, user: User | None, answer: HttpResponse) -> None:
        """Record a request that was refused while its head or path was read. It has no attributes
        that a rule could match, so every policy that records anything records it."""
        try:
            if self._policy.is_silent:
                return
            verb = b',"verb":%b,"user":' % encode(request.method.lower())
            what = _REFUSED_BEGIN, encode_text(redacted_uri(request.path, request.query)), verb
            origin = origin_part(request.headers, request.peer)
            about = user_part(user), origin, status_part(answer, is_secret=False)
            parts = parts_of(HEADS[METADATA], (*what, *about), NO_ANNOTATIONS)
            self.levels[METADATA] += 1
            times = request.received_seconds, self._monotonic()
            self.put((parts, quoted_line(request.answer_lines), *times), len(parts[1]))
        except Exception:
            self.failures += 1
            logger.exception(FAILED)

    def stream(self, context: Context, stream: Stream) -> None:
        """Record a request whose response is streamed."""
        try:
            record: AuditRecord | None = context.audit
            if record is None:
                record = self._begin(context, is_allowed=True)
            if record.kind is not None:
                self._stream(context, record, stream)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def abandoned(self, context: Context) -> None:
        """Record a request whose response cannot be sent: client disconnected, or timeout."""
        record: AuditRecord | None = context.audit
        if record is None or record.kind is None:
            return
        is_late = self._monotonic() >= context.request.answer_by_seconds
        response_status = _TIMED_OUT if is_late else _CLOSED_EARLY
        try:
            if record.kind.is_long:
                self._write(context, record, STARTED, response_status)
            self._write(context, record, COMPLETE, response_status)
        except Exception as error:  # noqa: BLE001 - logged inside
            self._failed(context, error)

    def panicked(self, context: Context) -> None:
        """Mark a request that failed with an internal error."""
        record: AuditRecord | None = context.audit
        if record is not None and record is not SILENT:
            record.has_panicked = True

    def _begin(
        self, context: Context, *, is_allowed: bool | None, is_authenticated: bool = True
    ) -> AuditRecord:
        info, request = context.info, context.request
        sender = self._sender(context) if is_authenticated else None
        kind = template_for(self._unauthenticated_rules if sender is None else sender.rules, info)
        self.levels[kind.level] += 1
        if kind.level == NONE:
            context.audit = SILENT
            return SILENT
        uri = redacted_uri(request.path, request.query)
        record = context.audit = AuditRecord(kind, sender, uri, is_allowed=is_allowed)
        stage = kind.stages.get(RECEIVED)
        if sender is not None and stage is not None:
            received_seconds, line = request.received_seconds, quoted_line(request.answer_lines)
            identity, about = (sender.user_json, sender.origin), kind.about.part(info.name)
            begin = stage + encode_text(uri) + kind.verb
            parts = parts_of(kind.head, (begin, *identity, about), NO_ANNOTATIONS)
            self.put((parts, line, received_seconds, received_seconds), len(parts[1]))
        return record

    def _begin_rejected(self, context: Context, code: int) -> AuditRecord:
        """Record a request that was rejected before it was executed."""
        if code == _UNAUTHORIZED:
            return self._begin(context, is_allowed=None, is_authenticated=False)
        is_allowed = False if code == _FORBIDDEN else None
        return self._begin(context, is_allowed=is_allowed)

    def _sender(self, context: Context) -> AuditSender:
        headers, user, impersonator = context.request.headers, context.user, context.impersonator
        cached: AuditSender | None = headers.audit_memo
        if (
            cached is not None
            and cached.user is user
            and cached.impersonator is impersonator
            and cached.policy is self._policy
        ):
            return cached
        user_to_record = user if impersonator is None else impersonator
        user_json = users_json = user_part(user_to_record)
        if impersonator is not None:
            users_json += b',"impersonatedUser":' + user_part(user)
        sender = AuditSender(
            user,
            impersonator,
            self._policy,
            self._policy.rules_for(user_to_record),
            user_json,
            users_json,
            origin_part(headers, context.request.peer),
        )
        headers.audit_memo = sender
        return sender

    def _complete(self, context: Context, record: AuditRecord, answer: HttpResponse) -> None:
        kind, info = record.kind, context.info
        assert kind is not None
        response_status = status_part(answer, is_secret=kind.is_secret)
        if record.sender is None:
            self._write(context, record, STARTED, response_status)
            return
        if kind.is_long:
            self._write(context, record, STARTED, response_status)
        name = info.name
        if not name and info.verb == "create" and answer.status in _SUCCESS:
            name = name_in(answer)
        stage = PANIC if record.has_panicked else COMPLETE
        if kind.level < REQUEST or not record.is_allowed or not info.is_resource:
            self._write(context, record, stage, response_status, name=name)
            return
        omits, returned = kind.omits_managed_fields, NOTHING
        sent = request_body(context, omits_managed_fields=omits)
        if kind.level >= REQUEST_RESPONSE:
            returned = response_body(answer, omits_managed_fields=omits)
        self._write(context, record, stage, response_status, name=name, bodies=(sent, returned))

    def _complete_brief(
        self, context: Context, record: AuditRecord, answer: HttpResponse, response_status: bytes
    ) -> None:
        """Record the response to a typical request on a fast path: its parts are encoded later."""
        info, request, user = context.info, context.request, context.user
        name = info.name
        if not name and info.verb == "create":
            name = name_in(answer)
        record.name, record.response_status, record.notes = name, response_status, ALLOWED
        if not user.is_master and self.reason is not None:
            record.notes = self._annotations_of(self.reason(user, info))
        received_seconds, now = request.received_seconds, self._monotonic()
        self.put(
            (record, quoted_line(request.answer_lines), received_seconds, now), len(record.uri)
        )

    def _stream(self, context: Context, record: AuditRecord, stream: Stream) -> None:
        kind = record.kind
        assert kind is not None
        if isinstance(stream, Tunnel):
            response_status = _SWITCHED
        else:
            response_status = b',"responseStatus":{"metadata":{},"code":%d}' % stream.status
        if isinstance(stream, PullStream):
            # The response is complete, but not sent yet.
            cut = Body(is_cut=kind.level >= REQUEST_RESPONSE)
            self._write(context, record, COMPLETE, response_status, bodies=(NOTHING, cut))
            return
        if kind.is_long or isinstance(stream, Tunnel):
            self._write(context, record, STARTED, response_status)

        def ended() -> None:
            try:
                self._write(context, record, COMPLETE, response_status)
            except Exception as error:  # noqa: BLE001 - logged inside
                self._failed(context, error)

        follow_answer(stream, ended=ended)

    def _write(
        self,
        context: Context,
        record: AuditRecord,
        stage: str,
        response_status: bytes,
        *,
        name: str = "",
        bodies: tuple[Body, Body] | None = None,
    ) -> None:
        """Write an event, unless the policy omits its stage."""
        kind, sender, request = record.kind, record.sender, context.request
        begin = None if kind is None else kind.stages.get(stage)
        if kind is None or begin is None:
            return
        name = name or context.info.name
        if bodies is None:
            about, objects, is_cut = kind.about.part(name), b"", False
        else:
            about, objects = _object_ref(kind, name, bodies[0]), _objects(*bodies)
            is_cut = bodies[0].is_cut or bodies[1].is_cut
        if sender is None:
            identity = user_part(None), origin_part(request.headers, request.peer)
        else:
            identity = sender.users_json, sender.origin
        line = quoted_line(request.answer_lines)
        begin += encode_text(record.uri) + kind.verb
        notes = self._notes(context, record, is_cut=is_cut)
        parts = parts_of(kind.head, (begin, *identity, about, response_status, objects), notes)
        own_bytes = len(parts[1]) + len(notes)
        self.put((parts, line, request.received_seconds, self._monotonic()), own_bytes)

    def _notes(self, context: Context, record: AuditRecord, *, is_cut: bool) -> bytes:
        noted, reason = context.annotations, ""
        if record.is_allowed is not None and not context.user.is_master and self.reason is not None:
            reason = self.reason(context.user, context.info)
        if is_cut:
            noted = {**(noted or {}), TRUNCATED_NOTE: "true"}
        if record.is_allowed and not noted:
            return self._annotations_of(reason)
        return annotations_part(is_allowed=record.is_allowed, reason=reason, extra=noted)

    def _failed(self, context: Context, error: Exception) -> None:
        """Log and count the error, and record nothing more about this request."""
        self.failures += 1
        context.audit = SILENT
        logger.error(FAILED, exc_info=error)


def _object_ref(kind: RecordTemplate, name: str, sent: Body) -> bytes:
    """Return the objectRef of a request, completed from the metadata of its body."""
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
