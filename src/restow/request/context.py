"""The state of one request while it is processed.

Filters set it, handlers read it. It is passed explicitly; nothing about a request is ambient state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from restow.apimachinery.names import GroupVersion
from restow.apimachinery.quota_usage import Number
from restow.httpserver.request import HttpRequest
from restow.registry.resource import Resource
from restow.registry.write_options import Retries
from restow.request.negotiation import ANYTHING_OR_JSON, PLAIN, Form, Protobuf, Purpose, negotiate
from restow.request.protobuf_messages import has_messages
from restow.request.request_info import RequestInfo
from restow.request.slots import Slot, SlotPool

WARNINGS_MAX: Final = 64
ANNOTATIONS_MAX: Final = 64
ANNOTATION_LENGTH_MAX: Final = 4_096
_READS: Final = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Extra attributes of the user, by name; a forwarded request passes them on."""
    acts_as: User | None = None
    """The user that a session of this user impersonates."""
    is_master: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_master", "system:masters" in self.groups)


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Sender:
    """Cached decisions about all requests with the same header lines."""

    __slots__ = ("gets", "good_until_seconds", "is_plain", "user")

    def __init__(self, user: User, *, is_plain: bool, good_until_seconds: float = math.inf) -> None:
        self.user = user
        self.is_plain = is_plain
        """The client accepts JSON, full objects, and no indentation."""
        self.good_until_seconds = good_until_seconds
        """Valid for requests received until then, on the clock of `received_seconds`; later ones
        are authenticated again."""
        self.gets: dict[object, Any] = {}
        """Decisions about gets that are repeated often, cached by the application."""


class Context:
    """A request with its user, its attributes, and the warnings of its response."""

    __slots__ = (
        "_form",
        "_retries",
        "annotations",
        "audit",
        "charged",
        "give_back",
        "impersonator",
        "info",
        "is_authorized",
        "pool",
        "remote",
        "request",
        "resource",
        "seconds_max",
        "slot",
        "user",
        "warnings",
    )

    def __init__(self, request: HttpRequest, info: RequestInfo) -> None:
        self.request = request
        self.info = info
        self.user: User = ANONYMOUS
        self.is_authorized = False
        """Whether authentication and authorization are done: once, when the head is complete."""
        self.seconds_max = math.inf
        """How long a watch may last, because its credential expires then."""
        self.impersonator: User | None = None
        """The authenticated user, if the request impersonates another one."""
        self.resource: Resource | None = None
        self.remote: GroupVersion | None = None
        """The aggregated API, if the request is forwarded to another server."""
        self.pool: SlotPool | None = None
        """The pool that has a free slot for it."""
        self.slot: Slot | None = None
        """The slot it holds while it waits, if it needs one."""
        self.warnings: list[str] = []
        self.annotations: dict[str, str] | None = None
        """Annotations for the audit log, by name."""
        self.audit: Any = None
        """State of the audit log: the event of this request."""
        self.charged: dict[str, dict[str, Number]] | None = None
        """The quotas that were charged for it, by their paths."""
        self.give_back: Callable[[], None] | None = None
        """Called to undo that if the object was certainly not stored."""
        self._form: Form | None = None
        self._retries: Retries | None = None

    @property
    def retries(self) -> Retries:
        """The remaining retries, for any cause."""
        if self._retries is None:
            self._retries = Retries()
        return self._retries

    @property
    def form(self) -> Form:
        """The negotiated form of the response. Raises 406."""
        if self._form is None:
            accept = self.request.headers.get("accept")
            if accept is None or accept in ANYTHING_OR_JSON:
                self._form = PLAIN
            else:
                self._form = negotiate(accept, self._purpose(), self._protobuf())
        return self._form

    def _purpose(self) -> Purpose:
        if self.resource is None:
            return "document"
        if self.info.verb == "watch":
            return "watch"
        # Reviews return the object of the request; everything else can be formatted.
        is_object = self.resource.kind.persisted or self.info.verb != "create"
        return "object" if is_object else "review"

    def _protobuf(self) -> Protobuf:
        """When to use protobuf: responses to writes and reviews are small compared to their
        cost."""
        resource = self.resource
        if resource is not None and not has_messages(resource, self.info.version):
            return "metadata"
        is_read = resource is None or self.info.verb in _READS
        return "spared" if is_read else "preferred"

    def warn(self, text: str) -> None:
        """Add a Warning header to the response."""
        if len(self.warnings) < WARNINGS_MAX and text not in self.warnings:
            self.warnings.append(text)

    def annotate(self, name: str, value: str) -> None:
        """Add an audit annotation. The first value of a name stays."""
        if self.annotations is None:
            self.annotations = {}
        if len(self.annotations) < ANNOTATIONS_MAX:
            self.annotations.setdefault(name, value[:ANNOTATION_LENGTH_MAX])
