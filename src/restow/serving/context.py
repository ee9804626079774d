"""One request on its way through the chain: what is known about it so far.

Filters fill it in, handlers read it. It is passed on explicitly; nothing about a request lives in
ambient state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from restow.machinery.names import GroupVersion
from restow.resources.definition import Resource
from restow.serving.listener.request import Request
from restow.serving.negotiation import ANYTHING_OR_JSON, PLAIN, Form, Purpose, negotiate
from restow.serving.request_info import RequestInfo

WARNINGS_MAX: Final = 64


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


class Sender(NamedTuple):
    """What is known of all requests with the same header lines; kept with those lines."""

    user: User
    is_plain: bool
    """It takes JSON, whole objects, and not indented."""


class Context:
    """A request, who sent it, what it is about, and the warnings its answer carries."""

    __slots__ = ("_form", "info", "remote", "request", "resource", "user", "warnings")

    def __init__(self, request: Request, info: RequestInfo) -> None:
        self.request = request
        self.info = info
        self.user: User = ANONYMOUS
        self.resource: Resource | None = None
        self.remote: GroupVersion | None = None
        """What another server serves, if the request is passed on to one."""
        self.warnings: list[str] = []
        self._form: Form | None = None

    @property
    def form(self) -> Form:
        """The form of the answer. Raises 406."""
        if self._form is None:
            accept = self.request.headers.get("accept")
            if accept is None or accept in ANYTHING_OR_JSON:
                self._form = PLAIN
            else:
                self._form = negotiate(accept, self._purpose())
        return self._form

    def _purpose(self) -> Purpose:
        if self.resource is None:
            return "document"
        if self.info.verb == "watch":
            return "watch"
        return "object" if self.resource.kind.persisted else "review"

    def warn(self, text: str) -> None:
        """Tell the client something beside the answer."""
        if len(self.warnings) < WARNINGS_MAX and text not in self.warnings:
            self.warnings.append(text)
