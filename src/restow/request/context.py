"""One request on its way through the chain: what is known about it so far.

Filters fill it in, handlers read it. It is passed on explicitly; nothing about a request lives in
ambient state.
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
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What else is known of the user, by name: whoever passes on a request passes it on too."""
    is_master: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_master", "system:masters" in self.groups)


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Sender:
    """What is known of all requests with the same header lines; kept with those lines."""

    __slots__ = ("gets", "good_until_seconds", "is_plain", "user")

    def __init__(self, user: User, *, is_plain: bool, good_until_seconds: float = math.inf) -> None:
        self.user = user
        self.is_plain = is_plain
        """It takes JSON, whole objects, and not indented."""
        self.good_until_seconds = good_until_seconds
        """For requests received until then, in the time of `received_seconds`; later ones are
        looked at anew."""
        self.gets: dict[object, Any] = {}
        """The application's own: what was decided about gets that come again and again."""


class Context:
    """A request, who sent it, what it is about, and the warnings its answer carries."""

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
        self.impersonator: User | None = None
        """Who has sent the request, if it is done in the name of another."""
        self.resource: Resource | None = None
        self.remote: GroupVersion | None = None
        """What another server serves, if the request is passed on to one."""
        self.pool: SlotPool | None = None
        """Where it has been told that there is a seat for it."""
        self.slot: Slot | None = None
        """What it holds while it waits, if it is one of those that need a seat for that."""
        self.warnings: list[str] = []
        self.annotations: dict[str, str] | None = None
        """What is noted of it in the audit log, by name."""
        self.audit: Any = None
        """The audit log's own: what is being written down of it."""
        self.charged: dict[str, dict[str, Number]] | None = None
        """What quotas were charged for it, by their paths."""
        self.give_back: Callable[[], None] | None = None
        """To be called when that was for nothing: the object is surely not stored."""
        self._form: Form | None = None
        self._retries: Retries | None = None

    @property
    def retries(self) -> Retries:
        """How often it may still be tried again, whatever the cause."""
        if self._retries is None:
            self._retries = Retries()
        return self._retries

    @property
    def form(self) -> Form:
        """The form of the answer. Raises 406."""
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
        # Of what is not kept, a review is answered as it came; the rest can be looked at.
        is_object = self.resource.kind.persisted or self.info.verb != "create"
        return "object" if is_object else "review"

    def _protobuf(self) -> Protobuf:
        """Answers to writes and reviews are small beside what they cost; reads are not."""
        resource = self.resource
        if resource is not None and not has_messages(resource, self.info.version):
            return "metadata"
        is_read = resource is None or self.info.verb in _READS
        return "spared" if is_read else "preferred"

    def warn(self, text: str) -> None:
        """Tell the client something beside the answer."""
        if len(self.warnings) < WARNINGS_MAX and text not in self.warnings:
            self.warnings.append(text)

    def annotate(self, name: str, value: str) -> None:
        """Note something in the audit log. What was noted under a name first stays."""
        if self.annotations is None:
            self.annotations = {}
        if len(self.annotations) < ANNOTATIONS_MAX:
            self.annotations.setdefault(name, value[:ANNOTATION_LENGTH_MAX])
