"""The authorizer of servers that tests start without roles."""

from __future__ import annotations

from restow.request.context import User
from restow.request.request_info import RequestInfo


class MastersOnly:
    """`system:masters` may do everything, everyone else nothing."""

    def allows(self, user: User, info: RequestInfo) -> bool:
        return user.is_master

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""
