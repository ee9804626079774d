"""The state of a request while it is recorded, and templates for similar requests.

Not here: events (`auditor`) and their parts (`event_parts`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
from restow.request.context import User
from restow.request.request_info import RequestInfo

KINDS_MAX: Final = 4_096
"""Maximum number of cached templates for each rule set."""


class AuditSender(NamedTuple):
    """The parts of events that are the same for all requests with the same headers; cached with
    them."""

    user: User
    impersonator: User | None
    policy: AuditPolicy
    rules: RuleSet
    user_json: bytes
    """The encoded authenticated user, without impersonation."""
    users_json: bytes
    """`user_json`, followed by the encoded impersonated user, if any."""
    origin: bytes


class GetTemplate(NamedTuple):
    """The events of a get from the watch cache, without the user."""

    level: Level
    """NONE: not recorded. Above METADATA: use the normal path."""
    received: tuple[bytes, bytes, bytes] | None
    complete: tuple[bytes, bytes, bytes] | None
    """The parts before the audit ID, before the user, and after the origin."""


class GetEvents(NamedTuple):
    """The events of a get from the watch cache for one sender, without audit ID and times."""

    level: Level
    received: Parts | None
    complete: Parts | None


class RecordTemplate:
    """The parts of events that are the same for all requests that differ only in the object."""

    __slots__ = (
        *("about", "head", "is_brief", "is_long", "is_secret", "level"),
        *("omits_managed_fields", "stages", "verb"),
    )

    def __init__(self, info: RequestInfo, decision: AuditDecision) -> None:
        self.is_secret = holds_secrets(info)
        self.is_long = info.is_long
        # Bodies with secrets are never recorded, whatever the policy says.
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
        """Whether a successful request has a single event at the end, without bodies."""
        self.verb = b',"verb":%b,"user":' % encode(info.verb)


def template_for(rules: RuleSet, info: RequestInfo) -> RecordTemplate:
    """Return the template of a request."""
    key: tuple[str, ...]
    if info.is_resource:
        scope = (info.group, info.version, info.resource, info.subresource, info.namespace)
        key = (info.verb, *scope, info.name if rules.names_objects else "")
    else:
        key = (info.verb, info.path)
    found: RecordTemplate | None = rules.templates.get(key)
    if found is None:
        found = RecordTemplate(info, rules.decide(info))
        if len(rules.templates) >= KINDS_MAX:
            rules.templates.clear()
        rules.templates[key] = found
    return found


class AuditRecord:
    """A request that is being recorded. Without a template it is not recorded."""

    __slots__ = (
        "has_panicked",
        "is_allowed",
        "kind",
        "name",
        "notes",
        "response_status",
        "sender",
        "uri",
    )

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
        # Set by `complete` on the faster path, where the event is encoded later.
        self.name = ""
        self.response_status = self.notes = b""

    def parts(self) -> Parts:
        """Build the parts of its last event."""
        kind, sender = self.kind, self.sender
        assert kind is not None
        assert sender is not None
        what = kind.stages[COMPLETE], encode_text(self.uri), kind.verb
        about = kind.about.part(self.name), self.response_status
        return parts_of(kind.head, (*what, sender.users_json, sender.origin, *about), self.notes)


SILENT: Final = AuditRecord(None, None, "", is_allowed=None)
"""The record of a request that is not recorded."""
