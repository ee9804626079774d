"""Delegated authentication and authorization, cached for seconds.

An aggregated server has no users of its own. The main servers review bearer tokens (TokenReview)
and access (SubjectAccessReview). Results are cached for a few seconds only, so that a revoked token
is soon rejected. A request that needs a result which is not cached is processed again once the
result has arrived.

Not here: users that the main servers name in headers, which only they may set.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from restow.aio import Runtime, TaskHandle
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.authentication.tokens import bearer_token
from restow.client import ApiClient, ClientError
from restow.httpserver.request import HttpRequest
from restow.registry.errors import DoAgain
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo

TOKEN_REVIEWS: Final = GroupVersionResource("authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS: Final = GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
KEPT_SECONDS: Final = 10.0
KEPT_MAX: Final = 10_000
IN_FLIGHT_MAX: Final = 100
ASK_SECONDS_MAX: Final = 10.0
GROUPS_MAX: Final = 1_000

_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})

logger = logging.getLogger(__name__)


class _ReviewPending(DoAgain):
    """Raised while a review is in flight."""

    def __init__(self, answer: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._answer = answer

    async def settle(self) -> None:
        await self._answer()


class Reviews:
    """Reviews by the main servers. Implements `Authenticator` and `Authorizer`."""

    keeps_seconds: Final = 0.0  # This class caches its results itself.

    def __init__(self, client: ApiClient, runtime: Runtime) -> None:
        self._client = client
        self._clock = runtime.clock
        self._tasks = runtime.tasks("reviews", tasks_max=IN_FLIGHT_MAX, on_failure=lambda _: None)
        self._cache: dict[object, tuple[float, Any]] = {}
        """Cached results with their expiry time; the oldest first."""
        self._in_flight: dict[object, TaskHandle] = {}

    async def close(self) -> None:
        await self._tasks.close()

    # Authentication.

    def authenticate(self, request: HttpRequest) -> User | None:
        token = bearer_token(request)
        if token is None:
            return None
        key = ("token", hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())
        found: User | None = self._answer(key, lambda: self._review_token(token))
        return found

    async def _review_token(self, token: str) -> User | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        said = (await self._client.create(TOKEN_REVIEWS, body)).get("status")
        if not isinstance(said, dict) or said.get("authenticated") is not True:
            return None
        user = said.get("user")
        name = user.get("username") if isinstance(user, dict) else None
        if not isinstance(user, dict) or not isinstance(name, str) or not name:
            return None
        groups = user.get("groups")
        listed = groups[:GROUPS_MAX] if isinstance(groups, list) else []
        extra = user.get("extra")
        return User(
            name,
            tuple(map(str, listed)),
            str(user.get("uid") or ""),
            tuple(
                (str(key), tuple(map(str, values)))
                for key, values in (extra if isinstance(extra, dict) else {}).items()
                if isinstance(values, list)
            ),
        )

    # Authorization.

    def allows(self, user: User, info: RequestInfo) -> bool:
        """Allow masters everything and everyone health checks; the main servers decide the rest."""
        if user.is_master:
            return True
        if not info.is_resource and info.path.strip("/").partition("/")[0] in _HEALTH:
            return info.verb in ("get", "head")
        if user.name == ANONYMOUS.name:
            return False
        spec = _access_spec(user, info)
        key = ("access", user, tuple(sorted(_resource_or_path(spec).items())))
        return bool(self._answer(key, lambda: self._review_access(spec)))

    def reason(self, user: User, info: RequestInfo) -> str:
        """Empty: the main servers return the reason in their own reviews."""
        return ""

    async def _review_access(self, spec: dict[str, Any]) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        said = (await self._client.create(ACCESS_REVIEWS, body)).get("status")
        return isinstance(said, dict) and said.get("allowed") is True and not said.get("denied")

    # Cache and requests.

    def _answer(self, key: object, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the cached result; raises `DoAgain` if it must be requested first."""
        known = self._cache.get(key)
        if known is not None and self._clock.monotonic() < known[0]:
            return known[1]

        async def answer() -> None:
            await self._ask_once(key, ask)

        raise _ReviewPending(answer)

    async def _ask_once(self, key: object, ask: Callable[[], Awaitable[Any]]) -> None:
        """Send the review, or join one in flight. Raises a 503 if there is no result."""
        handle = self._in_flight.get(key)
        if handle is None:
            if len(self._tasks) >= IN_FLIGHT_MAX:
                raise _unavailable("too many reviews are in flight")
            handle = self._in_flight[key] = self._tasks.spawn("review", self._ask(key, ask))
        await handle.wait()
        if key not in self._cache:
            raise _unavailable("the review failed")

    async def _ask(self, key: object, ask: Callable[[], Awaitable[Any]]) -> None:
        self._cache.pop(key, None)
        try:
            async with self._clock.timeout(ASK_SECONDS_MAX):
                answer = await ask()
            while len(self._cache) >= KEPT_MAX:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = (self._clock.monotonic() + KEPT_SECONDS, answer)
        except (StatusError, ClientError, TimeoutError) as error:
            logger.warning("the main servers did not review a user: %s", error)
        finally:
            del self._in_flight[key]


def _access_spec(user: User, info: RequestInfo) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra}
    if info.is_resource:
        asked = {
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "namespace": info.namespace,
            "name": info.name,
        }
        spec["resourceAttributes"] = {name: value for name, value in asked.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
    return spec


def _resource_or_path(spec: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
    return found


def _unavailable(why: str) -> StatusError:
    return status.unavailable(
        f"the main servers cannot authenticate or authorize this request: {why}",
        retry_after_seconds=status.RETRY_AFTER_SECONDS,
    )
